//! What no simulation of a step can beat, without one.
//!
//! A step's passes are taken once each from its outline (`allrail_workload::outline`). A pass has two ways in,
//! the end of the pass before it on its position's chain of computing and what another pass hands on, and two
//! ways out; between them lies its longest path, where a communication takes what it takes on an idle network.
//! These four numbers stand for the pass in the order in which positions run all microbatches: the longest way
//! through that order, with the exchange of gradients and the updates behind it, is the bound.
//!
//! ```text
//! step ≥ min over positions q of max( way(q), load(q), way(first) − late(q) )
//! ```
//!
//! A step is what lies between the ends of two iterations. The first of them ends on some position q, whose next
//! iteration begins no earlier: so its longest way from there, and what each of its servers has to carry, lie within. Nor does the first
//! position begin before its own end, by which q's exchange is still at most `late(q)` from its own: what q
//! has to exchange, one after the other, less the drain of the pipeline.
//!
//! Every part holds for any order of a dimension's queue. It is given in `dims`, for iterations that do not reach
//! into each other and gradients that travel whole; else there is none. A test holds it against simulations.

use allrail_core::Time;
use allrail_workload::parallelism::order::{Slot, Turn};
use allrail_workload::{Memory, NodeId, Outline, Pass, PassNodes, Purpose, StepGraph, Work};
use serde::Serialize;

use crate::SimulateError;
use crate::scenario::WorldKind;
use crate::training::communicator::Ask;
use crate::training::communicator::classes::{Alone, ClassCommunicator, Idealisation};
use crate::training::players::Players;
use crate::training::scenario::TrainingScenario;

/// What is known of a step that was not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Of the NPU that needs most.
    pub memory: Memory,
    /// No simulated step is shorter; `None` where nothing can be said.
    pub step: Option<Time>,
}

/// The same for other programs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BoundResult {
    /// Of the NPU that needs most.
    pub memory_per_npu_bytes: u64,
    /// What an NPU has, where known.
    pub capacity_bytes: Option<u64>,
    /// No simulated step is shorter, µs.
    pub bound_step_time_us: Option<f64>,
}

impl From<Bound> for BoundResult {
    fn from(bound: Bound) -> Self {
        Self {
            memory_per_npu_bytes: bound.memory.total().count(),
            capacity_bytes: bound.memory.capacity.map(allrail_core::Bytes::count),
            bound_step_time_us: bound.step.map(|time| time.as_us()),
        }
    }
}

/// Bounds a step from below.
///
/// # Errors
/// As the simulation would, of its workload.
pub fn bound(scenario: &TrainingScenario) -> Result<Bound, SimulateError> {
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let workload = &scenario.workload;
    if !workload.model.is_laid_out() {
        return Ok(Bound { memory: Memory::default(), step: None });
    }
    let outline = allrail_workload::outline(workload, &sizes)?;
    let step = if is_plain(scenario)? { Some(Costs::of(&outline, scenario)?.step()) } else { None };
    Ok(Bound { memory: outline.memory, step })
}

/// Whether the argument holds: see the module.
fn is_plain(scenario: &TrainingScenario) -> Result<bool, SimulateError> {
    let (workload, parameters) = (&scenario.workload, scenario.tensor());
    let parallelism = &workload.parallelism;
    Ok(scenario.world == WorldKind::Dims
        && scenario.what_if.is_none()
        && scenario.schedule.coordination.is_none()
        && parameters.has_barrier()?
        && parameters.policy()?.reads().is_empty()
        && workload.iterations > 1
        && workload.lag == 0
        && workload.every == 1
        && workload.stragglers.is_empty()
        && workload.jitter.is_none()
        && workload.slow_links.is_none()
        && workload.compression.is_none()
        && parallelism.overlap_gradients)
}

/// No way: a sum with it stays below zero.
const NONE: i64 = i64::MIN / 4;

/// What lies between the ways into a pass and the ways out: (chain, data) × (chain, data), in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Ways {
    chain: [i64; 2],
    data: [i64; 2],
    /// To the end of everything that follows the gradients of the piece.
    tail: [i64; 2],
    /// To the first of its gradients.
    ready: [i64; 2],
    /// All that it computes.
    computes: i64,
    /// From the end of its computing to what it hands on.
    drain: i64,
    /// All that is carried behind its computing, one after the other.
    left: i64,
}

/// What a node takes at least, and at most if nothing else is going on.
#[derive(Clone, Debug, Default)]
struct Cost {
    least: i64,
    most: i64,
    busy: Vec<i64>,
}

