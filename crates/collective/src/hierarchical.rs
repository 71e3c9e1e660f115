//! Algorithms composed over the dimensions of a fabric: one chunk's [`Program`], in any order of
//! stages.
//!
//! NPU `r` has the coordinate `(r / (P₀⋯P_{d−1})) mod P_d` on dimension `d`; the NPUs that differ only
//! in it are a *line*, and a stage runs its algorithm on every line of its dimension at once.
//!
//! A block of the buffer is named by one digit per dimension, `B_d` values each (the blocks of that
//! dimension's algorithm). A stage on dimension `d` treats all held blocks whose digit `d` is `b` as its
//! algorithm treats block `b`:
//!
//! - reduce-scatter keeps the blocks whose digit `d` is in the rank's own shard of that dimension;
//!   all-gather regains all digits. What a rank holds is thus named by its coordinates and not by the
//!   order of the stages: all-gather's order need not mirror reduce-scatter's.
//! - all-reduce sums what is held, and keeps it: as one merged stage in place of a reduce-scatter and
//!   an all-gather that would follow each other, or on every dimension in turn.
//! - all-to-all: before its stage, digit `d` of a slot is the destination's coordinate, after it the
//!   origin's.
//! - broadcast: a line takes part once the data has reached its first rank, that is, if the rank's
//!   coordinates are 0 on all other dimensions not yet visited.
//!
//! Where a dimension's digits name shards, a digit is (shard, part of the shard), and blocks are
//! numbered with the shards of all dimensions above the parts, dimension 0 fastest. The shard of rank
//! `r` is then blocks `r·B/N .. (r + 1)·B/N`, just as in the algorithms of one dimension.
//!
//! Bytes per rank, reduce-scatter and all-gather over all dimensions with algorithms that send
//! `s(P − 1)/P`: `2s(1 − 1/N)` in any order; how they spread over the dimensions depends on it.
//!
//! Source: the multi-rail hierarchical algorithms as in Rashidi et al., "Themis", ISCA 2022;
//! broadcast and all-to-all follow the same scheme.
//!
//! Ignored: other chunks, which are independent, and that ranks run ahead of each other (a stage's
//! first step waits only for the rank's own receives, as every step does).
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named, hierarchical::compose, verify::verify};
//! use allrail_collective::Stage;
//! use allrail_core::DimensionId;
//!
//! let dimensions = [(4, named("ring")?), (3, named("halving_doubling")?)];
//! let stage = |operation, d| Stage { operation, dimension: DimensionId(d) };
//! use Operation::{AllGather as AG, AllReduce as AR, ReduceScatter as RS};
//! let stages = [stage(RS, 1), stage(RS, 0), stage(AG, 1), stage(AG, 0)];
//! let program = compose(&dimensions, &stages, AR)?;
//! assert_eq!((program.ranks, program.step_count()), (12, 2 + 3 + 2 + 3));
//! assert!(verify(&program, AR).is_ok());
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_core::{DimensionId, counted};

use crate::plan::{Stage, check_stages};
use crate::program::{Blocks, Combine};
use crate::verify::matching;
use crate::{Algorithm, CollectiveError, Operation, Program, algorithm};

/// The program of one chunk over `dimensions` (size and algorithm of each, innermost first), whose
/// `stages` run in the given order.
///
/// # Errors
/// [`CollectiveError::Plan`] if the stages do not do `operation` over all the dimensions, naming the
/// stage and the dimension, or if there are 2^32 ranks or blocks or more;
/// [`CollectiveError::Unsupported`] if an algorithm does not do its stage.
pub fn compose(
    dimensions: &[(u32, &dyn Algorithm)],
    stages: &[Stage],
    operation: Operation,
) -> Result<Program, CollectiveError> {
    let ids: Vec<DimensionId> = (0..).map(DimensionId).take(dimensions.len()).collect();
    for (id, (size, _)) in ids.iter().zip(dimensions) {
        if *size < 2 {
            let text = format!("{} has size {size}; a dimension joins 2 NPUs at least", id.name());
            return Err(CollectiveError::Plan(text));
        }
    }
    check_stages(0, stages, operation, &ids)?;
    let runs: Vec<Run> = stages
        .iter()
        .map(|stage| Run::new(*stage, dimensions[stage.dimension.index()]))
        .collect::<Result<_, _>>()?;
    let space = Space::new(dimensions, &runs)?;

    let mut program =
        Program::empty(space.ranks, space.blocks, runs.iter().map(|run| run.steps).sum());
    let mut held = vec![
        if operation == Operation::AllGather { Held::OwnShard } else { Held::Whole };
        dimensions.len()
    ];
    let mut visited = vec![false; dimensions.len()];
    let mut first_step = 0;
    for run in &runs {
        let d = run.dimension;
        for rank in (0..space.ranks).filter(|rank| space.coordinate(*rank, d) == 0) {
            let reached = (0..dimensions.len())
                .all(|e| e == d || visited[e] || space.coordinate(rank, e) == 0);
            if run.operation != Operation::Broadcast || reached {
                run.add_line(&mut program, &space, &held, rank, first_step);
            }
        }
        visited[d] = true;
        match run.operation {
            Operation::ReduceScatter => held[d] = Held::OwnShard,
            Operation::AllGather => held[d] = Held::Whole,
            Operation::AllReduce | Operation::AllToAll | Operation::Broadcast => {}
        }
        first_step += run.steps;
    }
    Ok(program)
}

