//! `flowlet`: as `ecmp`, but a flow may take another path after a gap (`LetFlow`, NSDI'17).
//!
//! A flow is all that goes from one NPU to another. Where several shortest paths go on, its packets follow
//! each other over one of them, until none has come for longer than `flowlet_gap`; the next one draws again,
//! and may draw the same. The first draw is that of `ecmp`: with a gap longer than the run, this is `ecmp`.
//! A gap that is longer than two paths can differ keeps packets in their order.
//!
//! Source: Vanini et al., "Let it flow: resilient asymmetric load balancing with flowlet switching", NSDI
//! 2017. The default gap is CONGA's (Alizadeh et al., SIGCOMM 2014, 500 µs).
//!
//! Ignored: that flows which hash alike share an entry of a switch's table; here each has its own.

use std::collections::HashMap;

use allrail_core::Time;
use allrail_fabric::routing::Hop;

use super::{Fork, PathChoice, keep_shortest};

pub(super) struct Flowlet;

impl PathChoice for Flowlet {
    fn tag(&self) -> &'static str {
        "flowlet"
    }

    fn about(&self) -> &'static str {
        "one shortest path for packets between two NPUs that follow each other, drawn again after a gap"
    }

    fn narrows(&self) -> bool {
        true
    }

    fn spreads(&self) -> bool {
        false
    }

    fn by_flowlets(&self) -> bool {
        true
    }

    fn narrow(&self, packet: &Fork, hops: &mut Vec<Hop>) {
        keep_shortest(hops);
        let taken = (packet.draw(packet.flowlet) % hops.len() as u64) as usize;
        hops.swap(0, taken);
        hops.truncate(1);
    }
}

/// Node, source and destination.
type Flow = (u32, u32, u32);

/// When each flow was last seen at each node where it has a choice, and how often it has drawn there.
pub(crate) struct Flowlets {
    gap: u64,
    seen: HashMap<Flow, Seen>,
    /// What the packet that chooses would leave behind.
    chooses: Option<(Flow, Seen)>,
    drawn_again: u64,
}

#[derive(Clone, Copy)]
struct Seen {
    at: u64,
    flowlet: u32,
}

impl Flowlets {
    pub(crate) fn new(gap: Time) -> Self {
        Self { gap: gap.as_ps(), seen: HashMap::new(), chooses: None, drawn_again: 0 }
    }

    /// To which of its flow's flowlets, from 0, a packet belongs that is sent on at `now`. Nothing
    /// changes until it is ([`Flowlets::sent`]): a packet may have to choose again.
    pub(crate) fn of(&mut self, flow: Flow, now: u64) -> u32 {
        let flowlet = match self.seen.get(&flow) {
            None => 0,
            Some(seen) if now - seen.at <= self.gap => seen.flowlet,
            Some(seen) => seen.flowlet.wrapping_add(1),
        };
        self.chooses = Some((flow, Seen { at: now, flowlet }));
        flowlet
    }

    /// No packet chooses any more, or one has a single way to go.
    pub(crate) fn forget(&mut self) {
        self.chooses = None;
    }

    /// The packet that has chosen takes the hop.
    pub(crate) fn sent(&mut self) {
        let Some((flow, seen)) = self.chooses.take() else { return };
        let before = self.seen.insert(flow, seen);
        self.drawn_again += u64::from(before.is_some_and(|old| old.flowlet != seen.flowlet));
    }

    /// How often a flow has drawn again after a gap.
    pub(crate) fn drawn_again(&self) -> u64 {
        self.drawn_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flowlet_ends_where_none_comes_for_longer_than_the_gap() {
        let mut flowlets = Flowlets::new(Time::from_ps(10));
        let flow = (7, 1, 2);
        let mut sent = |at| {
            let flowlet = flowlets.of(flow, at);
            flowlets.sent();
            flowlet
        };
        // 10 apart is no gap; 11 apart is.
        assert_eq!([0, 10, 10, 20, 31, 40, 60].map(&mut sent), [0, 0, 0, 0, 1, 1, 2]);
        assert_eq!(flowlets.drawn_again(), 2);
        assert_eq!(flowlets.of((7, 1, 3), 60), 0, "another flow");
        // One that did not go leaves nothing behind.
        assert_eq!(flowlets.of(flow, 75), 3);
        flowlets.forget();
        flowlets.sent();
        assert_eq!(flowlets.of(flow, 70), 2);
    }
}
