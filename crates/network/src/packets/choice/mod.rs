//! Which of the hops that a routing allows a packet considers. One file a policy, one line in [`ALL`].
//!
//! What a policy leaves is compared by load (`switch.rs`): the least loaded is taken, of equals one that
//! is drawn. So a policy that leaves one hop decides alone, and one that leaves all lets queues decide.

mod adaptive;
mod ecmp;
mod flowlet;
mod spray;

use allrail_fabric::graph::NodeId;
use allrail_fabric::routing::Hop;

use super::policy::Listed;
pub(super) use flowlet::Flowlets;

/// A packet that has several ways on.
#[derive(Clone, Copy, Debug)]
pub struct Fork {
    /// Where it is.
    pub node: NodeId,
    /// Whence it comes.
    pub source: NodeId,
    /// Where it goes.
    pub destination: NodeId,
    /// Its place in its message.
    pub sequence: u32,
    /// Which flowlet of its flow it belongs to, here; 0 where a policy does not ask.
    pub flowlet: u32,
    /// The scenario's.
    pub seed: u64,
}

/// Called for every packet at every node with several hops.
pub trait PathChoice: Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &'static str;

    /// One line for the docs.
    fn about(&self) -> &'static str;

    /// Whether it ever leaves a hop out; else it is not asked.
    fn narrows(&self) -> bool;

    /// Whether packets of one message that follow each other take different paths.
    fn spreads(&self) -> bool {
        true
    }

    /// Whether it asks which packets of a flow follow each other without a gap.
    fn by_flowlets(&self) -> bool {
        false
    }

    /// Takes those out of `hops` that the packet must not consider; one at least stays.
    fn narrow(&self, packet: &Fork, hops: &mut Vec<Hop>);
}

/// Every policy.
pub static ALL: &[&dyn PathChoice] =
    &[&adaptive::Adaptive, &ecmp::Ecmp, &flowlet::Flowlet, &spray::Spray];

impl Listed for dyn PathChoice {
    const KEY: &'static str = "choice";

    fn all() -> &'static [&'static Self] {
        ALL
    }

    fn tag(&self) -> &'static str {
        PathChoice::tag(self)
    }

    fn about(&self) -> &'static str {
        PathChoice::about(self)
    }
}

/// The ways with the fewest links to go: policies that do not look at loads take no detour.
fn keep_shortest(hops: &mut Vec<Hop>) {
    let fewest = hops.iter().map(|hop| hop.weight).min().unwrap_or_default();
    hops.retain(|hop| hop.weight == fewest);
}

/// A number that looks drawn, the same on every machine (the finaliser of `SplitMix64`).
const fn mix(seed: u64, number: u64) -> u64 {
    let mut x = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Fork {
    /// Drawn for its pair of NPUs, where it is, and `round`.
    const fn draw(&self, round: u32) -> u64 {
        let pair = (self.source.0 as u64) << 32 | self.destination.0 as u64;
        mix(mix(self.seed, pair), (self.node.0 as u64) << 32 | round as u64)
    }
}
