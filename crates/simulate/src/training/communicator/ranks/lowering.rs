//! What is asked, lowered: where ranks are, and what collectives are made of.
//!
//! On a fabric of dimensions, and on a topology that has them, a collective is planned on the parts of
//! dimensions of its group and is the messages of its stages ([`plan_messages`]). Where a scenario names
//! algorithms of its own for a graph, or a group is no product of dimensions, it is that algorithm's
//! messages (`lowered`), which wait for no port.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use allrail_collective::{Operation, Steps};
use allrail_core::{Bytes, Rank, Time};
use allrail_engine::{StageTask, Stages};
use allrail_fabric::graph::NodeId;
use allrail_fabric::kinds;
use allrail_fabric::{Contention, Wiring as Cables};
use allrail_schedule::Request;
use allrail_schedule::room::Share;
use allrail_workload::{Part, StepGraph};

use crate::SimulateError;
use crate::executors::lowered::{Carried, Lowered};
use crate::executors::plan_messages;
use crate::executors::programs::Programs;
use crate::training::communicator::choices::Choices;
use crate::training::communicator::ranks::algorithms::{Switches, on_graph};
use crate::training::communicator::ranks::group;
use crate::training::communicator::ranks::judged::Judged;
use crate::training::communicator::ranks::messages::{Lone, Whole, dimension};
use crate::training::communicator::ranks::steady::Steady;
use crate::training::communicator::ranks::wiring::{Latency, Wiring};
use crate::training::players::Players;

