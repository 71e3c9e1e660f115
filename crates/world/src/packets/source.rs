//! NPUs: messages wait, are cut into packets, and are complete when all of these have arrived.

use allrail_core::DimensionId;

use super::Packets;
use super::state::{NONE, Packet};
use crate::{Event, Submission, TransferId};

/// An NPU looks for a packet in so many of its messages that stand first.
const LOOKAHEAD: u32 = 16;
/// A message that has given a packet stands behind so many others less one: so many are sent in turns,
/// as `HammingMesh` (SC'22, Table III) has four send machines an NPU.
const TURNS: u32 = 4;

/// A message, from its submission until nothing of it is left.
pub(super) struct Message {
    tag: u64,
    sent_tag: u64,
    /// Bytes that are in no packet yet.
    left: u64,
    source: u32,
    destination: u32,
    /// After it, in its NPU's list or among the unused ones.
    next: u32,
    /// How many messages had this place before.
    generation: u32,
    /// Packets made so far.
    made: u32,
    /// Packets that have not arrived.
    inside: u32,
    /// Packets whose last byte has not left the NPU.
    unsent: u32,
    /// One more than the highest place of a packet that has arrived.
    highest: u32,
    dimension: u16,
    wants_sent: bool,
    /// Delivered, or withdrawn.
    over: bool,
    withdrawn: bool,
    reordered: bool,
}

impl Message {
    /// Whether a packet is still to be made; an empty message has one.
    const fn unfinished(&self) -> bool {
        self.left > 0 || self.made == 0
    }
}

/// An NPU's messages that are not all in packets; the one whose turn it is first.
pub(super) struct Source {
    first: u32,
    last: u32,
    waiting: u32,
    /// Cables that no packet of its own waits for or is being sent on.
    open: u32,
}

impl Source {
    pub(super) const fn new(cables: u32) -> Self {
        Self { first: NONE, last: NONE, waiting: 0, open: cables }
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.first == NONE && self.waiting == 0
    }
}

/// An NPU's own packet for one of its cables.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) packet: u32,
    /// Whose packet it is; `NONE` while the slot is open.
    message: u32,
}

impl Default for Slot {
    fn default() -> Self {
        Self { packet: NONE, message: NONE }
    }
}

impl Packets {
    pub(super) fn accept(
        &mut self,
        submission: Submission,
        dimension: DimensionId,
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
            dimension: u16::try_from(dimension.0).expect("fewer than 65,536 dimensions"),
            wants_sent: submission.sent_tag.is_some(),
            over: false,
            withdrawn: false,
            reordered: false,
        };
        self.counters.submits(dimension.index());
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
        let at = &mut self.sources[source as usize];
        let before = at.last;
        if before == NONE {
            at.first = id;
        } else {
            self.messages[before as usize].next = id;
        }
        at.last = id;
        at.waiting += 1;
        if at.waiting <= LOOKAHEAD && at.open > 0 {
            self.fill_from(source, before, id, LOOKAHEAD);
        }
        TransferId(u64::from(generation) << 32 | u64::from(id))
    }

    /// Makes packets for the cables of `npu` that are open.
    fn fill(&mut self, npu: u32) {
        let at = &self.sources[npu as usize];
        if at.open > 0 && at.first != NONE {
            self.fill_from(npu, NONE, at.first, LOOKAHEAD);
        }
    }

    /// The same, looking `count` times, from message `id` on, which stands behind `before`.
    fn fill_from(&mut self, npu: u32, mut before: u32, mut id: u32, count: u32) {
        for _ in 0..count {
            if id == NONE || self.sources[npu as usize].open == 0 {
                return;
            }
            let destination = self.messages[id as usize].destination;
            let hop = self.choose(npu, 0, destination);
            if self.slots[hop.link as usize].message == NONE {
                let packet = self.make(id, hop.state.0);
                self.slots[hop.link as usize] = Slot { packet, message: id };
                self.sources[npu as usize].open -= 1;
                self.ask(self.queues.len() as u32 + hop.link, hop);
                if self.messages[id as usize].unfinished() {
                    self.step_back(npu, before, id);
                } else {
                    self.unlink(npu, before, id);
                }
            } else {
                before = id;
            }
            id = if before == NONE {
                self.sources[npu as usize].first
            } else {
                self.messages[before as usize].next
            };
        }
    }

    /// Message `id`, which stands behind `before`, lets the next ones pass.
    fn step_back(&mut self, npu: u32, before: u32, id: u32) {
        let mut after = id;
        for _ in 1..TURNS {
            match self.messages[after as usize].next {
                NONE => break,
                next => after = next,
            }
        }
        if after == id {
            return;
        }
        let next = self.messages[id as usize].next;
        let at = &mut self.sources[npu as usize];
        if before == NONE {
            at.first = next;
        } else {
            self.messages[before as usize].next = next;
        }
        if at.last == after {
            at.last = id;
        }
        self.messages[id as usize].next = self.messages[after as usize].next;
        self.messages[after as usize].next = id;
    }

    fn unlink(&mut self, npu: u32, before: u32, id: u32) {
        let next = self.messages[id as usize].next;
        let at = &mut self.sources[npu as usize];
        at.waiting -= 1;
        if before == NONE {
            at.first = next;
        } else {
            self.messages[before as usize].next = next;
        }
        if at.last == id {
            at.last = before;
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
            dimension: message.dimension,
            channel: 0,
        };
        self.keep(packet)
    }

    /// The last byte of an NPU's own packet has left on `link`.
    pub(super) fn source_free(&mut self, link: u32) {
        let id = std::mem::take(&mut self.slots[link as usize]).message;
        let npu = self.links[link as usize].from;
        self.sources[npu as usize].open += 1;
        let message = &mut self.messages[id as usize];
        message.unsent -= 1;
        if message.unsent == 0 && !message.unfinished() {
            if message.wants_sent && !message.withdrawn {
                self.ready.push_back((self.now, Event::Sent { tag: message.sent_tag }));
            }
            self.forget(id);
        }
        self.fill(npu);
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
        self.counters.delivers(self.now - packet.made, late, first);
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
            let (mut before, mut other) = (NONE, self.sources[npu as usize].first);
            while other != id {
                (before, other) = (other, self.messages[other as usize].next);
            }
            self.unlink(npu, before, id);
            self.forget(id);
            self.fill(npu);
        }
        true
    }

    /// Gives the place of message `id` away if nothing of it is left.
    fn forget(&mut self, id: u32) {
        let message = &mut self.messages[id as usize];
        if message.inside == 0 && message.unsent == 0 {
            message.over = true;
            message.next = self.unused_messages;
            self.unused_messages = id;
            self.open_messages -= 1;
        }
    }
}