/// What one position does.
#[derive(Clone, Debug, Default)]
struct Position {
    /// By dimension, all that its servers carry.
    busy: Vec<i64>,
    /// The same, of the exchange of gradients alone.
    exchanged: Vec<i64>,
    /// Its exchange of gradients and updates, one after the other.
    exchange: i64,
    /// Whether that waits for another position's.
    tied: bool,
}

struct Costs<'o> {
    outline: &'o Outline,
    ways: Vec<Ways>,
    /// Of each kind of pass ([`index`]) the pass of the outline.
    place: Vec<usize>,
    positions: Vec<Position>,
}

impl<'o> Costs<'o> {
    fn of(outline: &'o Outline, scenario: &TrainingScenario) -> Result<Self, SimulateError> {
        let graph = &outline.graph;
        let costs = costs(graph, scenario)?;
        let owner = owners(outline);
        let handed = handed(outline, &owner);
        let after = after(graph, &costs, &owner);
        let dimensions = scenario.fabric.dimensions.len();
        let blank = vec![0; dimensions];
        let mut positions =
            vec![
                Position { busy: blank.clone(), exchanged: blank, ..Position::default() };
                outline.orders.len()
            ];
        let mut loads = vec![vec![0i64; dimensions]; outline.passes.len()];
        for id in graph.ids() {
            let (cost, actor) = (&costs[id.index()], graph.node(id).actor.index());
            if let Some(pass) = owner[id.index()] {
                add(&mut loads[pass], &cost.busy, 1);
                continue;
            }
            let position = &mut positions[actor];
            let times = i64::from(outline.reductions);
            position.exchange += cost.most * times;
            position.tied |= matches!(graph.node(id).work, Work::Receive { .. });
            // Updates and what they gather come once, gradients as often as they travel.
            let again = if graph.node(id).pass == Pass::Update { 1 } else { times };
            add(&mut position.busy, &cost.busy, again);
            add(&mut position.exchanged, &cost.busy, 1);
        }
        let mut place = vec![usize::MAX; outline.pieces as usize * 8];
        for (i, pass) in outline.passes.iter().enumerate() {
            place[index(&pass.slot)] = i;
        }
        let mut of = Self { outline, ways: Vec::new(), place, positions };
        for (i, pass) in outline.passes.iter().enumerate() {
            of.ways.push(ways(graph, pass, &costs, &handed[i], &after));
        }
        for (position, order) in of.positions.iter_mut().zip(&outline.orders) {
            let mut counts = vec![0i64; outline.passes.len()];
            for slot in order {
                // Of a schedule with both kinds of backward passes the forward passes are alike.
                counts[of.place[index(slot)]] += 1;
            }
            for (load, count) in loads.iter().zip(counts) {
                add(&mut position.busy, load, count);
            }
        }
        Ok(of)
    }

    fn way(&self, slot: &Slot) -> &Ways {
        &self.ways[self.place[index(slot)]]
    }

    /// The bound.
    fn step(&self) -> Time {
        let [ends, first] = self.longest();
        let whole = ends[0];
        // What follows the first position's chain at least.
        let own = self.outline.orders[0].last().map_or(0, |slot| {
            let way = self.way(slot);
            (way.tail[0] - way.chain[0]).max(0)
        });
        let of = |q: usize| {
            let position = &self.positions[q];
            let load = position.busy.iter().copied().max().unwrap_or(0);
            let last = self.outline.orders[q].last();
            let left = position.exchange + last.map_or(0, |slot| self.way(slot).left);
            let late = match first[q] {
                _ if q == 0 => 0,
                _ if position.tied => {
                    let before = &self.positions[0];
                    let ahead = self.outline.orders[0].last();
                    left + before.exchange + ahead.map_or(0, |slot| self.way(slot).left) - own
                }
                drain if drain >= 0 => left - drain - own,
                _ => i64::MAX / 4,
            };
            ends[q].max(load).max(whole - late.max(0))
        };
        let least = (0..self.positions.len()).map(of).min().unwrap_or(0).max(0);
        // Rounding of parts must not lift it above a simulation.
        #[expect(clippy::cast_precision_loss, reason = "a margin")]
        Time::from_ps((least as f64 * (1.0 - 1e-6)) as u64)
    }