/// See the module.
pub(super) struct Lowering<'a> {
    graph: &'a StepGraph,
    pub(super) players: &'a Players,
    wiring: Wiring<'a>,
    sizes: Vec<u32>,
    known: BTreeMap<(Operation, Bytes, u32), Option<Rc<Lowered>>>,
    messages: BTreeMap<(Bytes, u32), Rc<Lowered>>,
    programs: Programs,
    pub(super) judged: Judged,
    pub(super) choices: Choices,
    /// What an endpoint takes over a message between two ranks, if not as long as over a collective's.
    pub(super) message_delay: Option<Time>,
    /// Of steady flows: how long messages are under way, and what each waits for at its ends.
    pub(super) latency: Option<(Latency<'a>, Time)>,
    /// What is added to a steady collective's end, by what it does and where, whatever its size.
    added: BTreeMap<(Operation, u32), Time>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(graph: &'a StepGraph, players: &'a Players, wiring: Wiring<'a>) -> Self {
        let sizes = match &wiring {
            Wiring::Graph { sizes, .. } => sizes.to_vec(),
            Wiring::Planned { request, .. } | Wiring::Dimensions { request, .. } => {
                request.fabric.dimensions.iter().map(|dimension| dimension.size).collect()
            }
        };
        Self {
            graph,
            players,
            wiring,
            sizes,
            known: BTreeMap::new(),
            messages: BTreeMap::new(),
            programs: Programs::default(),
            judged: Judged::default(),
            choices: Choices::default(),
            message_delay: None,
            latency: None,
            added: BTreeMap::new(),
        }
    }

    /// Whether a port carries one stage at a time.
    pub(super) fn is_exclusive(&self) -> bool {
        self.wiring.request().is_some()
    }

    /// What a collective is made of; nothing where there is nothing to send, or nobody to send it to.
    pub(super) fn collective(
        &mut self,
        operation: Operation,
        bytes: Bytes,
        process_group: u32,
    ) -> Result<Option<Rc<Lowered>>, SimulateError> {
        let held = &self.players.process_groups[process_group as usize];
        // What is added to a steady one depends on where it is.
        // So does the tree of switches that sum.
        let placed = self.latency.is_some() || self.wiring.reducing().is_some();
        let place = if placed { process_group } else { held.group.0 };
        let key = (operation, bytes, place);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let ranks = u32::try_from(held.ranks.len()).expect("fewer than 2^32 ranks");
        let group = &self.graph.groups()[held.group.index()];
        let lowered = if ranks < 2 || bytes == Bytes::default() {
            None
        } else {
            let algorithms = match &self.wiring {
                Wiring::Graph { algorithms, .. } => Some(*algorithms),
                Wiring::Planned { algorithms, .. } => group.parts.is_empty().then_some(*algorithms),
                Wiring::Dimensions { .. } => None,
            };
            let one = match &self.wiring {
                Wiring::Dimensions { request, groups: Some(groups), .. } => {
                    Some((*request, *groups)).filter(|_| (ranks as usize) < self.players.len())
                }
                _ => None,
            };
            Some(Rc::new(match (algorithms, self.wiring.request()) {
                _ if one.is_some() => {
                    let (request, groups) = one.expect("asked for");
                    let ranks = held.ranks.clone();
                    let programs = &mut self.programs;
                    group::lower(request, groups, &self.sizes, ranks, operation, bytes, programs)?
                }
                (None, Some(request)) => {
                    let (said, what) = (self.wiring.algorithms(operation), (operation, bytes));
                    let names = self.choices.names(request, said, what, (held.group, group))?;
                    let (programs, judged) = (&mut self.programs, &mut self.judged);
                    on_dimensions(request, names, &group.parts, operation, bytes, programs, judged)?
                }
                (algorithms, _) => {
                    let algorithms = algorithms.expect("a graph has them");
                    let npus: Vec<NodeId> = held.ranks.iter().map(|rank| self.npu(*rank)).collect();
                    let on = Switches { npus: &npus, reducing: self.wiring.reducing() };
                    let steps = on_graph(algorithms, group, &on, operation, bytes)?;
                    self.whole(steps, operation, bytes, process_group)
                }
            }))
        };
        self.known.insert(key, lowered.clone());
        Ok(lowered)
    }

    /// One algorithm, as one stage.
    fn whole(
        &mut self,
        steps: Arc<dyn Steps>,
        operation: Operation,
        bytes: Bytes,
        process_group: u32,
    ) -> Lowered {
        let ranks = self.players.process_groups[process_group as usize].ranks.clone();
        let mut added = Time::ZERO;
        let mut steps = steps;
        if self.latency.is_some() {
            let steady = Steady::new(steps);
            added = self.added(operation, process_group, &steady);
            steps = Arc::new(steady);
        }
        // No port is ever taken.
        let (buffer, brought, load, share) = (bytes, bytes, 0, Share::default());
        let task = StageTask { stage: 0, port: 0, operation, buffer, brought, load, share };
        let mut stages = Stages::new(Vec::new());
        stages.push([task]);
        let whole = Whole { steps, ranks, sizes: self.sizes.clone() };
        Lowered::alike(stages, Carried::Messages(Box::new(whole))).later(added)
    }

    /// A message from a rank to another that the network model joins to it, as the stage of a port.
    pub(super) fn message(&mut self, bytes: Bytes, from: Rank, to: Rank) -> Rc<Lowered> {
        let dimension = dimension(&self.sizes, from, to);
        let (exclusive, delay) = (self.is_exclusive(), self.message_delay);
        let key = (bytes, dimension);
        let (load, share) = self.on_link(dimension, bytes);
        let make = || {
            let operation = Operation::Broadcast;
            let (port, buffer, brought) = (dimension, bytes, bytes);
            let task = StageTask { stage: 0, port, operation, buffer, brought, load, share };
            let (mut sender, mut receiver) = (Stages::new(Vec::new()), Stages::new(Vec::new()));
            sender.push([task]);
            receiver.push([]);
            let lone = Lone { bytes, dimension, exclusive, delay };
            let carried = Carried::Messages(Box::new(lone));
            Rc::new(Lowered::of_kinds(vec![sender, receiver], vec![0, 1], carried))
        };
        Rc::clone(self.messages.entry(key).or_insert_with(make))
    }

    /// How long a message keeps the link of a port, in picoseconds, and what it uses of it alone.
    fn on_link(&self, dimension: u32, bytes: Bytes) -> (u64, Share) {
        let request = self.wiring.request();
        let on = request.and_then(|request| request.fabric.dimensions.get(dimension as usize));
        let known = on.and_then(|on| {
            let time = kinds::of(on.kind).link_bandwidth(on).time_for(bytes)?;
            Some((time.as_ps(), Share::of(time, time.checked_add(on.latency)?)))
        });
        known.unwrap_or_default()
    }

    /// Where a rank is.
    pub(super) fn npu(&self, rank: Rank) -> NodeId {
        self.wiring.places().map_or(NodeId(rank.0), |places| places[rank.index()])
    }

    /// How many dimensions messages may count on.
    pub(super) fn dimensions(&self) -> usize {
        self.sizes.len()
    }

    /// The ranks that a message of the job passes on its way, the last of them `to`; none where it is
    /// from `to` itself.
    pub(super) fn passed(&self, from: Rank, to: Rank) -> Vec<Rank> {
        if self.wiring.places().is_some() {
            return if from == to { Vec::new() } else { vec![to] };
        }
        let mut passed = Vec::new();
        let (mut at, mut stride) = (from.0, 1);
        for (d, size) in self.sizes.iter().enumerate() {
            let place = |rank: u32| rank / stride % size;
            if place(at) != place(to.0) {
                if self.is_alone(d) {
                    // It counts there alone.
                    return vec![to];
                }
                at = at - place(at) * stride + place(to.0) * stride;
                passed.push(Rank(at));
            }
            stride *= size;
        }
        passed
    }

    /// Whether messages share nothing on a dimension.
    fn is_alone(&self, d: usize) -> bool {
        let request = self.wiring.request();
        let dimension = request.and_then(|request| request.fabric.dimensions.get(d));
        dimension.is_some_and(|dimension| dimension.contention == Contention::None)
    }

    /// What a steady collective waits for after its last byte.
    fn added(&mut self, operation: Operation, process_group: u32, steady: &Steady) -> Time {
        if let Some(known) = self.added.get(&(operation, process_group)) {
            return *known;
        }
        let Some((mut latency, overhead)) = self.latency.take() else { return Time::ZERO };
        let ranks = &self.players.process_groups[process_group as usize].ranks;
        let added = steady.added(&mut |from, to| {
            let ends = (self.npu(ranks[from as usize]), self.npu(ranks[to as usize]));
            overhead + latency(ends.0, ends.1)
        });
        self.latency = Some((latency, overhead));
        self.added.insert((operation, process_group), added);
        added
    }
}

