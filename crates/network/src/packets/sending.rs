//! NPUs: messages wait, are cut into packets, and are complete when all of these have arrived.

use allrail_fabric::routing::Hop;

use super::Packets;
use super::line::{Cables, LOOKAHEAD};
use super::message::Message;
use super::state::{NONE, Packet};
use crate::{Event, Submission, TransferId};

impl Packets {
    pub(super) fn accept(
        &mut self,
        submission: Submission,
        source: u32,
        destination: u32,
        bytes: u64,
    ) -> TransferId {
        let mut message = Message {
            tag: submission.tag,
            sent_tag: submission.sent_tag.unwrap_or_default(),
            left: bytes,
            source,
            destination,
            next: NONE,
            generation: 0,
            made: 0,
            inside: 0,
            unsent: 0,
            highest: 0,
            wants_sent: submission.sent_tag.is_some(),
            over: false,
            withdrawn: false,
            reordered: false,
            in_line: true,
        };
        self.counters.submits();
        self.open_messages += 1;
        let id = if self.unused_messages == NONE {
            self.messages.push(message);
            u32::try_from(self.messages.len() - 1).expect("fewer than 2^32 messages at once")
        } else {
            let id = self.unused_messages;
            let place = &mut self.messages[id as usize];
            self.unused_messages = place.next;
            message.generation = place.generation.wrapping_add(1);
            *place = message;
            id
        };
        let generation = self.messages[id as usize].generation;
        self.grant(id, source, destination, bytes);
        self.stand_in_line(id);
        TransferId(u64::from(generation) << 32 | u64::from(id))
    }

    /// Message `id` may give packets.
    pub(super) fn stand_in_line(&mut self, id: u32) {
        let source = self.messages[id as usize].source;
        let at = &mut self.sources[source as usize];
        if let Some(place) = at.line.push(&mut self.messages, id)
            && at.open > 0
        {
            self.fill_from(source, place);
        }
    }

    /// Makes packets for the cables of `npu` that are open, looking from `place` in its line on.
    fn fill_from(&mut self, npu: u32, mut place: usize) {
        for _ in 0..LOOKAHEAD {
            let at = &self.sources[npu as usize];
            if at.open == 0 {
                return;
            }
            let Some(standing) = at.line.get(place) else { return };
            if standing.cables.0 & at.which.0 == 0 {
                place += 1;
                continue;
            }
            let sequence = self.messages[standing.message as usize].made;
            let packet = (standing.message, sequence);
            let hop = self.choose(npu, 0, standing.destination, packet);
            if self.draws == 1 && self.choice.is_none() && standing.cables == Cables::ALL {
                let of_hop = |hop: &Hop| self.slots[hop.link as usize].cable.0;
                let cables = self.hops.iter().map(of_hop).fold(0, |all, one| all | one);
                // None has a bit where there are too many.
                let cables = if cables == 0 { Cables::ALL } else { Cables(cables) };
                self.sources[npu as usize].line.know(place, cables);
            }
            let slot = &mut self.slots[hop.link as usize];
            if slot.message != NONE {
                place += 1;
                continue;
            }
            if let Some(flowlets) = &mut self.flowlets {
                flowlets.sent();
            }
            let id = standing.message;
            slot.message = id;
            let at = &mut self.sources[npu as usize];
            at.open -= 1;
            at.which.0 &= !slot.cable.0;
            let packet = self.make(id, hop.state.0);
            let asker = self.outputs.len() as u32 + hop.link;
            self.askers[asker as usize].queue.push(&mut self.packets, packet);
            self.ask(asker, hop);
            let at = &mut self.sources[npu as usize];
            let message = &mut self.messages[id as usize];
            if message.unfinished() && self.control.allows(id, message.made) {
                at.line.step_back(&mut self.messages, place);
            } else {
                message.in_line = false;
                at.line.remove(&mut self.messages, place);
            }
        }
    }

    fn make(&mut self, id: u32, state: u32) -> u32 {
        let message = &mut self.messages[id as usize];
        let bytes = u32::try_from(message.left)
            .map_or(self.packet_bytes, |left| left.min(self.packet_bytes));
        message.left -= u64::from(bytes);
        message.inside += 1;
        message.unsent += 1;
        message.made += 1;
        self.counters.makes();
        let packet = Packet {
            next: NONE,
            message: id,
            destination: message.destination,
            bytes,
            state,
            sequence: message.made - 1,
            made: self.now,
            claimed: self.now,
            next_arrival: 0,
            tail: 0,
            channel: 0,
        };
        self.keep(packet)
    }

    /// The last byte of an NPU's own packet has left on `link`.
    pub(super) fn source_free(&mut self, link: u32) {
        let slot = &mut self.slots[link as usize];
        let id = std::mem::replace(&mut slot.message, NONE);
        let npu = self.links[link as usize].from;
        let at = &mut self.sources[npu as usize];
        at.open += 1;
        at.which.0 |= slot.cable.0;
        let message = &mut self.messages[id as usize];
        message.unsent -= 1;
        if message.unsent == 0 && !message.unfinished() {
            // What is cut later leaves again, and is told no more.
            if std::mem::take(&mut message.wants_sent) && !message.withdrawn {
                self.ready.push_back((self.now, Event::Sent { tag: message.sent_tag }));
            }
            self.forget(id);
        }
        self.fill_from(npu, 0);
    }

    /// Packet `id` is at its destination.
    pub(super) fn deliver(&mut self, id: u32) {
        let packet = self.packets[id as usize];
        self.discard(id);
        let message = &mut self.messages[packet.message as usize];
        message.inside -= 1;
        let late = packet.sequence + 1 < message.highest;
        message.highest = message.highest.max(packet.sequence + 1);
        let first = late && !message.reordered;
        message.reordered |= late;
        self.counters.delivers(packet.bytes, self.now - packet.made, late, first);
        self.ask_for_more(packet.message);
        let message = &mut self.messages[packet.message as usize];
        if message.inside == 0 && !message.unfinished() {
            if !message.withdrawn {
                message.over = true;
                self.ready.push_back((self.now, Event::Delivered { tag: message.tag }));
            }
            self.forget(packet.message);
        }
    }

    pub(super) fn withdraw(&mut self, transfer: TransferId) -> bool {
        let id = (transfer.0 & u64::from(u32::MAX)) as u32;
        let message = &mut self.messages[id as usize];
        if u64::from(message.generation) != transfer.0 >> 32 || message.over {
            return false;
        }
        (message.over, message.withdrawn) = (true, true);
        if message.unfinished() {
            (message.left, message.made) = (0, message.made.max(1));
            let npu = message.source;
            if std::mem::take(&mut message.in_line) {
                self.sources[npu as usize].line.withdraw(&mut self.messages, id);
            }
            self.forget(id);
            self.fill_from(npu, 0);
        }
        true
    }

    /// Gives the place of message `id` away if nothing of it is left.
    pub(super) fn forget(&mut self, id: u32) {
        let message = &mut self.messages[id as usize];
        if message.inside == 0 && message.unsent == 0 {
            message.over = true;
            message.next = self.unused_messages;
            self.unused_messages = id;
            self.open_messages -= 1;
        }
    }
}
