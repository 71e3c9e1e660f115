//! What the network model counts: packets, links, queues, latencies, order.
//!
//! A latency is that of a packet, from when its NPU takes it up (it waits for its cable then) until
//! its last byte has arrived. Percentiles come from bins that are 1/64 of their octave wide, so they
//! are at most 1.6 % too high; the largest is exact. A queue is what a virtual channel holds on credit:
//! an output queue, the wire, and the buffer at its end.

use allrail_core::{Bytes, Time};
use serde::Serialize;

use super::state::Packet;

/// What has happened so far. Serialized, bytes and times have units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Messages submitted.
    pub messages: u64,
    /// Packets made.
    pub packets: u64,
    /// Packets that have arrived.
    pub delivered: u64,
    /// Packets that lost their payload on the way, to be sent again.
    pub cut: u64,
    /// Links crossed, over all packets.
    pub packet_hops: u64,
    /// Bytes sent on each directed link, numbered as the graph does.
    pub link_bytes: Vec<Bytes>,
    /// The most that any virtual channel has held.
    pub deepest_queue: Bytes,
    /// What a link holds on average, over time and links.
    pub mean_queue: Bytes,
    /// Half of the packets take no longer.
    pub latency_p50: Time,
    /// Nine of ten take no longer.
    pub latency_p90: Time,
    /// 99 of 100 take no longer.
    pub latency_p99: Time,
    /// The longest.
    pub latency_max: Time,
    /// Packets that arrived after a later one of their message.
    pub out_of_order: u64,
    /// Messages that had such packets.
    pub reordered_messages: u64,
    /// Times that a flow has drawn its path again after a gap, at any node.
    pub flowlets: u64,
    /// The most packets that there were at once.
    pub most_at_once: u64,
}

pub(super) struct Counters {
    messages: u64,
    packets: u64,
    delivered: u64,
    /// Bytes of packets that have arrived.
    arrived: u64,
    cut: u64,
    packet_hops: u64,
    link_bytes: Vec<u64>,
    deepest: u64,
    /// Bytes times picoseconds that they were held.
    held: u128,
    latencies: Vec<u64>,
    longest: u64,
    out_of_order: u64,
    reordered: u64,
}

const SUB_BITS: u32 = 6;
const BINS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// Latencies up to 63 ps have bins of their own, then 64 bins share each octave.
const fn bin(latency: u64) -> usize {
    let octave = (u64::BITS - 1 - (latency | 1).leading_zeros()).saturating_sub(SUB_BITS);
    ((octave as usize) << SUB_BITS) + (latency >> octave) as usize
}

/// The largest latency of a bin.
const fn top(bin: usize) -> u64 {
    let octave = (bin >> SUB_BITS).saturating_sub(1);
    let first = (bin - (octave << SUB_BITS)) as u64;
    (first << octave) + ((1 << octave) - 1)
}

impl Counters {
    pub(super) fn new(links: usize) -> Self {
        Self {
            messages: 0,
            packets: 0,
            delivered: 0,
            arrived: 0,
            cut: 0,
            packet_hops: 0,
            link_bytes: vec![0; links],
            deepest: 0,
            held: 0,
            latencies: vec![0; BINS],
            longest: 0,
            out_of_order: 0,
            reordered: 0,
        }
    }

    /// Bytes sent on each directed link.
    pub(super) fn link_bytes(&self) -> &[u64] {
        &self.link_bytes
    }

    pub(super) fn submits(&mut self) {
        self.messages += 1;
    }

    pub(super) fn makes(&mut self) {
        self.packets += 1;
    }

    pub(super) fn sends(&mut self, link: u32, packet: &Packet) {
        self.packet_hops += 1;
        self.link_bytes[link as usize] += u64::from(packet.bytes);
    }

    pub(super) fn cuts(&mut self) {
        self.cut += 1;
    }

    pub(super) fn holds(&mut self, bytes: u64) {
        self.deepest = self.deepest.max(bytes);
    }

    pub(super) fn held(&mut self, bytes: u64, time: u64) {
        self.held += u128::from(bytes) * u128::from(time);
    }

    pub(super) const fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(super) fn delivers(&mut self, bytes: u32, latency: u64, late: bool, first: bool) {
        self.delivered += 1;
        self.arrived += u64::from(bytes);
        self.latencies[bin(latency)] += 1;
        self.longest = self.longest.max(latency);
        self.out_of_order += u64::from(late);
        self.reordered += u64::from(first);
    }

    /// Packets that have been made and have not arrived.
    pub(super) const fn inside(&self) -> u64 {
        self.packets - self.delivered - self.cut
    }

    fn percentile(&self, hundredths: u64) -> Time {
        let mut left = (self.delivered * hundredths).div_ceil(100);
        for (bin, &count) in self.latencies.iter().enumerate() {
            if left <= count {
                return Time::from_ps(top(bin).min(self.longest));
            }
            left -= count;
        }
        Time::from_ps(self.longest)
    }

    /// What has happened so far on so many links, until `now`; what the counters do not have is zero.
    pub(super) fn statistics(&self, now: u64, links: usize) -> Statistics {
        let span = u128::from(now) * links as u128;
        let mean = self.held.checked_div(span).unwrap_or(0);
        Statistics {
            messages: self.messages,
            packets: self.packets,
            delivered: self.delivered,
            cut: self.cut,
            packet_hops: self.packet_hops,
            link_bytes: self.link_bytes.iter().copied().map(Bytes::new).collect(),
            deepest_queue: Bytes::new(self.deepest),
            mean_queue: Bytes::new(u64::try_from(mean).unwrap_or(u64::MAX)),
            latency_p50: self.percentile(50),
            latency_p90: self.percentile(90),
            latency_p99: self.percentile(99),
            latency_max: Time::from_ps(self.longest),
            out_of_order: self.out_of_order,
            reordered_messages: self.reordered,
            flowlets: 0,
            most_at_once: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_latency_is_in_its_bin(latency in any::<u64>(), shift in 0u32..64) {
            let latency = latency >> shift;
            let bin = bin(latency);
            prop_assert!(bin < BINS);
            prop_assert!(top(bin) >= latency && top(bin) - latency <= latency / 64);
            prop_assert!(bin == 0 || top(bin - 1) < latency);
        }
    }
}