/// Which digits of a dimension a rank holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Whole,
    OwnShard,
}

/// A message of a stage's algorithm: ranks are coordinates, blocks are digits.
struct LineMessage {
    step: usize,
    source: u32,
    destination: u32,
    /// (in the sender's buffer, in the receiver's).
    digits: Vec<(u32, u32)>,
    combine: Combine,
}

/// A stage, ready to run on any line.
struct Run {
    dimension: usize,
    operation: Operation,
    steps: usize,
    blocks: u32,
    messages: Vec<LineMessage>,
}

impl Run {
    fn new(
        stage: Stage,
        (size, algorithm): (u32, &dyn Algorithm),
    ) -> Result<Self, CollectiveError> {
        algorithm::check(algorithm, stage.operation, size)?;
        let program = algorithm.program(stage.operation, size);
        let mut messages = Vec::new();
        for step in 0..program.step_count() {
            let matched = matching::messages(&program, step).map_err(|violation| {
                let (tag, operation) = (algorithm.tag(), stage.operation);
                CollectiveError::Plan(format!(
                    "`{tag}` is no right program for {operation} over {size}: {violation}",
                    size = counted(size, "rank")
                ))
            })?;
            messages.extend(matched.into_iter().map(|message| {
                let from = message.send.blocks.iter(program.blocks);
                LineMessage {
                    step,
                    source: message.source,
                    destination: message.send.to,
                    digits: from.zip(message.receive.blocks.iter(program.blocks)).collect(),
                    combine: message.receive.combine,
                }
            }));
        }
        Ok(Self {
            dimension: stage.dimension.index(),
            operation: stage.operation,
            steps: program.step_count(),
            blocks: program.blocks,
            messages,
        })
    }

    /// The messages of the line that `first_rank` is the first of.
    fn add_line(
        &self,
        program: &mut Program,
        space: &Space,
        held: &[Held],
        first_rank: u32,
        first_step: usize,
    ) {
        let d = self.dimension;
        let rest = space.held_blocks(held, d, first_rank);
        for message in &self.messages {
            let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(message.digits.len() * rest.len());
            for (from, into) in &message.digits {
                let (from, into) = (space.offset(d, *from), space.offset(d, *into));
                pairs.extend(rest.iter().map(|other| (from + other, into + other)));
            }
            // Any common order will do; ascending ones are often runs.
            pairs.sort_unstable();
            let (from, into) = pairs.into_iter().unzip();
            let rank = |coordinate: u32| first_rank + coordinate * space.axes[d].rank_stride;
            program.message(
                first_step + message.step,
                (rank(message.source), Blocks::of(from, space.blocks)),
                (rank(message.destination), Blocks::of(into, space.blocks)),
                message.combine,
            );
        }
    }
}

/// Where one dimension's digit stands in the numbers of ranks and blocks.
struct Axis {
    size: u32,
    rank_stride: u32,
    /// Digits are (shard, part): `shard · parts + part`.
    shards: u32,
    parts: u32,
    shard_stride: u32,
    part_stride: u32,
}

/// All ranks and blocks of the composition.
struct Space {
    axes: Vec<Axis>,
    ranks: u32,
    blocks: u32,
}

impl Space {
    fn new(dimensions: &[(u32, &dyn Algorithm)], runs: &[Run]) -> Result<Self, CollectiveError> {
        let too_large = |what: &str| {
            CollectiveError::Plan(format!("its program would have 2^32 {what} or more"))
        };
        let mut axes = Vec::with_capacity(dimensions.len());
        let (mut ranks, mut all_shards, mut all_parts) = (1u32, 1u32, 1u32);
        for (d, (size, algorithm)) in dimensions.iter().enumerate() {
            let mut here = runs.iter().filter(|run| run.dimension == d);
            let run = here.next().expect("checked stages visit every dimension");
            assert!(
                here.all(|other| other.blocks == run.blocks),
                "`{}` divides its buffer alike for all-gather and reduce-scatter",
                algorithm.tag()
            );
            let shards = match run.operation {
                Operation::AllReduce | Operation::Broadcast => 1,
                Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll => *size,
            };
            assert!(
                run.blocks.is_multiple_of(shards),
                "`{}` divides its buffer into equal shards",
                algorithm.tag()
            );
            let parts = run.blocks / shards;
            axes.push(Axis {
                size: *size,
                rank_stride: ranks,
                shards,
                parts,
                shard_stride: all_shards,
                part_stride: all_parts,
            });
            ranks = ranks.checked_mul(*size).ok_or_else(|| too_large("ranks"))?;
            all_shards = all_shards.checked_mul(shards).ok_or_else(|| too_large("blocks"))?;
            all_parts = all_parts.checked_mul(parts).ok_or_else(|| too_large("blocks"))?;
        }
        let blocks = all_shards.checked_mul(all_parts).ok_or_else(|| too_large("blocks"))?;
        // Parts below shards.
        for axis in &mut axes {
            axis.shard_stride *= all_parts;
        }
        Ok(Self { axes, ranks, blocks })
    }

