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

mod orders;
mod ways;

use allrail_core::Time;
use allrail_workload::parallelism::slot::Slot;
use allrail_workload::{Memory, Outline, Pass, Work};
use serde::Serialize;

use crate::SimulateError;
use crate::scenario::NetworkModelKind;
use crate::scenario::TrainingScenario;
use crate::training::outcome::result::MemoryResult;
use orders::Orders;
use ways::{NONE, Ways, after, costs, handed, owners, ways};

/// What is known of a step that was not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Of the NPU that needs most.
    pub memory: Memory,
    /// No simulated step is shorter; `None` where nothing can be said, or it does not fit and must.
    pub step: Option<Time>,
}

/// The same for other programs.
#[derive(Clone, Debug, Serialize)]
pub struct BoundResult {
    /// Of the NPU that needs most.
    pub memory_per_npu_bytes: u64,
    /// The same by kind, what it has, and whether that is enough.
    pub memory: MemoryResult,
    /// No simulated step is shorter, µs.
    pub bound_step_time_us: Option<f64>,
}

impl From<Bound> for BoundResult {
    fn from(bound: Bound) -> Self {
        Self {
            memory_per_npu_bytes: bound.memory.total().count(),
            memory: bound.memory.into(),
            bound_step_time_us: bound.step.map(Time::as_us),
        }
    }
}

/// Bounds a step from below.
///
/// # Errors
/// As the simulation would, of its workload.
pub fn bound(scenario: &TrainingScenario) -> Result<Bound, SimulateError> {
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let workload = &scenario.timed_workload()?;
    if !workload.model.is_laid_out() {
        return Ok(Bound { memory: Memory::default(), step: None });
    }
    let memory = allrail_workload::memory_of(workload, &sizes)?;
    if workload.compute.must_fit && memory.fits() == Some(false) {
        return Ok(Bound { memory, step: None });
    }
    if !is_plain(scenario)? {
        return Ok(Bound { memory, step: None });
    }
    let outline = allrail_workload::outline(workload, &sizes)?;
    Ok(Bound { memory, step: Some(Costs::of(&outline, scenario)?.step()) })
}

/// Whether the argument holds: see the module.
fn is_plain(scenario: &TrainingScenario) -> Result<bool, SimulateError> {
    let (workload, parameters) = (&scenario.job.workload, scenario.tensor());
    let parallelism = &workload.parallelism;
    Ok(scenario.network_model == NetworkModelKind::Dims
        && scenario.job.what_if.is_none()
        && scenario.schedule.coordination.is_none()
        && parameters.has_barrier()?
        && parameters.policy()?.reads().is_empty()
        && parameters.backup_workers == 0
        && workload.iterations > 1
        && workload.lag == 0
        && workload.parallelism.schedule.flushes()
        && workload.every == 1
        && workload.stragglers.is_empty()
        && workload.jitter.is_none()
        && workload.slow_links.is_none()
        && workload.compression.is_none()
        && workload.sparse.is_empty()
        && parallelism.overlap_gradients)
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