/// A collective over the parts of dimensions of a group. Its ranks are numbered by their coordinates
/// on the parts, the first part fastest.
fn on_dimensions(
    request: &Request,
    algorithms: Option<Vec<String>>,
    parts: &[Part],
    operation: Operation,
    bytes: Bytes,
    programs: &mut Programs,
    judged: &mut Judged,
) -> Result<Lowered, SimulateError> {
    let parts: Vec<Part> = parts.iter().filter(|part| part.size > 1).copied().collect();
    let mut fabric = request.fabric.clone();
    fabric.dimensions = parts
        .iter()
        .map(|part| {
            let mut dimension = request.fabric.dimension(part.dimension).clone();
            dimension.size = part.size;
            let among = |wiring: Cables| wiring.among([(part.size, part.stride)]);
            dimension.wiring = dimension.wiring.take().map(among);
            dimension
        })
        .collect();
    let algorithms = algorithms.map(|names| {
        let of_parts = parts.iter().map(|part| names[part.dimension.index()].clone());
        of_parts.collect::<Vec<_>>().into()
    });
    let request = &Request {
        fabric: fabric.clone(),
        operation,
        size: bytes,
        dimensions: Vec::new(),
        algorithms,
        chunks: request.chunks_of(bytes),
        ..request.clone()
    };
    let plan = judged.plan(request)?;
    let (_, works) = crate::lowering::work(&fabric, std::slice::from_ref(&plan))?;
    let ports: Vec<u32> = parts.iter().map(|part| part.dimension.0).collect();
    plan_messages::lower(&plan, &works[0], &ports, request.order, programs)
}