    /// By position: the longest way from its first pass to the end, and from the end of its chain to that of the
    /// first position's ([`NONE`] where none is known).
    fn longest(&self) -> [Vec<i64>; 2] {
        let orders = &self.outline.orders;
        let order_of = Orders::new(self.outline);
        let sequence = order_of.sequence();
        let mut rest: Vec<Vec<[i64; 2]>> =
            orders.iter().map(|order| vec![[NONE; 2]; order.len()]).collect();
        let mut drain = rest.clone();
        // Of each position the first pass that gradients follow.
        let leaves = |(q, order): (usize, &Vec<Slot>)| {
            let first = order.iter().position(|slot| slot.ends() && order_of.is_last(slot));
            let load = self.positions[q].exchanged.iter().copied().max().unwrap_or(0);
            (first.unwrap_or(usize::MAX), load)
        };
        let leaves: Vec<(usize, i64)> = orders.iter().enumerate().map(leaves).collect();
        for &(q, k) in sequence.iter().rev() {
            let slot = &orders[q][k];
            let way = self.way(slot);
            let pair = order_of.pair(q, k);
            let next = pair.1;
            let best = |known: &[Vec<[i64; 2]>]| -> i64 {
                if next >= orders[q].len() {
                    return NONE;
                }
                let (from, to) = order_of.pair(q, next);
                (from..to).map(|k| known[q][k][0]).fold(NONE, i64::max)
            };
            let (on, to_end) = (best(&rest), best(&drain));
            let taken = order_of.taker(slot);
            let (by, by_end) = taken.map_or((NONE, NONE), |(p, j)| (rest[p][j][1], drain[p][j][1]));
            let both: i64 = (pair.0..pair.1).map(|k| self.way(&orders[q][k]).computes).sum();
            let chain = [way.chain[0].max(both), way.chain[1]];
            let ends = slot.ends() && order_of.is_last(slot);
            let last = q == 0 && next >= orders[0].len();
            for i in 0..2 {
                let mut tail = if ends { way.tail[i] } else { NONE };
                if leaves[q].0 == k {
                    // From then on servers carry all that is exchanged.
                    tail = tail.max(way.ready[i] + leaves[q].1);
                }
                rest[q][k][i] = chain[i].max(chain[i] + on).max(way.data[i] + by).max(tail);
                let here = if last { chain[i] } else { NONE };
                drain[q][k][i] = here.max(chain[i] + to_end).max(way.data[i] + by_end);
            }
        }
        let firsts = (0..orders.len()).map(|q| {
            let (from, to) = order_of.pair(q, 0);
            (from..to).map(|k| rest[q][k][0]).fold(NONE, i64::max)
        });
        let lasts = (0..orders.len()).map(|q| {
            let slot = orders[q].last()?;
            let (p, j) = order_of.taker(slot)?;
            Some(self.way(slot).drain + drain[p][j][1])
        });
        [firsts.collect(), lasts.map(|found| found.unwrap_or(NONE)).collect()]
    }
}

/// The number of a kind of pass.
const fn index(slot: &Slot) -> usize {
    (slot.piece as usize * 2 + slot.direction as usize) * 4 + slot.turn as usize
}

fn add(sum: &mut [i64], more: &[i64], times: i64) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more * times;
    }
}

/// Where passes stand in the orders of positions, and who takes what they hand on.
struct Orders<'o> {
    outline: &'o Outline,
    /// By microbatch and piece: (position, place) of the forward pass, and of the backward pass.
    forward: Vec<Option<(usize, usize)>>,
    backward: Vec<Option<(usize, usize)>>,
    /// By piece and direction: the microbatch of the last pass that ends one.
    last: Vec<u32>,
}

impl<'o> Orders<'o> {
    fn new(outline: &'o Outline) -> Self {
        let passes = outline.microbatches as usize * outline.pieces as usize;
        let mut found = Self {
            outline,
            forward: vec![None; passes],
            backward: vec![None; passes],
            last: vec![u32::MAX; outline.pieces as usize * 2],
        };
        for (q, order) in outline.orders.iter().enumerate() {
            for (k, slot) in order.iter().enumerate() {
                let at = found.at(slot.microbatch, slot.piece);
                match slot.turn {
                    Turn::Forward => found.forward[at] = Some((q, k)),
                    Turn::Backward | Turn::Inputs => found.backward[at] = Some((q, k)),
                    Turn::Weights => {}
                }
                if slot.ends() {
                    found.last[(slot.piece * 2 + slot.direction) as usize] = slot.microbatch;
                }
            }
        }
        found
    }

    const fn at(&self, microbatch: u32, piece: u32) -> usize {
        microbatch as usize * self.outline.pieces as usize + piece as usize
    }

    fn is_last(&self, slot: &Slot) -> bool {
        self.last[(slot.piece * 2 + slot.direction) as usize] == slot.microbatch
    }

