//! What each job gets in the long run when all of them run at once.
//!
//! A job is one flow: whatever it sends, it sends in proportion, as its slowest message holds up all
//! others. With `L` bytes of the whole collective on a link, `B` bytes sent by an NPU, and `m` messages
//! of an NPU at a time, its weight on that link is `m · L / B`: at rate `x`, each of its messages goes
//! at `x` and each NPU sends `m · x`. Rates are max-min fair between jobs:
//!
//! ```text
//! Σ over jobs of x · weight ≤ capacity of each link;   alone: x = min over links of capacity / weight
//! ```
//!
//! That is what all-reduces come to in `flows` after some steps ([`super::events`]; a test compares
//! them, 3 % at most). It ignores latencies and the start, and takes steps that differ (`torus`,
//! all-to-all) to be spread over time, as with some buffers under way at once. An all-to-all that goes
//! shift by shift leaves links idle, alone too, and loses less to others than is said here.

use std::sync::Arc;

use allrail_core::FieldError;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::GraphTopology;
use allrail_fabric::topologies::hammingmesh::HammingMesh;
use allrail_network::flows::solver::{Entry, Solver};
use allrail_simulate::SimulateError;
use rayon::prelude::*;
use serde::Serialize;

use super::loads::Loads;
use super::work::{Work, unlike};
use crate::placement::{Numbering, Placed, VirtualGrid};

/// How a job fares. Bandwidths are what its NPUs send, as a share of their injection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobShare {
    /// Its place in the mix.
    pub job: u32,
    /// Rows and columns of boards.
    pub boards: [u32; 2],
    /// NPUs.
    pub npus: u32,
    /// What it runs.
    pub algorithm: &'static str,
    /// Bandwidth alone, on a contiguous block of an empty mesh.
    pub alone: f64,
    /// Bandwidth on its own boards if no other job ran.
    pub in_place: f64,
    /// Bandwidth with all others.
    pub together: f64,
    /// `together / alone`.
    pub share: f64,
}

/// How all jobs fare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// In the order in which they were given, without those of a single NPU.
    pub jobs: Vec<JobShare>,
    /// Of the bytes that enter trees, those that go above the leaf switches.
    pub above_leaves: f64,
}

/// What a job puts on links.
struct Weights {
    /// Links that it uses.
    entries: Arc<[Entry]>,
    /// What an NPU sends at rate 1.
    messages: f64,
}

/// Runs all jobs at once, and each alone.
///
/// # Errors
/// A message would cross an NPU that is not its job's.
pub fn shares(mesh: &HammingMesh, jobs: &[Placed], work: Work) -> Result<Shares, SimulateError> {
    let graph = mesh.build()?;
    let empty = HammingMesh { failed_boards: Vec::new(), ..mesh.clone() };
    let empty_graph = empty.build()?;
    let several: Vec<(&Placed, VirtualGrid)> = {
        let numbering = Numbering::new(mesh);
        let grids = jobs.iter().map(|job| (job, numbering.grid(job)));
        grids.filter(|(_, grid)| grid.npus.len() > 1).collect()
    };
    let weights = several
        .par_iter()
        .map(|(_, grid)| Weights::of(&graph, grid, work))
        .collect::<Result<Vec<_>, _>>()?;

    let capacities = capacities(&graph);
    let mut solver = Solver::new(&capacities);
    let ids: Vec<u32> = weights.iter().map(|of| solver.add(of.entries.clone())).collect();
    solver.update();
    let rates: Vec<f64> = ids.iter().map(|&id| solver.rate(id)).collect();

    let mut shapes: Vec<[u32; 2]> = several.iter().map(|(job, _)| shape(job)).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let (numbering, empty_capacities) = (Numbering::new(&empty), self::capacities(&empty_graph));
    let alone = shapes
        .par_iter()
        .map(|&[rows, columns]| {
            let block = (0..rows).collect();
            let block = Placed { job: 0, rows: block, columns: (0..columns).collect() };
            let weights = Weights::of(&empty_graph, &numbering.grid(&block), work)?;
            Ok(weights.messages * weights.alone(&empty_capacities))
        })
        .collect::<Result<Vec<f64>, SimulateError>>()?;

    let above_leaves = above_leaves(&graph, &weights, &rates);
    let jobs = several.iter().zip(&weights).zip(rates).map(|(((job, grid), weights), rate)| {
        // Failed neighbours on its boards there are none, so all NPUs of a job are alike.
        let injection = graph.injection(grid.npus[0]).bytes_per_second() as f64;
        let place = shapes.binary_search(&shape(job)).expect("all shapes are listed");
        let together = weights.messages * rate;
        JobShare {
            job: job.job,
            boards: shape(job),
            npus: grid.npus.len() as u32,
            algorithm: work.algorithm(grid.rows, grid.columns),
            alone: alone[place] / injection,
            in_place: weights.messages * weights.alone(&capacities) / injection,
            together: together / injection,
            share: together / alone[place],
        }
    });
    Ok(Shares { jobs: jobs.collect(), above_leaves })
}

