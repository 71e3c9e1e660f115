//! A collective of a training step as the messages of its algorithm, on a graph.
//!
//! An all-reduce is one of `allrail_collective::grid` over the
//! process group's ranks in a grid, or done by switches that sum (`in_network`, in `flows`); reduce-scatter and all-gather are each half of a ring's all-reduce;
//! an all-to-all sends to everyone at once (`direct`) or step by step (`pairwise`); a broadcast is
//! a double binary tree.

use std::sync::Arc;

use allrail_collective::grid::{GridAllReduce, hamiltonian};
use allrail_collective::in_network::{self, Around, SumTree};
use allrail_collective::steps::Sized as SizedProgram;
use allrail_collective::{Operation, Program, Steps, algorithm};
use allrail_core::{Bytes, FieldError, counted};
use allrail_fabric::graph::{Graph, NodeId};
use allrail_workload::Group;

use crate::SimulateError;
use crate::scenario::{Algorithms, AllToAll};
use crate::traffic::AllReduce;

/// Where a process group is, and whether switches sum there.
pub(super) struct Switches<'a> {
    /// The NPU of each rank.
    pub(super) npus: &'a [NodeId],
    /// The network, if they do.
    pub(super) reducing: Option<&'a Graph>,
}

impl Switches<'_> {
    /// An all-reduce by the switches: messages that load every cable of a proven tree as its sums do.
    fn sum(&self, group: &Group, bytes: Bytes) -> Result<Arc<dyn Steps>, SimulateError> {
        let graph = self.reducing.ok_or_else(|| SimulateError::Field(FieldError::new("messages.algorithms.all_reduce", format!("{} in group `{}`", in_network::TAG, group.name), "the switches do not reduce", "write `in_network_reduction: true` in a fabric whose NPUs hang below switches, and \
                   `network_model: flows`; elsewhere take `rings`")))?;
        let tree = SumTree::over(graph, self.npus)
            .map_err(|error| explain(group, in_network::TAG, &error.into()))?;
        Ok(Arc::new(Around::new(&tree, bytes)))
    }
}

/// A collective over a group on a graph.
pub(super) fn on_graph(
    algorithms: &Algorithms,
    group: &Group,
    on: &Switches<'_>,
    operation: Operation,
    bytes: Bytes,
) -> Result<Arc<dyn Steps>, SimulateError> {
    let tag = algorithms.groups.get(&group.name).unwrap_or(&algorithms.all_reduce);
    let ranks = u32::try_from(on.npus.len()).expect("fewer than 2^32 ranks");
    let shape = shape(algorithms, group, ranks)?;
    let named = AllReduce::named(tag).map_err(|error| explain(group, tag, &error))?;
    let of_grid = |algorithm: &dyn GridAllReduce| -> Result<Arc<dyn Steps>, SimulateError> {
        let ([rows, columns], tag) = (shape, algorithm.tag());
        algorithm.check(rows, columns).map_err(|error| explain(group, tag, &error.into()))?;
        Ok(algorithm.steps(rows, columns, bytes).into())
    };
    Ok(match operation {
        Operation::AllReduce => match named {
            AllReduce::Grid(algorithm) => of_grid(algorithm)?,
            AllReduce::InNetwork => on.sum(group, bytes)?,
        },
        Operation::ReduceScatter | Operation::AllGather => {
            Arc::new(Half { whole: of_grid(named.halves())? })
        }
        Operation::AllToAll => {
            let bytes = Bytes::new(bytes.count().div_ceil(u64::from(ranks)));
            Arc::new(Exchange { ranks, bytes, how: algorithms.all_to_all })
        }
        Operation::Broadcast => {
            let tree = algorithm::named("double_binary_tree")?;
            let order = hamiltonian::cycle(shape[0], shape[1]);
            let program = tree.program(Operation::Broadcast, ranks).relabelled(&order);
            let block = Bytes::new(bytes.count().div_ceil(u64::from(program.blocks)));
            Arc::new(Owned { program, block })
        }
    })
}

fn explain(group: &Group, tag: &str, error: &SimulateError) -> SimulateError {
    let report = error.report();
    SimulateError::Field(FieldError::new(
        "messages.algorithms.all_reduce",
        format!("{tag} in group `{}`", group.name),
        report.why,
        report.hint,
    ))
}

/// Rows and columns of a group's ranks.
fn shape(algorithms: &Algorithms, group: &Group, ranks: u32) -> Result<[u32; 2], SimulateError> {
    if let Some(&[rows, columns]) = algorithms.shapes.get(&group.name) {
        if u64::from(rows) * u64::from(columns) != u64::from(ranks) {
            return Err(FieldError::new(
                format!("messages.algorithms.shapes.{}", group.name),
                format!("[{rows}, {columns}]"),
                format!(
                    "its product is not the {ranks} of a process group",
                    ranks = counted(ranks, "rank")
                ),
                "give rows and columns whose product is",
            )
            .into());
        }
        return Ok([rows, columns]);
    }
    let sizes: Vec<u32> = group.parts.iter().map(|p| p.size).filter(|size| *size > 1).collect();
    if let [columns, rest @ ..] = sizes.as_slice()
        && !rest.is_empty()
    {
        return Ok([rest.iter().product(), *columns]);
    }
    let rows = (1..=ranks.isqrt()).rev().find(|rows| ranks.is_multiple_of(*rows)).unwrap_or(1);
    Ok([rows, ranks / rows])
}

/// The first half of an all-reduce on a ring: as many messages as its reduce-scatter, or gather.
struct Half {
    whole: Arc<dyn Steps>,
}

impl Steps for Half {
    fn ranks(&self) -> u32 {
        self.whole.ranks()
    }

    fn steps(&self) -> u32 {
        self.whole.steps() / 2
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        self.whole.sends(rank, step, out);
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        self.whole.expected(rank, step)
    }

    fn alike(&self) -> Vec<std::ops::Range<u32>> {
        std::iter::once(0..self.steps()).filter(|run| run.len() > 1).collect()
    }
}

/// Everyone's shards to everyone.
struct Exchange {
    ranks: u32,
    bytes: Bytes,
    how: AllToAll,
}

impl Exchange {
    fn direct(&self) -> bool {
        self.how == AllToAll::Direct
    }
}

impl Steps for Exchange {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn steps(&self) -> u32 {
        if self.direct() { 1 } else { self.ranks - 1 }
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        let shifts = if self.direct() { 1..self.ranks } else { step + 1..step + 2 };
        out.extend(shifts.map(|shift| ((rank + shift) % self.ranks, self.bytes)));
    }

    fn expected(&self, _: u32, _: u32) -> u32 {
        if self.direct() { self.ranks - 1 } else { 1 }
    }
}

/// A program with the size of its blocks.
struct Owned {
    program: Program,
    block: Bytes,
}

impl Owned {
    fn sized(&self) -> SizedProgram<'_> {
        SizedProgram { program: &self.program, block: self.block }
    }
}

impl Steps for Owned {
    fn ranks(&self) -> u32 {
        self.program.ranks
    }

    fn steps(&self) -> u32 {
        self.sized().steps()
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        self.sized().sends(rank, step, out);
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        self.sized().expected(rank, step)
    }
}
