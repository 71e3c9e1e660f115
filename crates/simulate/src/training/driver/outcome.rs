//! How a step graph is run, and what a run gives.

use allrail_core::Time;
use allrail_workload::NodeId;

use crate::coordination::Counts;
use crate::training::communicator::{Ask, Usage};
use crate::training::driver::record::{ByPass, Gap, Ran, Record};

/// How a step graph is run.
pub(crate) struct Settings<'a> {
    /// How many iterations; one at least.
    pub iterations: u32,
    /// How many of them are measured: where iterations overlap, as many more run as may be under way with the
    /// last one measured, so that it shares the network as the others do.
    pub measured: u32,
    /// Whether all nodes that wait for the previous iteration wait for all that any waits for.
    pub barrier: bool,
    /// Which of several collectives goes first where a dimension can choose.
    pub priority: Priority,
    /// How much longer than nominal a compute node takes; 1 where absent.
    pub slowness: Option<&'a dyn Fn(u32, NodeId, u32) -> f64>,
    /// How many iterations later gradients are applied.
    pub lag: u32,
    /// How many ranks an exchange of gradients does not wait for.
    pub backup: u32,
    /// Gradients, or the parameters of replicas that train apart, are exchanged in the last of every
    /// so many iterations.
    pub every: u32,
    /// Whether a player runs one communication, and one delay, after the other.
    pub in_turn: bool,
    /// Whether a send is over when its message has arrived, not when it has left.
    pub acknowledged: bool,
    /// By how much longer computing takes while gradients are exchanged.
    pub slowdown: f64,
    /// Whether compute spans are kept.
    pub timeline: bool,
}

impl Settings<'_> {
    /// Whether an iteration, from 0, exchanges.
    #[must_use]
    pub(crate) const fn exchanges(&self, iteration: u32) -> bool {
        (iteration + 1).is_multiple_of(self.every)
    }
}

/// Which communication goes first where a communicator can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    /// What was issued first.
    #[default]
    Fifo,
    /// What was issued last.
    Lifo,
    /// What the trace says, then what was issued first.
    Explicit,
    /// What a pass waits for, then gradients by the tensor scheduler's word, then what came first.
    Tensor,
}

/// What a run gave.
#[derive(Default)]
pub(crate) struct Outcome {
    /// When each iteration was over.
    pub ends: Vec<Time>,
    /// How many operations tensor schedulers had started when each iteration was over.
    pub started: Vec<u64>,
    /// What coordinators said, where there are any.
    pub talk: Option<Counts>,
    /// With backup workers: the part of all gradients, in bytes, that was averaged.
    pub averaged: Option<f64>,
    /// For each player, when its compute engine had nothing to do.
    pub gaps: Vec<Vec<Gap>>,
    /// How long each player has computed at the end of the first and of the last iteration measured.
    pub computed: (Vec<ByPass>, Vec<ByPass>),
    /// The communicator's usage at the end of the first and of the last iteration.
    pub usage: (Usage, Usage),
    /// The compute nodes as they ran: (player, node, iteration, start, end), where asked for.
    pub spans: Vec<(Ran, Time, Time)>,
    /// For tags of the communicator's spans: who asked, and for what.
    pub asked: Vec<(Ran, Ask)>,
    /// What was over last in the last iteration measured.
    pub last: Option<Ran>,
    /// What happened to the nodes of the last iterations.
    pub records: Records,
}

/// What happened to the nodes of the last iterations.
#[derive(Default)]
pub(crate) struct Records {
    pub(super) local: Vec<u32>,
    pub(super) offsets: Vec<usize>,
    pub(super) iterations: Vec<(u32, Vec<Record>)>,
}

impl Records {
    /// Of a node; `None` where it is too long ago.
    #[must_use]
    pub(crate) fn get(&self, ran: Ran) -> Option<&Record> {
        let (_, records) = self.iterations.iter().find(|(number, _)| *number == ran.iteration)?;
        let offset = *self.offsets.get(ran.player as usize)?;
        records.get(offset + *self.local.get(ran.node.index())? as usize)
    }
}