fn shape(job: &Placed) -> [u32; 2] {
    [job.rows.len() as u32, job.columns.len() as u32]
}

/// Bytes a second of every link.
fn capacities(graph: &Graph) -> Vec<f64> {
    let bandwidth = |link| graph.link(link).wire.bandwidth.bytes_per_second() as f64;
    (0..graph.links()).map(bandwidth).collect()
}

impl Weights {
    fn of(graph: &Graph, grid: &VirtualGrid, work: Work) -> Result<Self, SimulateError> {
        let ranks = grid.npus.len();
        let mut own: Vec<u32> = grid.npus.iter().map(|npu| npu.0).collect();
        own.sort_unstable();
        let may_pass = |npu: u32| own.binary_search(&npu).is_ok();
        let mut loads = vec![0.0; graph.links() as usize];
        let mut add = {
            let (mut pushed, loads) = (Loads::new(graph), &mut loads);
            move |to: u32, messages: &[(u32, f64)]| {
                pushed.add(to, messages, &may_pass, loads).map_err(|npu| astray(to, npu))
            }
        };
        let (sent, messages) = match work {
            Work::AllToAll => {
                let mut messages = Vec::with_capacity(ranks);
                for to in &grid.npus {
                    messages.clear();
                    let others = grid.npus.iter().filter(|npu| *npu != to);
                    messages.extend(others.map(|npu| (npu.0, 1.0)));
                    add(to.0, &messages)?;
                }
                ((ranks - 1) as f64, 1.0)
            }
            Work::AllReduce => {
                let (messages, at_once) = all_reduce(grid, work);
                for to in messages.chunk_by(|a, b| a.0 == b.0) {
                    let from: Vec<(u32, f64)> =
                        to.iter().map(|&(_, n, bytes)| (n, bytes)).collect();
                    add(to[0].0, &from)?;
                }
                let all: f64 = messages.iter().map(|(.., bytes)| bytes).sum();
                (all / ranks as f64, at_once)
            }
        };
        let entries = (0..).zip(loads).filter(|&(_, load)| load > 0.0);
        let entries: Vec<Entry> =
            entries.map(|(link, load)| (link, load * messages / sent)).collect();
        Ok(Self { entries: entries.into(), messages })
    }

    /// The rate if nothing else uses the links.
    fn alone(&self, capacities: &[f64]) -> f64 {
        let of = self.entries.iter().map(|&(link, weight)| capacities[link as usize] / weight);
        of.fold(f64::INFINITY, f64::min)
    }
}

/// All messages of an all-reduce (to, from, bytes), by destination, and how many of an NPU leave at
/// once.
fn all_reduce(grid: &VirtualGrid, work: Work) -> (Vec<(u32, u32, f64)>, f64) {
    // Any size will do: only its parts count.
    let steps = work.steps(grid.rows, grid.columns, allrail_core::Bytes::new(1 << 20));
    let (mut sends, mut messages, mut at_once) = (Vec::new(), Vec::new(), 0);
    for (step, times) in unlike(&*steps) {
        for rank in 0..steps.ranks() {
            sends.clear();
            steps.sends(rank, step, &mut sends);
            at_once = sends.len().max(at_once);
            messages.extend(sends.iter().map(|&(to, bytes)| {
                let bytes = bytes.count() as f64 * f64::from(times);
                (grid.npus[to as usize].0, grid.npus[rank as usize].0, bytes)
            }));
        }
    }
    messages.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    (messages, at_once as f64)
}

fn above_leaves(graph: &Graph, weights: &[Weights], rates: &[f64]) -> f64 {
    let npus = graph.npus();
    let is_switch = |node: NodeId| node.0 >= npus;
    let is_leaf = |node: NodeId| {
        is_switch(node) && graph.neighbours(node).iter().any(|&(next, _)| !is_switch(next))
    };
    let (mut into_trees, mut above) = (0.0, 0.0);
    for (of, rate) in weights.iter().zip(rates) {
        for &(link, weight) in &*of.entries {
            let link = graph.link(link);
            if !is_switch(link.from) && is_switch(link.to) {
                into_trees += weight * rate;
            } else if is_switch(link.to) && is_leaf(link.from) {
                above += weight * rate;
            }
        }
    }
    if into_trees > 0.0 { above / into_trees } else { 0.0 }
}

fn astray(to: u32, npu: u32) -> SimulateError {
    SimulateError::Field(FieldError::new(
        "run",
        format!("a message to NPU {to}"),
        format!("its shortest path crosses NPU {npu}, which is not its job's"),
        "a tree of three levels may be longer than a way over a board of another job: take \
               larger switches",
    ))
}
