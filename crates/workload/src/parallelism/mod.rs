//! From a model and a layout to a step graph.
//!
//! - [`spec`]: what a file says. [`layout`]: which degree of parallelism lies on which dimensions.
//! - `pieces`: where the model is cut. `costs`: the times of its layers. `plan`: all that is decided before any
//!   node, `planner` decides it.
//! - `batch`: samples of the job, of a replica, of a microbatch.
//! - [`order`]: in which order a stage runs its microbatches. [`slot`]: one of its passes.
//! - [`outline`]: every kind of pass once.
//! - `emit`, `layers`, `passes`, `gradients`: the nodes. `overlapped`: a product and its collective in parts.
//! - `unflushed`: updates of pipelines that are never flushed.
//! - `context`: tokens of a sample on several ranks.
//! - `shards`: states over replicas.
//! - [`rows`]: gradients of embedding tables as rows. `tables`: which. `gathered_rows`: their nodes.
//! - `experts`: tokens to experts and back.
//! - [`split`]: actors of their own for slow ranks.
//!
//! A replica's batch is cut into microbatches; each runs forward and backward through the pieces of
//! the model. Actors are the positions of the pipeline: all ranks of one are alike.

mod batch;
mod compressed;
mod context;
mod costs;
mod dual_pipe;
pub(crate) mod emit;
mod experts;
mod gathered_rows;
mod gradients;
mod layers;
pub mod layout;
pub mod order;
pub mod outline;
mod overlapped;
mod passes;
mod pieces;
pub(crate) mod plan;
mod planner;
pub mod rows;
mod shards;
pub mod slot;
pub mod spec;
pub mod split;
mod tables;
mod unflushed;

use crate::graph::StepGraph;
use crate::memory::{self, Memory};
use crate::models::ModelLayers;
use crate::perturbation::{Perturbation, SlowNowAndThen};
use crate::slow_links::SlowLinks;
use crate::spec::Workload;
use crate::throughput::StepWork;
use allrail_core::{FieldError, counted};
use emit::Emitter;
use gradients::Pending;
use passes::Handed;
use plan::Plan;
use slot::Slot;

/// A workload made ready for a driver.
#[derive(Clone, Debug)]
pub struct Built {
    /// One iteration.
    pub graph: StepGraph,
    /// Of the NPU that needs most.
    pub memory: Memory,
    /// The model's layers: a gradient's tensor is the place of its layer here.
    pub model: ModelLayers,
    /// By actor: what a straggler's compute times are multiplied by.
    pub slow: Vec<f64>,
    /// By actor: in which iterations its only rank is slow.
    pub slow_now_and_then: Vec<Vec<SlowNowAndThen>>,
    /// What was assumed, in words.
    pub notes: Vec<String>,
    /// What a step does, where the workload says it.
    pub work: Option<StepWork>,
}

impl Built {
    /// Of a graph that says everything itself: nothing is known of its memory.
    #[must_use]
    pub fn of_graph(graph: StepGraph) -> Self {
        let (memory, model) = (Memory::default(), ModelLayers::default());
        Self {
            graph,
            memory,
            model,
            slow: Vec::new(),
            slow_now_and_then: Vec::new(),
            notes: Vec::new(),
            work: None,
        }
    }

    /// With an actor of its own for every rank that is slow.
    ///
    /// # Errors
    /// What disturbs the workload is not what it should be.
    pub fn with_stragglers(self, workload: &Workload, sizes: &[u32]) -> Result<Self, FieldError> {
        crate::perturbation::check(workload, sizes)?;
        let (graph, (slow, slow_now_and_then)) =
            split::stragglers(self.graph, &workload.stragglers, sizes)?;
        Ok(Self { graph, slow, slow_now_and_then, ..self })
    }

    /// What disturbs it.
    #[must_use]
    pub fn perturbation(&self, workload: &Workload, seed: u64) -> Perturbation {
        let mut found = Perturbation::new(seed, workload.jitter, self.slow.clone())
            .with_now_and_then(self.slow_now_and_then.clone());
        found.slow_links = workload.slow_links.as_ref().and_then(|said| SlowLinks::new(seed, said));
        found
    }
}

