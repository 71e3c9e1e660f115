//! `ecmp`: all packets between two NPUs take one shortest path, which is drawn.
//!
//! What switches do that hash addresses. Two pairs that draw the same link share it to the end.

use allrail_fabric::routing::Hop;

use super::{Fork, PathChoice, keep_shortest};

pub(super) struct Ecmp;

impl PathChoice for Ecmp {
    fn tag(&self) -> &'static str {
        "ecmp"
    }

    fn about(&self) -> &'static str {
        "one shortest path for all packets between two NPUs, drawn by the seed"
    }

    fn narrows(&self) -> bool {
        true
    }

    fn spreads(&self) -> bool {
        false
    }

    fn narrow(&self, packet: &Fork, hops: &mut Vec<Hop>) {
        keep_shortest(hops);
        let taken = (packet.draw(0) % hops.len() as u64) as usize;
        hops.swap(0, taken);
        hops.truncate(1);
    }
}
