//! `packets` against a plain simulation of the same rules, which looks through everything whenever
//! anything happens.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::packets_common::*;
use allrail_core::{Bytes, Time};
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::routing::{Adaptive, Hop, RouteState, Routing};
use allrail_network::packets::Settings;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

struct Packet {
    message: usize,
    bytes: u64,
    state: RouteState,
    /// Of the link that it is on or came by.
    tail: u64,
}

/// Buffer space at the end of (link, channel), claimed by a packet until the sender knows better.
struct Claim {
    output: (usize, u8),
    packet: usize,
    bytes: u64,
    until: Option<u64>,
}

/// Who sends: the queue of a (link, channel), or the slot of a link from an NPU.
#[derive(Clone, Copy, PartialEq)]
enum Asker {
    Queue(usize, u8),
    Slot(usize),
}

#[derive(Default, Clone)]
struct Port {
    flight: Vec<(u64, usize)>,
    queues: Vec<Vec<usize>>,
    /// The queues whose first packet has chosen.
    asked: Vec<bool>,
    free_at: u64,
    last_arrival: u64,
    output_free: u64,
    input_free: u64,
    output_turn: u8,
    input_turn: u8,
    /// The packet in the slot; when its last byte leaves.
    slot: Option<(usize, Option<u64>)>,
}

struct Plain<'a> {
    graph: &'a Graph,
    routing: Adaptive,
    settings: &'a Settings,
    messages: &'a [Message],
    now: u64,
    ports: Vec<Port>,
    packets: Vec<Packet>,
    claims: Vec<Claim>,
    asking: Vec<(Asker, Hop)>,
    /// For each message: bytes not in packets, packets not sent, packets not delivered.
    left: Vec<(u64, u32, u32)>,
    submitted: usize,
    /// For each NPU: its messages that are not all in packets, the one whose turn it is first.
    lists: Vec<Vec<usize>>,
    times: Vec<Times>,
    /// When to look again.
    agenda: BTreeSet<u64>,
    /// Whether two things happened at one time.
    tie: bool,
    /// As the network model's: what is drawn is drawn in the same order.
    random: Pcg64Mcg,
}