    /// Who waits for what a pass hands on.
    fn taker(&self, slot: &Slot) -> Option<(usize, usize)> {
        let (at, piece) = (slot.microbatch, slot.piece);
        match slot.turn {
            Turn::Forward if piece + 1 == self.outline.pieces => self.backward[self.at(at, piece)],
            Turn::Forward => self.forward[self.at(at, piece + 1)],
            Turn::Backward | Turn::Inputs => self.backward[self.at(at, piece.checked_sub(1)?)],
            Turn::Weights => None,
        }
    }

    /// From and to of the passes that run side by side with one.
    fn pair(&self, q: usize, k: usize) -> (usize, usize) {
        let order = &self.outline.orders[q];
        if order[k].beside && k + 1 < order.len() {
            return (k, k + 2);
        }
        if k > 0 && order[k - 1].beside {
            return (k - 1, k + 1);
        }
        (k, k + 1)
    }

    /// All passes, each behind what it waits for.
    fn sequence(&self) -> Vec<(usize, usize)> {
        let orders = &self.outline.orders;
        let mut next = vec![0; orders.len()];
        let mut done: Vec<Vec<bool>> =
            orders.iter().map(|order| vec![false; order.len()]).collect();
        let mut before: Vec<Vec<Option<(usize, usize)>>> =
            orders.iter().map(|order| vec![None; order.len()]).collect();
        for (q, order) in orders.iter().enumerate() {
            for (k, slot) in order.iter().enumerate() {
                if let Some((p, j)) = self.taker(slot) {
                    before[p][j] = Some((q, k));
                }
            }
        }
        let mut sequence = Vec::new();
        loop {
            let mut moved = false;
            for q in 0..orders.len() {
                while next[q] < orders[q].len() {
                    let (from, to) = self.pair(q, next[q]);
                    let ready = |k: usize| before[q][k].is_none_or(|(p, j)| done[p][j]);
                    if !(from..to).all(ready) {
                        break;
                    }
                    for k in from..to {
                        done[q][k] = true;
                        sequence.push((q, k));
                    }
                    next[q] = to;
                    moved = true;
                }
            }
            if !moved {
                return sequence;
            }
        }
    }
}

/// What every node takes.
fn costs(graph: &StepGraph, scenario: &TrainingScenario) -> Result<Vec<Cost>, SimulateError> {
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let request = scenario.request();
    let players = Players::classes(graph, &sizes)?;
    let mut network = ClassCommunicator::new(
        graph,
        &players,
        &request,
        &scenario.schedule.algorithms_by_operation,
        Idealisation::Real,
        false,
    );
    let mut costs = Vec::with_capacity(graph.len());
    for id in graph.ids() {
        let node = graph.node(id);
        // In `dims` a player is an actor.
        let player = node.actor.0;
        let ask = match node.work {
            Work::Compute { time } => {
                let time = picoseconds(time);
                costs.push(Cost { least: time, most: time, busy: Vec::new() });
                continue;
            }
            Work::Receive { .. } => {
                costs.push(Cost::default());
                continue;
            }
            Work::Collective { operation, bytes, group, .. } => Ask::Collective {
                operation,
                bytes,
                process_group: players.process_group(player, group),
            },
            Work::Send { bytes, group, peer, .. } => {
                let Some((destination, rank)) =
                    players.peer(player, &graph.groups()[group.index()], peer)
                else {
                    costs.push(Cost::default());
                    continue;
                };
                Ask::Message {
                    bytes,
                    process_group: players.process_group(player, group),
                    source: player,
                    destination,
                    ranks: (players.ranks[player as usize], rank),
                }
            }
        };
        let Alone { least, most, busy } = network.alone(ask)?;
        let busy = busy.into_iter().map(picoseconds).collect();
        costs.push(Cost { least: picoseconds(least), most: picoseconds(most), busy });
    }
    Ok(costs)
}

fn picoseconds(time: Time) -> i64 {
    i64::try_from(time.as_ps()).unwrap_or(i64::MAX / 8)
}

/// Of each node, the pass that it is part of.
fn owners(outline: &Outline) -> Vec<Option<usize>> {
    let mut owner = vec![None; outline.graph.len()];
    for (i, pass) in outline.passes.iter().enumerate() {
        for node in pass.nodes.clone() {
            owner[node as usize] = Some(i);
        }
    }
    owner
}

