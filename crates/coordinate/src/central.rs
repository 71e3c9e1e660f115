//! `central`: every rank sends its requests to rank 0 each cycle; rank 0 counts them in a table,
//! and what all ranks have asked for goes back to all as a list.
//!
//! Rank 0 takes in as many lists a cycle as there are ranks, and as many requests a step as ranks ×
//! tensors. Its answer goes down a binary tree, as a broadcast of small messages does. Source: Horovod
//! without its response cache (`HOROVOD_CACHE_CAPACITY=0`).

use super::fleet::{Alone, Together};
use super::rank_zero::Machine;
use super::{CoordinationPolicy, CoordinationSpec, Coordinator, Fleet, Settings};

/// The policy.
pub struct Central;

/// Of the tree on which small messages are broadcast.
pub(super) const BROADCAST_FAN_OUT: u32 = 2;

impl CoordinationPolicy for Central {
    fn tag(&self) -> &'static str {
        "central"
    }

    fn formerly(&self) -> Option<&'static str> {
        Some("coordinator")
    }

    fn about(&self) -> &'static str {
        "all requests to rank 0 each cycle, its responses back to all (Horovod without its cache)"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle"]
    }

    fn slots(&self, _: &Settings) -> usize {
        0
    }

    fn coordinator(&self, job: &CoordinationSpec, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Alone::new(job, |shared| Machine::new(shared, rank, u32::MAX, BROADCAST_FAN_OUT)))
    }

    fn fleet(&self, job: &CoordinationSpec) -> Box<dyn Fleet> {
        Box::new(Together::new(job, |shared, rank| {
            Machine::new(shared, rank, u32::MAX, BROADCAST_FAN_OUT)
        }))
    }
}