/// Lays a model out over the NPUs of a fabric with dimensions of these sizes, innermost first.
///
/// # Errors
/// The layout does not fit the NPUs or the model; it does not fit the memory and must; a model that
/// is read elsewhere.
pub fn build(workload: &Workload, sizes: &[u32]) -> Result<Built, FieldError> {
    crate::perturbation::check(workload, sizes)?;
    let plan = planner::plan(workload, sizes)?;
    let orders = plan.pipeline.orders();
    let memory = memory::estimate(&plan, &orders);
    fits(workload, &memory)?;
    let graph = graph(&plan, &orders)?;
    let (graph, (slow, slow_now_and_then)) = split::stragglers(graph, &workload.stragglers, sizes)?;
    let mut notes = vec![plan.layout.words()];
    notes.extend(plan.model.notes.iter().cloned());
    notes.extend(plan.compression_notes());
    notes.extend(plan.uneven_stages());
    notes.extend(plan.idle_pieces());
    notes.extend(plan.context_notes());
    notes.extend(plan.flush_notes());
    notes.extend(plan.row_notes());
    let work = Some(plan.work());
    if let Some(tokens) = plan.model.tokens {
        notes.push(format!("{} a sample", counted(tokens, "token")));
    }
    Ok(Built { graph, memory, slow, slow_now_and_then, notes, work, model: plan.model })
}

/// What a workload's step holds of the memory of the NPU that needs most.
///
/// # Errors
/// As for [`build`], but that it may not fit.
pub fn memory_of(workload: &Workload, sizes: &[u32]) -> Result<Memory, FieldError> {
    crate::perturbation::check(workload, sizes)?;
    let plan = planner::plan(workload, sizes)?;
    Ok(memory::estimate(&plan, &plan.pipeline.orders()))
}

/// Refuses what does not fit and must.
fn fits(workload: &Workload, memory: &Memory) -> Result<(), FieldError> {
    if !workload.compute.must_fit || memory.fits() != Some(false) {
        return Ok(());
    }
    Err(FieldError::new(
        "workload.compute.must_fit",
        true,
        memory.words(),
        "cut further (`tp`, `pp`, `zero`), take a smaller batch or more microbatches",
    ))
}

/// The nodes, in an order in which everything follows what it waits for.
fn graph(plan: &Plan<'_>, orders: &[Vec<Slot>]) -> Result<StepGraph, FieldError> {
    let mut emitter = Emitter::new(plan);
    let (mut handed, mut pending) = (Handed::default(), Pending::default());
    let mut next = vec![0usize; orders.len()];
    let mut left = vec![0u32; plan.pipeline.total_pieces() as usize * 2];
    let index = |slot: Slot| (slot.piece * 2 + slot.direction) as usize;
    for slot in orders.iter().flatten().filter(|slot| slot.ends()) {
        left[index(*slot)] += 1;
    }
    loop {
        let mut moved = false;
        for (position, order) in orders.iter().enumerate() {
            // One pass at a time, so that nodes are added roughly as they will run.
            let Some(slot) = order.get(next[position]).filter(|slot| handed.ready(**slot)) else {
                continue;
            };
            let other = order.get(next[position] + 1).filter(|_| slot.beside);
            if other.is_some_and(|other| !handed.ready(*other)) {
                continue;
            }
            let mut turns = Vec::new();
            for slot in [slot].into_iter().chain(other) {
                next[position] += 1;
                left[index(*slot)] -= u32::from(slot.ends());
                let last = slot.ends() && plan.pipeline.is_last(*slot, left[index(*slot)]);
                turns.push((*slot, last, last || (slot.ends() && plan.leaves_each())));
            }
            moved = true;
            let done = match turns.as_slice() {
                [(one, _, leaves), (other, _, leave)] => {
                    emitter.both([(*one, *leaves), (*other, *leave)], &mut handed).into()
                }
                turns => {
                    turns.iter().map(|t| emitter.pass(t.0, t.2, &mut handed)).collect::<Vec<_>>()
                }
            };
            for ((slot, last, leaves), done) in turns.into_iter().zip(done) {
                if leaves && plan.updates_each() {
                    emitter.step_at_once(position, &done, slot.microbatch);
                } else if leaves {
                    let microbatch = (!last).then_some(slot.microbatch);
                    emitter.gradients(position, &done, microbatch, &mut pending);
                }
            }
        }
        if !moved {
            break;
        }
    }
    assert!(
        next.iter().zip(orders).all(|(next, order)| *next == order.len()),
        "every order of passes can be run to its end"
    );
    emitter.carry_on(&handed);
    emitter.updates(pending);
    emitter.close_chains();
    emitter.builder.finish()
}