/// Of each pass, the nodes that hand its data on to other passes.
fn handed(outline: &Outline, owner: &[Option<usize>]) -> Vec<Vec<NodeId>> {
    let graph = &outline.graph;
    let mut handed = vec![Vec::new(); outline.passes.len()];
    for id in graph.ids() {
        let Some(own) = owner[id.index()] else { continue };
        for before in graph.after(id) {
            let Some(other) = owner[before.index()].filter(|other| *other != own) else { continue };
            match graph.node(*before).work {
                // A receive stands right behind its send.
                Work::Receive { .. } => handed[other].push(NodeId(before.0 - 1)),
                Work::Collective { purpose, .. } if purpose != Purpose::Data => {
                    handed[other].push(*before);
                }
                _ => {}
            }
        }
    }
    handed
}

/// Of each node, what follows it outside of passes: the longest way to the end.
fn after(graph: &StepGraph, costs: &[Cost], owner: &[Option<usize>]) -> Vec<i64> {
    let mut after = vec![0; graph.len()];
    let ids: Vec<NodeId> = graph.ids().collect();
    for id in ids.into_iter().rev().filter(|id| owner[id.index()].is_none()) {
        let way = costs[id.index()].least + after[id.index()];
        for before in graph.after(id) {
            after[before.index()] = after[before.index()].max(way);
        }
    }
    after
}

/// The longest paths of a pass.
fn ways(
    graph: &StepGraph,
    pass: &PassNodes,
    costs: &[Cost],
    handed: &[NodeId],
    after: &[i64],
) -> Ways {
    let start = pass.nodes.start;
    let inside = |id: NodeId| pass.nodes.contains(&id.0);
    let begins = pass.slot.turn == Turn::Forward && pass.slot.piece == 0;
    // By node: its end, counted from the end of the chain before, and from when the data is there.
    let mut ends = vec![[NONE; 2]; pass.nodes.len()];
    let (mut last, mut computes) = (None, 0);
    for place in pass.nodes.clone() {
        let id = NodeId(place);
        let node = graph.node(id);
        if node.actor.0 != pass.position {
            continue;
        }
        let mut begin = [NONE; 2];
        let mut outside = graph.after(id).is_empty();
        for before in graph.after(id) {
            if inside(*before) {
                let known = ends[(before.0 - start) as usize];
                begin = [begin[0].max(known[0]), begin[1].max(known[1])];
                continue;
            }
            outside = true;
            let is_chain = matches!(graph.node(*before).work, Work::Compute { .. });
            let of_parameters =
                matches!(graph.node(*before).work, Work::Collective { purpose: Purpose::Data, .. });
            if !is_chain && !of_parameters && !begins {
                begin[1] = begin[1].max(0);
            }
        }
        match node.work {
            Work::Compute { .. } => {
                // It waits for the chain, whatever else.
                if last.is_none() {
                    begin[0] = begin[0].max(0);
                }
                computes += costs[id.index()].least;
                last = Some(place);
            }
            // Parameters may be gathered ahead.
            Work::Collective { purpose: Purpose::Data, .. } if outside => begin = [NONE; 2],
            // What begins a microbatch follows the chain.
            _ if outside && begins => begin[0] = begin[0].max(0),
            _ => {}
        }
        let cost = costs[id.index()].least;
        ends[(place - start) as usize] = begin.map(|begin| (begin + cost).max(NONE));
    }
    let at = |place: u32| ends[(place - start) as usize];
    let chain = last.map_or([0, NONE], at);
    let out = |i: usize| {
        handed.iter().filter(|id| inside(**id)).map(|id| at(id.0)[i]).fold(NONE, i64::max)
    };
    let data = [out(0), out(1)];
    let mut tail = [NONE; 2];
    let mut drain = NONE;
    let mut left = 0;
    if let Some(last) = last {
        // What is handed on may end before the chain does: then nothing is known of it.
        drain = data[0] - chain[0];
        for place in last + 1..pass.nodes.end {
            left += costs[place as usize].most;
        }
    }
    let mut ready = [NONE; 2];
    if pass.leaves {
        let begins = |id: NodeId| after[id.index()] > 0;
        let own = pass.nodes.clone().filter(|place| begins(NodeId(*place)));
        ready = [0, 1].map(|i| own.clone().map(|place| at(place)[i]).min().unwrap_or(NONE));
        let own =
            pass.nodes.clone().filter(|place| graph.node(NodeId(*place)).actor.0 == pass.position);
        for place in own {
            for i in 0..2 {
                tail[i] = tail[i].max(at(place)[i] + after[place as usize]);
            }
        }
    }
    Ways { chain, data, tail, ready, computes, drain, left }
}
