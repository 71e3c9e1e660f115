//! What the network model keeps of packets, links, queues and outputs: compact, and joined by index.

use std::collections::VecDeque;

use allrail_core::{Bandwidth, Bytes};
use allrail_fabric::graph::Graph;

use super::Settings;

/// No packet, no message, no one.
pub(super) const NONE: u32 = u32::MAX;

/// A packet on its way: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Packet {
    /// Behind it in its queue, or on its link.
    pub(super) next: u32,
    pub(super) message: u32,
    pub(super) destination: u32,
    pub(super) bytes: u32,
    /// What it carries of its route.
    pub(super) state: u32,
    /// Its place in its message.
    pub(super) sequence: u32,
    /// When it was made.
    pub(super) made: u64,
    /// When it got its credit for the link that it is on, or came by.
    pub(super) claimed: u64,
    /// When the one behind it on that link arrives.
    pub(super) next_arrival: u64,
    /// When its last byte is at the far end.
    pub(super) tail: u64,
    /// The channel of that link.
    pub(super) channel: u8,
}

const _: () = assert!(size_of::<Packet>() == 64);

/// Asks for the cache line of `items[id]`, if there is one, before it is needed.
pub(super) fn prefetch<T>(items: &[T], id: u32) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(id as usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads and writes nothing; the address is that of an item.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, id);
}

/// How fast a link is; most links are alike.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Speed {
    bandwidth: u64,
    packet: u32,
    of_packet: u64,
    flit: u32,
    of_flit: u64,
    speedup: f64,
    crossing: u64,
    /// Bytes in a picosecond.
    pub(super) rate: f64,
}

impl Speed {
    fn new(bandwidth: Bandwidth, settings: &Settings) -> Self {
        let mut speed = Self {
            bandwidth: bandwidth.bytes_per_second(),
            packet: 0,
            of_packet: 0,
            flit: settings.flit.count() as u32,
            of_flit: 0,
            speedup: settings.crossbar_speedup,
            crossing: 0,
            rate: bandwidth.bytes_per_second() as f64 / 1e12,
        };
        let packet = settings.packet().count() as u32;
        (speed.of_packet, speed.crossing) = (speed.time_for(packet), speed.crossing(packet));
        speed.of_flit = speed.time_for(speed.flit);
        // From now on it is looked up.
        speed.packet = packet;
        speed
    }

    pub(super) const fn of_a_packet(&self) -> u64 {
        self.of_packet
    }

    /// To send `bytes`, in ps.
    pub(super) fn time_for(&self, bytes: u32) -> u64 {
        if bytes == self.packet {
            return self.of_packet;
        }
        let bandwidth = Bandwidth::from_bytes_per_second(self.bandwidth).expect("from a wire");
        let time = bandwidth.time_for(Bytes::new(u64::from(bytes)));
        time.expect("a packet is 16 MiB at most").as_ps()
    }

    /// To send the first flit of `bytes`.
    pub(super) fn head(&self, bytes: u32) -> u64 {
        if bytes >= self.flit { self.of_flit } else { self.time_for(bytes) }
    }

    /// To bring `bytes` through the crossbar.
    pub(super) fn crossing(&self, bytes: u32) -> u64 {
        if bytes == self.packet {
            return self.crossing;
        }
        (self.time_for(bytes) as f64 / self.speedup).ceil() as u64
    }
}

/// A directed link, as the node at its start sees it: an output.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Link {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) latency: u64,
    /// When it will have sent what is in its output queue.
    pub(super) free_at: u64,
    /// When the crossbar may bring it another packet.
    pub(super) crossbar_free: u64,
    /// The next event `OutputFree`.
    pub(super) wakes_at: u64,
    /// When the last packet of `flight` arrives.
    pub(super) last_arrival: u64,
    /// Packets in the output queue and on the wire, in order.
    pub(super) flight: Queue,
    /// How many ask for it.
    pub(super) asking: u32,
    pub(super) speed: u16,
    /// The channel whose turn it is.
    pub(super) turn: u8,
}

/// The same link, as the node at its end sees it.
#[derive(Clone)]
pub(super) struct Input {
    pub(super) node: u32,
    /// How many packets are in its queues.
    pub(super) queued: u32,
    /// When it may pass on another packet.
    pub(super) free_at: u64,
    pub(super) latency: u64,
    /// Whether the event `InputFree` is to come.
    pub(super) wakes: bool,
    /// The channel whose turn it is.
    pub(super) turn: u8,
}

