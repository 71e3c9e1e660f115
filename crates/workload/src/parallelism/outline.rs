//! A step in outline: every kind of pass once, instead of every microbatch.
//!
//! All microbatches run alike through a piece of the model. So what a step computes and exchanges is in the
//! nodes of one forward and one backward pass of each piece, made by the code that makes the whole graph, and
//! in the order in which positions run them. Whoever needs no simulation (a bound, a search) reads it in a
//! thousandth of the time.
//!
//! Where a schedule runs backward passes both whole and in two parts (`dual_pipe`), there is one of either.

use std::ops::Range;

use allrail_core::FieldError;

use super::emit::Emitter;
use super::gradients::Pending;
use super::passes::Handed;
use super::planner;
use super::slot::{Slot, Turn};
use crate::graph::StepGraph;
use crate::spec::Workload;
use crate::throughput::StepWork;

/// See the module.
#[derive(Clone, Debug)]
pub struct Outline {
    /// What a whole step does.
    pub work: StepWork,
    /// The nodes of one microbatch, and of gradients and updates.
    pub graph: StepGraph,
    /// Which nodes of it are which pass.
    pub passes: Vec<PassNodes>,
    /// The passes of every position, in order, of all microbatches.
    pub orders: Vec<Vec<Slot>>,
    /// How many microbatches there are.
    pub microbatches: u32,
    /// Into how many pieces the model is cut.
    pub pieces: u32,
    /// How often gradients travel in a step.
    pub reductions: u32,
}

/// The nodes of a pass in the graph of an outline.
#[derive(Clone, Debug)]
pub struct PassNodes {
    /// Which pass; its microbatch is a number within the outline.
    pub slot: Slot,
    /// Where it runs.
    pub position: u32,
    /// The places of its nodes; a receive stands with its send, in the pass that sends.
    pub nodes: Range<u32>,
    /// Whether the gradients of the piece travel behind it.
    pub leaves: bool,
}

/// A workload's step in outline, on a fabric with dimensions of these sizes.
///
/// # Errors
/// As for [`super::build`], but that it may not fit.
pub fn outline(workload: &Workload, sizes: &[u32]) -> Result<Outline, FieldError> {
    crate::perturbation::check(workload, sizes)?;
    let plan = planner::plan(workload, sizes)?;
    let orders = plan.pipeline.orders();
    let mut emitter = Emitter::new(&plan);
    let (mut handed, mut pending) = (Handed::default(), Pending::default());
    let mut passes = Vec::new();
    let pieces = plan.pipeline.total_pieces();
    let kinds = kinds(&orders, pieces);
    let mut microbatch = 0;
    for direction in 0..2 {
        for (whole, apart) in [(true, false), (false, true)] {
            let ways = &kinds[direction as usize];
            // A microbatch goes through all pieces; those that never run so are not needed.
            if !ways.iter().any(|kind| (whole && kind.whole) || (apart && kind.apart)) {
                continue;
            }
            let slot = |turn: Turn, piece: u32| Slot {
                turn,
                microbatch,
                piece,
                direction,
                beside: false,
                carried: false,
            };
            let forward = (0..pieces).map(|piece| (slot(Turn::Forward, piece), false));
            let backward = (0..pieces).rev().flat_map(|piece| {
                let leaves = ways[piece as usize].ends_apart == apart;
                let turns: &[Turn] =
                    if apart { &[Turn::Inputs, Turn::Weights] } else { &[Turn::Backward] };
                turns.iter().map(move |turn| (slot(*turn, piece), leaves))
            });
            for (slot, leaves) in forward.chain(backward) {
                let leaves = leaves && slot.ends();
                let begin = emitter.builder.len();
                let done = emitter.pass(slot, leaves, &mut handed);
                let end = emitter.builder.len();
                let position = plan.pipeline.position(slot.piece, slot.direction);
                let nodes = place(begin)..place(end);
                passes.push(PassNodes { slot, position, nodes, leaves });
                if leaves {
                    emitter.gradients(position as usize, &done, None, &mut pending);
                }
            }
            microbatch += 1;
        }
    }
    emitter.updates(pending);
    emitter.close_chains();
    let graph = emitter.builder.finish()?;
    let microbatches = plan.pipeline.microbatches;
    let reductions = if plan.reduces_each() { microbatches } else { 1 };
    Ok(Outline { work: plan.work(), graph, passes, orders, microbatches, pieces, reductions })
}

fn place(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 nodes")
}

/// How the backward passes of a piece run.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    whole: bool,
    apart: bool,
    /// Whether the last of them is in two parts.
    ends_apart: bool,
}

/// By direction and piece.
fn kinds(orders: &[Vec<Slot>], pieces: u32) -> [Vec<Kind>; 2] {
    let mut kinds = [(); 2].map(|()| vec![Kind::default(); pieces as usize]);
    for slot in orders.iter().flatten().filter(|slot| slot.ends()) {
        let kind = &mut kinds[slot.direction as usize][slot.piece as usize];
        let apart = slot.turn == Turn::Weights;
        kind.whole |= !apart;
        kind.apart |= apart;
        kind.ends_apart = apart;
    }
    kinds
}