impl Plain<'_> {
    fn time(&self, link: usize, bytes: u64) -> u64 {
        let wire = self.graph.link(link as u32).wire;
        wire.bandwidth.time_for(Bytes::new(bytes)).expect("short").as_ps()
    }

    fn latency(&self, link: usize) -> u64 {
        self.graph.link(link as u32).wire.latency.as_ps()
    }

    fn used(&self, output: (usize, u8)) -> u64 {
        let held =
            |claim: &&Claim| claim.output == output && claim.until.is_none_or(|t| t > self.now);
        self.claims.iter().filter(held).map(|claim| claim.bytes).sum()
    }

    fn choose(&mut self, node: NodeId, state: RouteState, destination: u32) -> Hop {
        let mut hops = Vec::new();
        self.routing.hops(node, state, NodeId(destination), 0, &mut hops);
        let load = |hop: &Hop| {
            let link = hop.link as usize;
            let rate = self.graph.link(hop.link).wire.bandwidth.bytes_per_second() as f64 / 1e12;
            let waiting = self.ports[link].free_at.saturating_sub(self.now) as f64 * rate;
            (waiting + self.used((link, hop.channel)) as f64) * f64::from(hop.weight)
        };
        let cost = |hop: &Hop| (load(hop), hop.weight);
        let best = hops.iter().map(cost).min_by(|a, b| a.partial_cmp(b).expect("numbers"));
        hops.retain(|hop| Some(cost(hop)) == best);
        // Of equals NPUs take the first, switches draw.
        if node.0 < self.graph.npus() || hops.len() == 1 {
            return hops[0];
        }
        hops[self.random.random_range(0..hops.len())]
    }

    fn first(&self, asker: Asker) -> usize {
        match asker {
            Asker::Queue(link, channel) => self.ports[link].queues[channel as usize][0],
            Asker::Slot(link) => self.ports[link].slot.expect("it asked").0,
        }
    }

    fn give_back(&mut self, link: usize, packet: usize, time: u64) {
        let known = |claim: &&mut Claim| {
            claim.output.0 == link && claim.packet == packet && claim.until.is_none()
        };
        self.claims.iter_mut().find(known).expect("it came by credit").until = Some(time);
        self.at(time);
    }

    fn at(&mut self, time: u64) {
        self.tie |= !self.agenda.insert(time);
    }

    /// The first packet of a queue, if it may, leaves at its destination or chooses.
    fn advance(&mut self, link: usize, channel: u8) {
        while let Some(&packet) = self.ports[link].queues[channel as usize].first() {
            if self.ports[link].input_free > self.now || self.ports[link].asked[channel as usize] {
                return;
            }
            let node = self.graph.link(link as u32).to;
            let message = self.packets[packet].message;
            if self.messages[message].destination == node.0 {
                self.ports[link].queues[channel as usize].remove(0);
                self.give_back(link, packet, self.now + self.latency(link));
                let left = &mut self.left[message];
                left.2 -= 1;
                if left.2 == 0 && left.0 == 0 {
                    self.times[message].delivered = Time::from_ps(self.now);
                }
                continue;
            }
            let destination = self.messages[message].destination;
            let hop = self.choose(node, self.packets[packet].state, destination);
            self.packets[packet].state = hop.state;
            self.ports[link].asked[channel as usize] = true;
            self.asking.push((Asker::Queue(link, channel), hop));
            self.serve(hop.link as usize);
        }
    }

    fn serve(&mut self, link: usize) {
        let channels = self.routing.channels();
        if self.ports[link].output_free > self.now {
            return;
        }
        let share = self.settings.buffer.count() / u64::from(channels);
        let turn = self.ports[link].output_turn;
        for channel in (0..channels).map(|step| (turn + step) % channels) {
            let ready = |(asker, hop): &(Asker, Hop)| {
                let free = match asker {
                    Asker::Queue(input, _) => self.ports[*input].input_free <= self.now,
                    Asker::Slot(_) => true,
                };
                hop.link as usize == link && hop.channel == channel && free
            };
            let Some(place) = self.asking.iter().position(ready) else { continue };
            let asker = self.asking[place].0;
            let bytes = self.packets[self.first(asker)].bytes;
            if self.used((link, channel)) + bytes <= share {
                self.asking.remove(place);
                self.ports[link].output_turn = (channel + 1) % channels;
                self.cross(asker, link, channel);
                return;
            }
        }
    }

    fn cross(&mut self, asker: Asker, link: usize, channel: u8) {
        let (now, packet) = (self.now, self.first(asker));
        let (message, bytes) = (self.packets[packet].message, self.packets[packet].bytes);
        let serialisation = self.time(link, bytes);
        let head = self.time(link, bytes.min(self.settings.flit.count()));
        let crossed = now + (serialisation as f64 / self.settings.crossbar_speedup).ceil() as u64;
        let buffer = self.settings.buffer_latency.as_ps();
        let mut ready = now;
        if let Asker::Queue(input, from) = asker {
            let tail = self.packets[packet].tail;
            ready = (now + buffer).max((tail + 2 * buffer + head).saturating_sub(serialisation));
            let at = &mut self.ports[input];
            at.queues[from as usize].remove(0);
            at.asked[from as usize] = false;
            at.input_free = crossed;
            at.input_turn = (from + 1) % self.routing.channels();
            self.give_back(input, packet, tail.max(crossed) + self.latency(input));
        }
        let start = ready.max(self.ports[link].free_at);
        let end = start + serialisation;
        let tail = end + self.latency(link);
        let ends = self.graph.link(link as u32).to.0 == self.messages[message].destination;
        let arrival = if ends { tail } else { start + head + self.latency(link) + buffer };
        let at = &mut self.ports[link];
        let arrival = arrival.max(at.last_arrival);
        (at.free_at, at.output_free, at.last_arrival) = (end, crossed, arrival);
        at.flight.push((arrival, packet));
        if let Asker::Slot(_) = asker {
            at.slot = Some((packet, Some(end)));
        }
        self.packets[packet].tail = tail;
        self.claims.push(Claim { output: (link, channel), packet, bytes, until: None });
        for time in [crossed, end, arrival] {
            self.at(time);
        }
    }

    /// Makes packets for the cables of an NPU that are open, of its messages from the `place`-th on.
    fn fill(&mut self, npu: u32, mut place: usize) {
        let links = self.graph.neighbours(NodeId(npu));
        for _ in 0..16 {
            let Some(&message) = self.lists[npu as usize].get(place) else { return };
            if links.iter().all(|&(_, link)| self.ports[link as usize].slot.is_some()) {
                return;
            }
            let Message { destination, bytes, .. } = self.messages[message];
            let hop = self.choose(NodeId(npu), RouteState(0), destination);
            let link = hop.link as usize;
            if self.ports[link].slot.is_some() {
                place += 1;
                continue;
            }
            let left = &mut self.left[message];
            let of_packet = left.0.min(self.settings.packet().count()).min(bytes);
            *left = (left.0 - of_packet, left.1 + 1, left.2 + 1);
            let finished = left.0 == 0;
            self.packets.push(Packet { message, bytes: of_packet, state: hop.state, tail: 0 });
            self.ports[link].slot = Some((self.packets.len() - 1, None));
            self.asking.push((Asker::Slot(link), hop));
            self.serve(link);
            // Three others pass before it gives another packet.
            let list = &mut self.lists[npu as usize];
            list.remove(place);
            if !finished {
                list.insert((place + 3).min(list.len()), message);
            }
        }
    }

    fn step(&mut self) {
        for link in 0..self.ports.len() {
            while let Some(&(arrival, packet)) = self.ports[link].flight.first() {
                if arrival > self.now {
                    break;
                }
                self.ports[link].flight.remove(0);
                let on = |claim: &&Claim| claim.output.0 == link && claim.packet == packet;
                let channel = self.claims.iter().find(on).expect("it came by credit").output.1;
                self.ports[link].queues[channel as usize].push(packet);
                self.advance(link, channel);
            }
        }
        for link in 0..self.ports.len() {
            let channels = self.routing.channels();
            let turn = self.ports[link].input_turn;
            for channel in (0..channels).map(|step| (turn + step) % channels) {
                if self.ports[link].input_free != self.now {
                    break;
                }
                self.advance(link, channel);
                let asked = |&&(asker, _): &&(Asker, Hop)| asker == Asker::Queue(link, channel);
                if let Some(&(_, hop)) = self.asking.iter().find(asked) {
                    self.serve(hop.link as usize);
                }
            }
        }
        for link in 0..self.ports.len() {
            self.serve(link);
        }
        for link in 0..self.ports.len() {
            let Some((packet, Some(end))) = self.ports[link].slot else { continue };
            if end > self.now {
                continue;
            }
            self.ports[link].slot = None;
            let message = self.packets[packet].message;
            let left = &mut self.left[message];
            left.1 -= 1;
            if left.1 == 0 && left.0 == 0 {
                self.times[message].sent = Time::from_ps(self.now);
            }
            self.fill(self.graph.link(link as u32).from.0, 0);
        }
        while self.submitted < self.messages.len()
            && self.messages[self.submitted].at.as_ps() <= self.now
        {
            self.submitted += 1;
            let message = self.submitted - 1;
            let source = self.messages[message].source;
            let list = &mut self.lists[source as usize];
            list.push(message);
            if list.len() <= 16 {
                self.fill(source, self.lists[source as usize].len() - 1);
            }
        }
    }
}

