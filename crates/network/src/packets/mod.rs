//! `packets`: input-queued switches with virtual channels, credits and adaptive routing.
//!
//! Every node is a router, NPUs too (in meshes and tori they forward). What holds, with the figures
//! of `HammingMesh` (SC'22, Table III) as [`Settings`]' defaults:
//!
//! - **Packets.** A message is cut into packets of 8192 B, the last one shorter. They are made when
//!   they are sent, so a waiting message costs its record only.
//! - **Cut-through.** A packet goes on once its first flit (256 B) is there, as in flit-level merlin;
//!   it is not interleaved with others. Where the next link is faster it starts late enough not to
//!   run dry. Alone over links of one bandwidth `B`, of latencies `l`, a packet of `s` bytes takes
//!
//!   ```text
//!   s/B + Σ l + (links − 1)·(2·buffer_latency + min(s, flit)/B)
//!   ```
//!
//!   with links of 20 ns (1 ns on boards) and buffers of 40 ns, input and output.
//! - **Input queues.** A link ends in one first-in-first-out queue for each virtual channel, which has
//!   that channel's share of the port's buffer (32 MB). Its first packet blocks those behind it.
//! - **Routing.** A packet's hop is chosen once, when it is first in its queue and the input is free:
//!   of those that [`Routing::hops`] allows and the [`choice`] leaves, the one of the least load times
//!   weight; of equals one with the fewest links to go. If there are several still, an NPU takes the first,
//!   and a switch draws: else the NPUs of a leaf, in step, would each keep one uplink to themselves. A link's load is what waits to be sent on it plus what its channel holds on credit.
//! - **Crossbar.** An input passes one packet at a time to an output, and an output takes one at a
//!   time, `crossbar_speedup` (2) times as fast as the output's link. A queue asks for one packet at a
//!   time, and each channel of an output serves who asked first, the channels in turn: so every queue
//!   has its turn in each round.
//! - **Credits.** A packet crosses only if its channel has credit for all of it at the far end of the
//!   link. Credit covers the output queue, the wire and the far buffer together, so whatever is in an
//!   output queue can leave, first come, first served; the output buffer needs no bound of its own. Credit is
//!   back one link latency after the last byte has left the far buffer.
//! - **NPUs.** An NPU sends through all its cables. Each takes one packet of its own at a time, the next
//!   one when the last byte of that has left. The first message in line that can use the cable gives it
//!   (of 16), and lets three others pass then: four are sent in turns, the oldest first. The packet takes
//!   its place among what is forwarded. What has arrived leaves at once when it
//!   is first in its queue.
//!
//! - **Transport.** When a message may give its next packet, and what a full queue does ([`transport`],
//!   `pulls.rs`): by default at once, and wait.
//!
//! At one time, arrivals come first, then inputs that are free again, outputs that are, departures, and
//! headers and pulls.
//! Ignored: allocation between flits, corrupted packets, separate networks for requests.
//!
//! The calendar and the lists within arrays are the clever part; `tests/it/packets_oracle.rs` has
//! the plain one.

mod calendar;
pub mod choice;
mod control;
mod inspect;
mod line;
mod message;
pub mod policy;
mod pulls;
mod sending;
mod settings;
mod source;
mod state;
mod statistics;
mod switch;
pub mod transport;

use std::collections::VecDeque;
use std::sync::Arc;

use allrail_core::{Bytes, FieldError, Time};
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::routing::{Hop, Routing};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::{Event, NetworkModel, Submission, Transfer, TransferId};
use calendar::{Action, Calendar};
use choice::{Flowlets, PathChoice};
use control::Control;
use message::Message;
pub use settings::Settings;
use source::{Slot, Source};
use state::{Asker, Input, Link, NONE, Output, Packet, Speed};
use statistics::Counters;
pub use statistics::Statistics;

/// See the module.
pub struct Packets {
    graph: Arc<Graph>,
    routing: Box<dyn Routing>,
    draws: u32,
    random: Pcg64Mcg,
    /// If it leaves hops out.
    choice: Option<&'static dyn PathChoice>,
    /// If it asks for them.
    flowlets: Option<Flowlets>,
    control: Control,
    seed: u64,
    /// Virtual channels of a link.
    channels: usize,
    /// A channel's share of a buffer.
    share: u64,
    packet_bytes: u32,
    buffer_latency: u64,
    speeds: Vec<Speed>,

    links: Vec<Link>,
    inputs: Vec<Input>,
    /// For each (link, channel): its credits and who asks for it.
    outputs: Vec<Output>,
    /// For each (link, channel): the queue at its far end; then the slot of each link.
    askers: Vec<Asker>,
    /// For each link from an NPU: its own packet.
    slots: Vec<Slot>,
    sources: Vec<Source>,

    packets: Vec<Packet>,
    unused_packets: u32,
    messages: Vec<Message>,
    unused_messages: u32,
    open_messages: usize,

    events: Calendar,
    /// What the driver has not taken yet.
    ready: VecDeque<(u64, Event)>,
    now: u64,
    hops: Vec<Hop>,
    /// Of them, those that are as good as the best.
    equals: Vec<u32>,
    counters: Counters,
}

