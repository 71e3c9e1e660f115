//! Headers and pulls: what a [`Transport`](super::transport::Transport) with pulls adds to messages.
//!
//! - A message may send its first window at once. Whenever a packet of it has arrived, whole or cut, its
//!   receiver asks for one more, as long as one is to come: so as many are under way as at first.
//! - A receiver sends pulls no faster than full packets come through its cables.
//! - A packet that would wait behind more than `cut_above` before an output is cut: its buffer is free, and
//!   the header goes on alone. The pull that it brings about tells the sender to send those bytes again.
//!
//! Headers and pulls of 64 B pass all queues and take nobody's bandwidth (0.8 % of a packet of 8 KiB each
//! way). Over links `B`, `l` they take `Σ (l + 64 B/B)` and twice the buffer latency at each node between,
//! on the path that the routing names first.

use std::cmp::Reverse;

use allrail_fabric::graph::NodeId;
use allrail_fabric::routing::{Hop, RouteState};

use super::Packets;
use super::control::{Goal, Grant, HEADER};

impl Packets {
    /// A message of `bytes` begins.
    pub(super) fn grant(&mut self, id: u32, source: u32, destination: u32, bytes: u64) {
        if !self.control.pulls {
            return;
        }
        let total = bytes.div_ceil(u64::from(self.packet_bytes)).max(1);
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let back = self.small_time(destination, 0, source);
        let control = &mut self.control;
        if id as usize >= control.grants.len() {
            control.grants.resize(id as usize + 1, Grant::default());
        }
        let allowed = control.first_window.min(total);
        control.grants[id as usize] = Grant { allowed, promised: allowed, total, back };
    }

    /// A packet of message `id` has come whole: its receiver asks for one more, if there is one.
    pub(super) fn ask_for_more(&mut self, id: u32) {
        if !self.control.pulls {
            return;
        }
        let grant = &mut self.control.grants[id as usize];
        if grant.promised < grant.total {
            grant.promised += 1;
            self.pull(id, 0);
        }
    }

    /// The receiver of message `id` sends a pull as soon as it may.
    fn pull(&mut self, id: u32, cut: u32) {
        let message = &self.messages[id as usize];
        let (destination, generation) = (message.destination, message.generation);
        let back = self.control.grants[id as usize].back;
        let (free, interval) = &mut self.control.receivers[destination as usize];
        let leaves = self.now.max(*free);
        *free = leaves.saturating_add(*interval);
        self.control.send(leaves + back, id, generation, cut, Goal::Sender);
    }

    /// Whether `bytes` more would wait too long before `link`.
    pub(super) fn is_crowded(&self, link: u32) -> bool {
        if self.control.cut_above == f64::INFINITY {
            return false;
        }
        let at = &self.links[link as usize];
        let rate = self.speeds[usize::from(at.speed)].rate;
        let queued = at.free_at.saturating_sub(self.now) as f64 * rate;
        queued + f64::from(at.asking) * f64::from(self.packet_bytes) > self.control.cut_above
    }

    /// Packet `id`, the first of `queue` at the end of `link`, loses its payload. It has chosen its hop.
    pub(super) fn cut(&mut self, queue: usize, link: u32, id: u32) {
        self.askers[queue].queue.pop(&self.packets);
        let at = &mut self.inputs[link as usize];
        at.queued -= 1;
        let (node, latency) = (at.node, at.latency);
        let packet = self.packets[id as usize];
        self.give_back(queue, id, packet.tail.max(self.now) + latency);
        self.discard(id);
        self.counters.cuts();
        let grant = &mut self.control.grants[packet.message as usize];
        (grant.promised, grant.total) = (grant.promised + 1, grant.total + 1);
        let time = self.now + self.small_time(node, packet.state, packet.destination);
        let generation = self.messages[packet.message as usize].generation;
        self.control.send(time, packet.message, generation, packet.bytes, Goal::Receiver);
    }

    /// The next header or pull is there.
    pub(super) fn take_small(&mut self) {
        let Some(Reverse((time, _, id, generation, cut, goal))) = self.control.under_way.pop()
        else {
            return;
        };
        self.now = time;
        match goal {
            Goal::Receiver => self.pull(id, cut),
            Goal::Sender => self.pulled(id, generation, cut),
        }
    }

    /// The sender of message `id` may send one more packet, and `cut` bytes again.
    fn pulled(&mut self, id: u32, generation: u32, cut: u32) {
        let message = &mut self.messages[id as usize];
        if message.generation != generation {
            // It was withdrawn, and another has its place.
            return;
        }
        if cut > 0 {
            message.inside -= 1;
            message.left += if message.withdrawn { 0 } else { u64::from(cut) };
        }
        if message.withdrawn {
            if cut > 0 {
                self.forget(id);
            }
            return;
        }
        self.control.grants[id as usize].allowed += 1;
        if message.in_line || !message.unfinished() {
            return;
        }
        message.in_line = true;
        self.stand_in_line(id);
    }

    /// What a header or a pull takes from `node` to the NPU `destination`.
    fn small_time(&mut self, node: u32, state: u32, destination: u32) -> u64 {
        let (mut at, mut state, mut time) = (node, RouteState(state), 0);
        while at != destination {
            self.hops.clear();
            self.routing.hops(NodeId(at), state, NodeId(destination), 0, &mut self.hops);
            let Hop { link, state: next, .. } =
                *self.hops.first().expect("a routing knows a way from every node");
            let link = &self.links[link as usize];
            time += link.latency + self.speeds[usize::from(link.speed)].time_for(HEADER);
            (at, state) = (link.to, next);
            time += if at == destination { 0 } else { 2 * self.buffer_latency };
        }
        time
    }
}