    fn coordinate(&self, rank: u32, dimension: usize) -> u32 {
        let axis = &self.axes[dimension];
        rank / axis.rank_stride % axis.size
    }

    /// What digit `digit` of `dimension` adds to a block's number.
    fn offset(&self, dimension: usize, digit: u32) -> u32 {
        let axis = &self.axes[dimension];
        digit / axis.parts * axis.shard_stride + digit % axis.parts * axis.part_stride
    }

    /// The blocks that `rank` holds, their digit of `dimension` left at 0.
    fn held_blocks(&self, held: &[Held], dimension: usize, rank: u32) -> Vec<u32> {
        let mut blocks = vec![0];
        for (e, axis) in self.axes.iter().enumerate().filter(|(e, _)| *e != dimension) {
            let digits = match held[e] {
                Held::Whole => 0..axis.shards * axis.parts,
                Held::OwnShard => {
                    let first = self.coordinate(rank, e) * axis.parts;
                    first..first + axis.parts
                }
            };
            blocks = digits
                .flat_map(|digit| blocks.iter().map(move |block| block + self.offset(e, digit)))
                .collect();
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::named;
    use crate::verify::{shard, verify};

    fn stage(operation: Operation, d: u32) -> Stage {
        Stage { operation, dimension: DimensionId(d) }
    }

    fn rings(sizes: &[u32]) -> Vec<(u32, &'static dyn Algorithm)> {
        sizes.iter().map(|size| (*size, named("ring").expect("known"))).collect()
    }

    #[test]
    fn the_last_stage_sums_the_ranks_own_contiguous_shard() {
        use Operation::ReduceScatter as RS;
        for stages in [[stage(RS, 0), stage(RS, 1)], [stage(RS, 1), stage(RS, 0)]] {
            let program = compose(&rings(&[2, 3]), &stages, RS).expect("right");
            assert!(verify(&program, RS).is_ok());
            for (rank, steps) in (0..).zip(&program.steps) {
                let last = steps.last().expect("some steps");
                for receive in &last.receives {
                    let own = shard(rank, 6, program.blocks);
                    assert!(receive.blocks.iter(program.blocks).all(|block| own.contains(&block)));
                }
            }
        }
    }

    #[test]
    fn what_is_not_the_operation_is_refused_with_stage_and_dimension() {
        use Operation::{AllGather as AG, AllReduce as AR, ReduceScatter as RS};
        let refused = |stages: &[Stage], operation| {
            compose(&rings(&[2, 3]), stages, operation).expect_err("refused").to_string()
        };
        let twice = refused(&[stage(RS, 0), stage(RS, 0)], RS);
        assert!(twice.contains("stage 1") && twice.contains("dim1"), "{twice}");
        let lost = refused(&[stage(RS, 0), stage(RS, 1), stage(AG, 1)], AR);
        assert!(lost.contains("all_gather") && lost.contains("dim1"), "{lost}");
        let beyond = refused(&[stage(RS, 0), stage(RS, 2)], RS);
        assert!(beyond.contains("dim3"), "{beyond}");
        let other = refused(&[stage(RS, 0), stage(AG, 1)], RS);
        assert!(other.contains("all_gather") && other.contains("dim2"), "{other}");
    }

    #[test]
    fn an_algorithm_that_does_not_do_its_stage_is_refused() {
        let dimensions = [(4, named("double_binary_tree").expect("known"))];
        let error = compose(&dimensions, &[stage(Operation::AllGather, 0)], Operation::AllGather);
        assert!(matches!(error, Err(CollectiveError::Unsupported { .. })));
    }

    #[test]
    fn sizes_that_make_no_program_are_refused() {
        use Operation::AllReduce as AR;
        let error = compose(&rings(&[1]), &[stage(AR, 0)], AR).expect_err("refused").to_string();
        assert!(error.contains("dim1 has size 1"), "{error}");
        let stages: Vec<Stage> = (0..32).map(|d| stage(AR, d)).collect();
        let error = compose(&rings(&[2; 32]), &stages, AR).expect_err("refused").to_string();
        assert!(error.contains("2^32"), "{error}");
    }
}