/// So many events ahead, packets are asked for; links before them.
const NEAR: usize = 6;
const FAR: usize = 12;

impl Packets {
    /// An idle network.
    ///
    /// # Errors
    /// A setting is out of range, or a packet does not fit a virtual channel's share of a buffer.
    pub fn new(
        graph: Arc<Graph>,
        routing: Box<dyn Routing>,
        settings: &Settings,
        seed: u64,
    ) -> Result<Self, FieldError> {
        settings.validate(routing.channels())?;
        let channels = usize::from(routing.channels().max(1));
        let (speeds, links) = state::links(&graph, settings);
        let count = links.len();
        let sources = (0..graph.npus())
            .map(|npu| Source::new(graph.neighbours(NodeId(npu)).len() as u32))
            .collect();
        // A full packet on the slowest link, and back.
        let slowest = speeds.iter().map(Speed::of_a_packet).max().unwrap_or(1);
        Ok(Self {
            draws: routing.draws(),
            random: Pcg64Mcg::seed_from_u64(seed),
            choice: Some(settings.choice.0).filter(|choice| choice.narrows()),
            flowlets: settings.choice.by_flowlets().then(|| Flowlets::new(settings.flowlet_gap())),
            control: Control::new(settings, &graph),
            seed,
            channels,
            share: settings.channel_share(routing.channels()),
            packet_bytes: settings.packet().count() as u32,
            buffer_latency: settings.buffer_latency.as_ps(),
            speeds,
            inputs: links.iter().map(Input::of).collect(),
            outputs: (0..count * channels).map(|_| Output::default()).collect(),
            askers: vec![Asker::default(); count * channels + count],
            slots: source::slots(&graph),
            sources,
            packets: Vec::new(),
            unused_packets: NONE,
            messages: Vec::new(),
            unused_messages: NONE,
            open_messages: 0,
            events: Calendar::new(4 * slowest),
            ready: VecDeque::new(),
            now: 0,
            hops: Vec::new(),
            equals: Vec::new(),
            counters: Counters::new(count),
            links,
            graph,
            routing,
        })
    }

    fn keep(&mut self, packet: Packet) -> u32 {
        if self.unused_packets == NONE {
            self.packets.push(packet);
            return u32::try_from(self.packets.len() - 1).expect("fewer than 2^32 packets at once");
        }
        let id = self.unused_packets;
        self.unused_packets = self.packets[id as usize].next;
        self.packets[id as usize] = packet;
        id
    }

    fn discard(&mut self, id: u32) {
        self.packets[id as usize].next = self.unused_packets;
        self.unused_packets = id;
    }

    fn handle(&mut self, entry: calendar::Entry) {
        self.now = entry.time();
        if let Some(link) = self.events.ahead(NEAR) {
            state::prefetch(&self.packets, self.links[link as usize].flight.first);
        }
        if let Some(link) = self.events.ahead(FAR) {
            state::prefetch(&self.links, link);
            state::prefetch(&self.inputs, link);
        }
        match entry.action {
            Action::Arrive => self.arrive(entry.link),
            Action::InputFree => self.input_free(entry.link),
            Action::OutputFree => self.output_free(entry.link),
            Action::SourceFree => self.source_free(entry.link),
        }
    }
}

impl NetworkModel for Packets {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        let Transfer::Message { source, destination, bytes, .. } = submission.transfer else {
            panic!("the network model `packets` carries messages; a driver sent it a stage");
        };
        let npus = self.graph.npus();
        assert!(
            source != destination && source.0 < npus && destination.0 < npus,
            "{source} and {destination} are not two NPUs of {npus}"
        );
        self.now = self.now.max(now.as_ps());
        self.accept(submission, source.0, destination.0, bytes.count())
    }

    fn next_time(&self) -> Option<Time> {
        if let Some(&(time, _)) = self.ready.front() {
            return Some(Time::from_ps(time));
        }
        let next = self.events.next_time().unwrap_or(u64::MAX).min(self.control.next_time());
        (next < u64::MAX).then(|| Time::from_ps(next))
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            if let Some((time, event)) = self.ready.pop_front() {
                return Some((Time::from_ps(time), event));
            }
            let small = self.control.next_time();
            match self.events.pop(until.as_ps().min(small)) {
                Some(entry) => self.handle(entry),
                None if small < u64::MAX && small <= until.as_ps() => self.take_small(),
                None => return None,
            }
        }
    }

    fn arrived(&self) -> Option<Bytes> {
        Some(Bytes::new(self.counters.arrived()))
    }

    fn link_seconds(&self) -> Vec<f64> {
        let bandwidth = |link| self.graph.link(link).wire.bandwidth.bytes_per_second() as f64;
        let carried = (0u32..).zip(self.counters.link_bytes());
        carried.map(|(link, bytes)| *bytes as f64 / bandwidth(link)).collect()
    }

    /// Its packets that are on their way go on and are dropped at the end; the others are not made.
    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        self.now = self.now.max(now.as_ps());
        self.withdraw(transfer)
    }
}
