//! `tree`: as `central`, but requests go up a tree, and a node merges the lists of its children:
//! rank 0 takes in as many lists as it has children. The answer goes down the same tree.
//!
//! Source: the hierarchical control plane of Kurth et al., SC'18 (their radix is our `fan_out`).

use super::fleet::{Alone, Shared, Together};
use super::rank_zero::Machine;
use super::{CoordinationPolicy, CoordinationSpec, Coordinator, Fleet, Settings};

/// The policy.
pub struct Tree;

impl CoordinationPolicy for Tree {
    fn tag(&self) -> &'static str {
        "tree"
    }

    fn about(&self) -> &'static str {
        "as `central`, with requests merged on their way up a tree"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle", "fan_out"]
    }

    fn slots(&self, _: &Settings) -> usize {
        0
    }

    fn coordinator(&self, job: &CoordinationSpec, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Alone::new(job, |shared| machine(shared, rank)))
    }

    fn fleet(&self, job: &CoordinationSpec) -> Box<dyn Fleet> {
        Box::new(Together::new(job, machine))
    }
}

fn machine(shared: &Shared, rank: u32) -> Machine {
    let fan_out = shared.settings.fan_out;
    Machine::new(shared, rank, fan_out, fan_out)
}
