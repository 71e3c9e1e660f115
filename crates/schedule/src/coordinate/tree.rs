//! `tree`: as `coordinator`, but requests go up a tree, and a node merges the lists of its children:
//! rank 0 takes in as many lists as it has children. The answer goes down the same tree.
//!
//! Source: the hierarchical control plane of Kurth et al., SC'18 (their radix is our `fan_out`).

use super::central::Machine;
use super::{CoordinationPolicy, Coordinator, Job, Settings};

/// The policy.
pub struct Tree;

impl CoordinationPolicy for Tree {
    fn tag(&self) -> &'static str {
        "tree"
    }

    fn about(&self) -> &'static str {
        "as `coordinator`, with requests merged on their way up a tree"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle", "fan_out"]
    }

    fn slots(&self, _: &Settings) -> (usize, bool) {
        (0, true)
    }

    fn coordinator(&self, job: &Job, rank: u32) -> Box<dyn Coordinator> {
        let fan_out = job.settings.fan_out;
        Box::new(Machine::new(job, rank, fan_out, fan_out))
    }
}
