//! Recursive halving and doubling: ⌈log₂ P⌉ steps, and no more bytes than a ring.
//!
//! The buffer is divided into `P` blocks. With a power of two, reduce-scatter's partners are `P/2`,
//! then `P/4`, … apart (`rank XOR distance`), so what is exchanged is contiguous, and half as much each
//! time; all-gather is the mirror image. For any other `P` the partners are on a circulant graph: with
//! the skips `s₀ = P, sₖ₊₁ = ⌈sₖ/2⌉`, rank `r` sends its partial sums of the `sₖ − sₖ₊₁` blocks from
//! `r + sₖ₊₁` on to rank `r + sₖ₊₁`; all-gather undoes these steps in reverse order. All ranks are
//! alike. All-reduce is reduce-scatter, then all-gather. Broadcast is a binomial scatter from rank 0
//! (each holder of a range gives its upper half away), then all-gather.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | reduce-scatter, all-gather | ⌈log₂ P⌉ | s·(P − 1)/P | 0 |
//! | all-reduce | 2⌈log₂ P⌉ | 2s·(P − 1)/P | 0 |
//! | broadcast | 2⌈log₂ P⌉ | 2s·(P − 1)/P, by rank 0 | 0 |
//!
//! Source: Rabenseifner 2004 and Thakur, Rabenseifner and Gropp, IJHPCA 2005 (powers of two; broadcast
//! by scatter and all-gather is van de Geijn's); Träff, "Optimal, non-pipelined reduce-scatter and
//! allreduce algorithms", arXiv:2410.14234, 2024, after Bruck et al., IEEE TPDS 1997 (any `P`).
//!
//! Ignored: how far apart partners are; on a ring their messages cross many links.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let program = named("halving_doubling")?.program(Operation::ReduceScatter, 8);
//! let partners: Vec<u32> = program.steps[5].iter().map(|step| step.sends[0].to).collect();
//! assert_eq!(partners, [1, 7, 4]);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::{Algorithm, Cost, OnLinks, Pattern};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "halving_doubling";

/// See the [module](self).
pub(crate) struct HalvingDoubling;

impl Algorithm for HalvingDoubling {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "recursive halving and doubling (Rabenseifner 2004); any number of ranks (Träff 2024)"
    }

    fn operations(&self) -> &'static [Operation] {
        &[
            Operation::AllReduce,
            Operation::ReduceScatter,
            Operation::AllGather,
            Operation::Broadcast,
        ]
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        let (p, rounds) = (u64::from(ranks), rounds(ranks));
        let times = match operation {
            Operation::ReduceScatter | Operation::AllGather => 1,
            Operation::AllReduce | Operation::Broadcast => 2,
            Operation::AllToAll => panic!("`{TAG}` is only asked for its own operations"),
        };
        let steps = times * rounds;
        // Where a scatter's halves are uneven, who has got little begins to gather a step early.
        let early = operation == Operation::Broadcast && !ranks.is_power_of_two();
        let latencies = steps - u32::from(early);
        Cost { sent: (u64::from(times) * (p - 1), p), steps, latencies, fill: (0, 1) }
    }

    fn on_links(&self, kind: Kind, _operation: Operation, ranks: u32) -> OnLinks {
        OnLinks {
            usual: kind == Kind::Switch,
            halving: ranks.is_power_of_two(),
            unaware: Some(Pattern::HalvingDoubling),
            ..OnLinks::default()
        }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        let rounds = rounds(ranks) as usize;
        let once = matches!(operation, Operation::ReduceScatter | Operation::AllGather);
        let mut program = Program::empty(ranks, ranks, if once { rounds } else { 2 * rounds });
        match operation {
            Operation::ReduceScatter => reduce_scatter(&mut program),
            Operation::AllGather => all_gather(&mut program, 0),
            Operation::AllReduce => {
                reduce_scatter(&mut program);
                all_gather(&mut program, rounds);
            }
            Operation::Broadcast => {
                scatter(&mut program);
                all_gather(&mut program, rounds);
            }
            Operation::AllToAll => panic!("`{TAG}` is only asked for its own operations"),
        }
        program
    }
}

/// ⌈log₂ P⌉.
fn rounds(ranks: u32) -> u32 {
    (ranks - 1).checked_ilog2().map_or(0, |log| log + 1)
}

/// (`sₖ₊₁`, `sₖ − sₖ₊₁`) for each round of reduce-scatter: how far, and how many blocks.
fn skips(ranks: u32) -> Vec<(u32, u32)> {
    let mut skips = Vec::new();
    let mut skip = ranks;
    while skip > 1 {
        let next = skip.div_ceil(2);
        skips.push((next, skip - next));
        skip = next;
    }
    skips
}

fn reduce_scatter(program: &mut Program) {
    let ranks = program.ranks;
    for (step, (distance, count)) in skips(ranks).into_iter().enumerate() {
        for rank in 0..ranks {
            let (to, start) = if ranks.is_power_of_two() {
                let partner = rank ^ distance;
                (partner, partner & !(distance - 1))
            } else {
                let to = ahead(rank, distance, ranks);
                (to, to)
            };
            let blocks = Blocks::Wrapped { start, count };
            program.message(step, (rank, blocks.clone()), (to, blocks), Combine::Reduce);
        }
    }
}

/// Reduce-scatter's steps in reverse, every message the other way.
fn all_gather(program: &mut Program, first: usize) {
    let ranks = program.ranks;
    for (step, (distance, count)) in skips(ranks).into_iter().rev().enumerate() {
        for rank in 0..ranks {
            let (to, start) = if ranks.is_power_of_two() {
                (rank ^ distance, rank & !(distance - 1))
            } else {
                (ahead(rank, ranks - distance, ranks), rank)
            };
            let blocks = Blocks::Wrapped { start, count };
            program.message(first + step, (rank, blocks.clone()), (to, blocks), Combine::Replace);
        }
    }
}

/// Rank 0 keeps the larger half each time, so it is the busiest in every step.
fn scatter(program: &mut Program) {
    let mut ranges = vec![(0, program.ranks)];
    let mut step = 0;
    while ranges.iter().any(|(start, end)| end - start > 1) {
        let mut halves = Vec::with_capacity(2 * ranges.len());
        for (start, end) in ranges {
            let middle = start + (end - start).div_ceil(2);
            if middle < end {
                let blocks = Blocks::range(middle..end);
                program.message(step, (start, blocks.clone()), (middle, blocks), Combine::Replace);
                halves.push((middle, end));
            }
            halves.push((start, middle));
        }
        ranges = halves;
        step += 1;
    }
}

fn ahead(rank: u32, by: u32, ranks: u32) -> u32 {
    u32::try_from((u64::from(rank) + u64::from(by)) % u64::from(ranks)).expect("smaller than a u32")
}
