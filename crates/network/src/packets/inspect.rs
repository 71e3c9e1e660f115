//! Is anything left over, and if the network model stands still, who waits for whom?

use allrail_core::{counted, either};

use super::choice::Flowlets;
use super::state::NONE;
use super::{Packets, Statistics};
use crate::NetworkModel;

impl Packets {
    /// What has happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            flowlets: self.flowlets.as_ref().map_or(0, Flowlets::drawn_again),
            most_at_once: self.packets.len() as u64,
            ..self.counters.statistics(self.now, self.links.len())
        }
    }

    /// Makes sure that nothing is left over at the end of a run.
    ///
    /// # Panics
    /// If a message, a packet, a credit or an event is left, which only a stall or a defect of this
    /// network model can bring about; ask [`Packets::stalled`] first.
    pub fn check_empty(&self) {
        assert!(self.events.next_time().is_none() && self.ready.is_empty(), "an event is left");
        let inside = self.counters.inside();
        assert!(inside == 0, "{inside} packets were sent and have not arrived");
        for source in &self.sources {
            assert!(source.is_idle(), "an NPU has a message that it has not sent");
        }
        for (number, (asker, output)) in self.askers.iter().zip(&self.outputs).enumerate() {
            let name = || self.name(number);
            assert!(asker.queue.is_empty(), "a packet is left at the end of {}", name());
            assert!(output.first == NONE, "someone still asks for {}", name());
            assert!(output.used == output.on_its_way(), "credit of {} is lost", name());
        }
        for (number, (link, input)) in self.links.iter().zip(&self.inputs).enumerate() {
            let clear = link.flight.is_empty() && input.queued == 0 && link.asking == 0;
            assert!(clear, "a packet is left on {}", self.name(number * self.channels));
        }
        assert!(self.open_messages == 0, "{} messages are not over", self.open_messages);
    }

    /// If packets are inside and nothing will happen any more: the ports that wait for each other, in
    /// words. `None` while anything is still to happen, and after a run that ended well.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        let inside = self.counters.inside();
        if inside == 0 || self.next_time().is_some() {
            return None;
        }
        // The first packet of a full queue waits for another full queue, and so on.
        let waiting = (0..self.outputs.len()).find(|&queue| self.askers[queue].output != NONE);
        let mut path: Vec<usize> = Vec::new();
        let mut at = waiting?;
        while !path.contains(&at) {
            path.push(at);
            if self.askers[at].output == NONE {
                break;
            }
            at = self.askers[at].output as usize;
        }
        let from = path.iter().position(|&queue| queue == at).unwrap_or(0);
        let names: Vec<String> =
            path[from..].iter().chain([&at]).map(|&number| self.name(number)).collect();
        Some(format!(
            "{inside} {are} stuck: the buffer of each of these waits for room in the next: \
             {}",
            names.join(" -> "),
            inside = counted(inside, "packet"),
            are = either(&inside, "is", "are")
        ))
    }

    /// The (link, channel) in words.
    fn name(&self, number: usize) -> String {
        let link = &self.links[number / self.channels];
        let node = |node: u32| {
            let npu = node < self.graph.npus();
            if npu { format!("NPU {node}") } else { format!("switch {node}") }
        };
        let (from, to) = (node(link.from), node(link.to));
        format!("(link {from} to {to}, channel {})", number % self.channels)
    }
}
