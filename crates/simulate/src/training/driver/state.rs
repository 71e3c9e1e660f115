//! What a run of a step graph keeps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use allrail_core::{EventQueue, Time};
use allrail_workload::{GroupId, NodeId, StepGraph};

use super::outcome::{Outcome, Settings};
use super::partly::Partly;
use super::record::{ByPass, Ran, Record};
use super::shape::Shape;
use crate::SimulateError;
use crate::training::communicator::Communicator;
use crate::training::gradients::{Step, Tensors};
use crate::training::players::Players;

/// One iteration under way, or just over.
pub(super) struct Iteration {
    pub(super) number: u32,
    /// For every player's node, how much it still waits for.
    pub(super) missing: Vec<u32>,
    /// For every player, how many nodes are not over.
    pub(super) left: Vec<u32>,
    /// For every player, how many nodes that the next iteration waits for are not over.
    pub(super) sources_left: Vec<u32>,
    /// For every player, how many nodes are not over that no exchange of gradients comes before.
    pub(super) computing_left: Vec<u32>,
    pub(super) total_left: u64,
    /// How many ranks are not through it, and whether it is over for all that are waited for.
    pub(super) ranks_left: u32,
    pub(super) ended: bool,
    pub(super) records: Vec<Record>,
}

impl Iteration {
    /// So many ranks more are through it: whether it is over now, as all but some are.
    pub(super) fn is_through(&mut self, ranks: u32, left_out: u32) -> bool {
        self.ranks_left -= ranks;
        !std::mem::replace(&mut self.ended, self.ranks_left <= left_out) && self.ended
    }
}

/// A player's compute engine.
#[derive(Default)]
pub(super) struct Engine {
    pub(super) running: Option<Ran>,
    /// Since when at this speed, what is left of it by then, and when it is over at this speed.
    pub(super) pace: (Time, Time, Time),
    /// How many exchanges of gradients are under way.
    pub(super) exchanges: u32,
    pub(super) last: Option<Ran>,
    /// What was over last of all its player's nodes.
    pub(super) over: Option<Ran>,
    pub(super) idle_since: Time,
    pub(super) ready: BinaryHeap<Reverse<(u32, NodeId)>>,
    pub(super) choosing: bool,
    /// What is run in turn: communications, then delays.
    pub(super) turns: [Turn; 2],
}

/// What of one kind a player runs one after the other.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) running: Option<Ran>,
    pub(super) ready: BinaryHeap<Reverse<(u32, NodeId)>>,
}

/// What a tag stands for.
pub(super) enum Flying {
    Collective(Vec<Ran>),
    Message { key: MessageKey, sender: Option<Ran> },
    Tensor { step: Step },
    Free,
}

/// (source, destination, group, direction, count): one message.
pub(super) type MessageKey = (u32, u32, GroupId, i32, u64);

/// Where a message and its receive meet.
#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) arrived: bool,
    pub(super) receiver: Option<Ran>,
}

pub(super) enum Timer {
    Computed { player: u32 },
    Passed { ran: Ran },
    Tensor { scheduler: u32, id: u64 },
}

/// Runs a step graph.
pub(crate) struct Driver<'a> {
    pub(super) graph: &'a StepGraph,
    pub(super) players: &'a Players,
    pub(super) communicator: &'a mut dyn Communicator,
    pub(super) tensors: Tensors,
    pub(super) settings: &'a Settings<'a>,
    pub(super) shape: Shape,
    pub(super) iterations: VecDeque<Iteration>,
    pub(super) engines: Vec<Engine>,
    /// Who has come to a collective, by (process group, iteration, place among the group's).
    pub(super) gatherings: BTreeMap<(u32, u32, u32), Vec<Ran>>,
    pub(super) mailboxes: BTreeMap<MessageKey, Mailbox>,
    /// Exchanges that do not wait for everyone.
    pub(super) partly: Partly,
    pub(super) flying: Vec<Flying>,
    pub(super) free: Vec<u64>,
    pub(super) timers: EventQueue<Timer>,
    /// Over, and not yet told to those that wait for them.
    pub(super) over: Vec<Ran>,
    pub(super) choosing: Vec<u32>,
    /// Whether something was issued in its turn since that was last looked at.
    pub(super) took_turns: bool,
    pub(super) issued: i64,
    /// The same of workers that exchange with parameter servers, by process group and number.
    pub(super) issued_apart: BTreeMap<(u32, u32), i64>,
    pub(super) nodes_done: u64,
    /// For every player, how long it has computed nodes that are over.
    pub(super) computed: Vec<ByPass>,
    pub(super) out: Outcome,
}

impl<'a> Driver<'a> {
    /// Prepares a run.
    ///
    /// # Errors
    /// A peer that does not exist; sends without receives.
    pub(crate) fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        communicator: &'a mut dyn Communicator,
        tensors: Tensors,
        settings: &'a Settings<'a>,
    ) -> Result<Self, SimulateError> {
        let shape = Shape::new(graph, players)?;
        let partly = Partly::new(graph, players, settings.backup, tensors.are_apart())?;
        let mut engines = Vec::new();
        engines.resize_with(players.len(), Engine::default);
        Ok(Self {
            graph,
            players,
            communicator,
            tensors,
            settings,
            shape,
            iterations: VecDeque::new(),
            engines,
            gatherings: BTreeMap::new(),
            mailboxes: BTreeMap::new(),
            partly,
            flying: Vec::new(),
            free: Vec::new(),
            timers: EventQueue::new(),
            over: Vec::new(),
            choosing: Vec::new(),
            took_turns: false,
            issued: 0,
            issued_apart: BTreeMap::new(),
            nodes_done: 0,
            computed: vec![ByPass::default(); players.len()],
            out: Outcome { gaps: vec![Vec::new(); players.len()], ..Outcome::default() },
        })
    }
}