fn plain(graph: &Graph, settings: &Settings, messages: &[Message]) -> (Vec<Times>, bool) {
    let routing = Adaptive::new(graph).expect("few channels");
    let channels = routing.channels() as usize;
    let port = Port {
        queues: vec![Vec::new(); channels],
        asked: vec![false; channels],
        ..Port::default()
    };
    let mut plain = Plain {
        graph,
        routing,
        settings,
        messages,
        now: 0,
        ports: vec![port; graph.links() as usize],
        packets: Vec::new(),
        claims: Vec::new(),
        asking: Vec::new(),
        left: messages.iter().map(|message| (message.bytes, 0, 0)).collect(),
        submitted: 0,
        lists: vec![Vec::new(); graph.npus() as usize],
        times: vec![Times { sent: Time::MAX, delivered: Time::MAX }; messages.len()],
        agenda: BTreeSet::new(),
        tie: false,
        random: Pcg64Mcg::seed_from_u64(0),
    };
    for message in messages {
        plain.at(message.at.as_ps());
    }
    while let Some(now) = plain.agenda.pop_first() {
        plain.now = now;
        plain.step();
    }
    (plain.times, plain.tie)
}

/// With the published settings: at the switch NPU 0's empty packet waits for the output, which NPU 1's
/// packet takes, and another packet waits behind it.
#[test]
fn an_empty_message_keeps_the_rules() {
    let graph = Arc::new(tree(1, 3, 1, &[wire(400, 20_000)]));
    let settings = Settings::default();
    let messages = [message(0, 1, 2, 8192), message(6_000, 0, 2, 0), message(6_000, 0, 2, 8192)];
    let (times, _) = plain(&graph, &settings, &messages);
    assert_eq!(run(&graph, &settings, &messages), times);
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Times are odd, so that two things rarely happen at one time; where they do, which comes first is
    /// the network model's choice.
    #[test]
    fn packets_keep_the_rules(case in any_case(1u64..9_000)) {
        let (graph, settings, messages) = case;
        let graph = Arc::new(graph);
        let (times, tie) = plain(&graph, &settings, &messages);
        prop_assume!(!tie);
        prop_assert_eq!(run(&graph, &settings, &messages), times);
    }
}