const _: () = assert!(size_of::<Link>() == 64 && size_of::<Input>() <= 32);

/// A list of packets, linked by [`Packet::next`].
#[derive(Clone, Copy)]
pub(super) struct Queue {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Queue {
    pub(super) const fn is_empty(self) -> bool {
        self.first == NONE
    }

    pub(super) fn push(&mut self, packets: &mut [Packet], id: u32) {
        packets[id as usize].next = NONE;
        if self.is_empty() {
            self.first = id;
        } else {
            packets[self.last as usize].next = id;
        }
        self.last = id;
    }

    pub(super) fn pop(&mut self, packets: &[Packet]) -> u32 {
        let id = self.first;
        self.first = packets[id as usize].next;
        id
    }
}

/// A queue, or an NPU's slot, and what it wants for its first packet.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) queue: Queue,
    /// The (link, channel) that was chosen; `NONE` while nothing is.
    pub(super) output: u32,
    /// Who asked for the same after it.
    pub(super) next: u32,
}

impl Default for Asker {
    fn default() -> Self {
        Self { queue: Queue::default(), output: NONE, next: NONE }
    }
}

/// A virtual channel of a link at its sending end: one cache line.
#[repr(align(64))]
pub(super) struct Output {
    /// Bytes of the far buffer that are claimed.
    pub(super) used: u64,
    /// When credit is back next, `u64::MAX` if none is on its way, and how many bytes.
    pub(super) next_return: u64,
    next_bytes: u32,
    /// Who asks for it, in order.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Credit that is back later.
    returns: VecDeque<(u64, u32)>,
}

const _: () = assert!(size_of::<Output>() == 64);

impl Default for Output {
    fn default() -> Self {
        Self {
            used: 0,
            next_return: u64::MAX,
            next_bytes: 0,
            first: NONE,
            last: NONE,
            returns: VecDeque::new(),
        }
    }
}

impl Output {
    /// Takes in what is back at `now`.
    pub(super) fn settle(&mut self, now: u64) {
        while self.next_return <= now {
            self.used -= u64::from(self.next_bytes);
            (self.next_return, self.next_bytes) = self.returns.pop_front().unwrap_or((u64::MAX, 0));
        }
    }

    /// What is back by `now` is taken in first, so that little is kept.
    pub(super) fn give_back(&mut self, now: u64, time: u64, bytes: u32) {
        self.settle(now);
        if self.next_return == u64::MAX {
            (self.next_return, self.next_bytes) = (time, bytes);
            return;
        }
        debug_assert!(self.returns.back().map_or(self.next_return, |&(last, _)| last) <= time);
        self.returns.push_back((time, bytes));
    }

    /// Bytes of credit that have been given back and are not known here yet.
    pub(super) fn on_its_way(&self) -> u64 {
        let later: u64 = self.returns.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
        later + u64::from(self.next_bytes)
    }
}

/// The links of a graph, idle, and their speeds.
pub(super) fn links(graph: &Graph, settings: &Settings) -> (Vec<Speed>, Vec<Link>) {
    let mut speeds: Vec<Speed> = Vec::new();
    let links = (0..graph.links()).map(|number| {
        let link = graph.link(number);
        let bandwidth = link.wire.bandwidth;
        let known = speeds.iter().position(|s| s.bandwidth == bandwidth.bytes_per_second());
        let speed = known.unwrap_or_else(|| {
            speeds.push(Speed::new(bandwidth, settings));
            speeds.len() - 1
        });
        Link {
            from: link.from.0,
            to: link.to.0,
            latency: link.wire.latency.as_ps(),
            free_at: 0,
            crossbar_free: 0,
            wakes_at: u64::MAX,
            last_arrival: 0,
            flight: Queue::default(),
            asking: 0,
            speed: u16::try_from(speed).expect("fewer than 65,536 bandwidths"),
            turn: 0,
        }
    });
    let links = links.collect();
    (speeds, links)
}

impl Input {
    pub(super) const fn of(link: &Link) -> Self {
        Self { node: link.to, queued: 0, free_at: 0, latency: link.latency, wakes: false, turn: 0 }
    }
}
