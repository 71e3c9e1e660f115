//! What a driver is given and what it gives back.

use allrail_collective::CollectivePlan;
use allrail_core::Time;
use allrail_schedule::queue::Order;

use crate::lowering::StageAt;

/// A stage of actor 0, as it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which.
    pub at: StageAt,
    /// When its dimension chose it.
    pub start: Time,
    /// When its last byte had left.
    pub end: Time,
    /// When it was over.
    pub finish: Time,
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When each collective was over on every actor.
    pub finish: Vec<Time>,
    /// The stages of actor 0 in the order in which they started.
    pub spans: Vec<Span>,
    /// Transfers submitted.
    pub transfers: u64,
    /// For every actor and dimension, the bytes sent (`links` only).
    pub sent: Vec<u64>,
}

/// What is run, beside the world.
pub struct Job<'a> {
    /// One plan per collective.
    pub plans: &'a [CollectivePlan],
    /// When each is issued.
    pub starts: &'a [Time],
    /// Higher goes first.
    pub priorities: &'a [i64],
    /// How dimensions choose.
    pub order: Order,
    /// How many stages a dimension runs at once.
    pub active_chunks: Option<u32>,
    /// How long an endpoint takes over every step, and once more over a stage; the links go on.
    pub endpoint_delay: Time,
    /// Whether spans are kept.
    pub timeline: bool,
}
