//! What carries the communication of a training step.
//!
//! The driver says *what* is communicated among whom and when it may start; a communicator knows *how*:
//!
//! - `classes`: in `dims`, the stages of plans on the servers of classes of ranks;
//! - [`ranks`]: elsewhere, the messages of every rank; [`graph`]: over topologies, and where ranks are;
//! - [`servers`]: gradients over parameter servers, beside another communicator;
//! - `slow`: slow links, and which groups feel them;
//! - `choices`: which algorithms collectives run, whoever carries them.

mod choices;
pub(crate) mod classes;
pub mod graph;
pub mod ranks;
pub mod servers;
pub(crate) mod slow;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_engine::ALONE;
use allrail_schedule::tensor::Leg;

use crate::scenario::Communicators;
use crate::training::players::Players;

/// What is to be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A collective among the players of a process group, all of whom have come.
    Collective {
        /// What it does.
        operation: Operation,
        /// The buffer, as in a scenario's `collective.size`.
        bytes: Bytes,
        /// Index into the players' process groups.
        process_group: u32,
    },
    /// A message between two ranks of a process group.
    Message {
        /// How much.
        bytes: Bytes,
        /// Index into the players' process groups.
        process_group: u32,
        /// The player that sends.
        source: u32,
        /// The player that receives; in `dims` it may be the same class of ranks.
        destination: u32,
        /// One rank of the sending player, and the rank that it sends to.
        ranks: (Rank, Rank),
    },
}

impl Ask {
    /// The number of the communicator that it is for, where these share the network: each process group has
    /// one for collectives and one for messages, as PyTorch makes them.
    #[must_use]
    pub fn communicator(self, players: &Players, sharing: Communicators) -> u32 {
        let (process_group, is_message) = match self {
            Self::Collective { process_group, .. } => (process_group, 0),
            Self::Message { process_group, .. } => (process_group, 1),
        };
        match sharing {
            Communicators::Queue => ALONE,
            Communicators::Share => {
                players.process_groups[process_group as usize].group.0 << 1 | is_message
            }
        }
    }
}

/// A request with what the driver says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// What is to be carried.
    pub ask: Ask,
    /// Of one communicator's, higher goes first where it can choose.
    pub priority: i64,
    /// For how long it occupies its first server before its bytes do.
    pub overhead: Time,
    /// Comes back in its events.
    pub tag: u64,
    /// Of a gradient that goes over parameter servers: which part of it, whose, and which way.
    pub portion: Option<Portion>,
}

/// A part of a gradient that one worker exchanges with parameter servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Push, or pull.
    pub leg: Leg,
    /// Number of the worker in its process group.
    pub worker: u32,
    /// Number of the partition among the group's, in the order of the forward pass.
    pub partition: u32,
    /// Number of the iteration that it belongs to.
    pub round: u32,
}

impl Submission {
    /// Without overhead, servers or a tag.
    #[must_use]
    pub fn of(ask: Ask, priority: i64) -> Self {
        Self { ask, priority, overhead: Time::ZERO, tag: 0, portion: None }
    }
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message has left its sender.
    Sent {
        /// As submitted.
        tag: u64,
    },
    /// What a worker pushed has arrived at its servers, which answer later.
    Arrived {
        /// As submitted.
        tag: u64,
    },
    /// A message has arrived, a collective is over everywhere, or servers have answered.
    Delivered {
        /// As submitted.
        tag: u64,
    },
}

/// How busy a communicator was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// For each dimension, the time that its servers worked: a mean over the ranks; `None` where a
    /// cable may serve several dimensions.
    pub busy: Option<Vec<Time>>,
    /// For each dimension, the bytes that an NPU sent: a mean over the ranks.
    pub sent: Vec<f64>,
    /// For each link, the seconds that its bytes take it; empty where links are not known.
    pub links: Vec<f64>,
    /// The time in which anything was under way.
    pub active: Time,
}

/// Communication as it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// On whom.
    pub player: u32,
    /// On which dimension's server; none where links carry messages, whosever they are.
    pub dimension: Option<u32>,
    /// The submission's.
    pub tag: u64,
    /// When it began: on a server, when it was chosen.
    pub start: Time,
    /// When it was over: on a server, when its last byte had left.
    pub end: Time,
}

/// Carries communication in virtual time. The driver calls [`Communicator::submit`] at the time of the
/// last event it took, never earlier.
pub trait Communicator {
    /// Starts, or queues, what is asked.
    fn submit(&mut self, now: Time, submission: Submission);

    /// When something happens next.
    fn next_time(&self) -> Option<Time>;

    /// Takes the next event at `until` or before.
    fn next_event(&mut self, until: Time) -> Option<(Time, Event)>;

    /// Everything that happens at `now` has been taken in and submitted: what waits may be chosen.
    fn choose(&mut self, now: Time) {
        let _ = now;
    }

    /// Goes on by itself after [`Communicator::choose`] for as long as nothing concerns the driver, who
    /// has nothing to do before `limit`; returns the time that it has come to. It may stop at any time.
    fn run_before(&mut self, now: Time, limit: Time) -> Time {
        let _ = limit;
        now
    }

    /// How busy it has been up to `now`, what is still under way included.
    fn usage(&self, now: Time) -> Usage;

    /// Of parameter servers: how many bytes that workers pushed were summed, and how many dropped.
    fn taken(&self) -> Option<(f64, f64)> {
        None
    }

    /// The dimension that such a request keeps busy for longest, for the report; `None` where it is
    /// not known.
    fn bottleneck(&mut self, ask: Ask) -> Option<u32> {
        let _ = ask;
        None
    }

    /// The algorithms that were chosen for a dimension; none where the schedule names them.
    fn chosen(&self, dimension: DimensionId) -> &[String] {
        let _ = dimension;
        &[]
    }
}
