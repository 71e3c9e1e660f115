//! One ring, everything goes up: rank `i` sends to `i + 1` only.
//!
//! The buffer is divided into `P` blocks. In reduce-scatter, step `k`, rank `r` passes its partial
//! sum of block `r − 1 − k` on; the last to arrive at `r` is block `r`. All-gather passes block
//! `r − k` on. All-to-all is store and forward: in step `k` a rank forwards the `P − 1 − k` blocks
//! that are not home yet, and keeps those in transit in the slots that its own have left, so it
//! needs no second buffer. Broadcast is a chain from rank 0 with `P` segments in the pipeline.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | reduce-scatter, all-gather | P − 1 | s·(P − 1)/P | 0 |
//! | all-reduce | 2(P − 1) | 2s·(P − 1)/P | 0 |
//! | all-to-all | P − 1 | s·(P − 1)/2 | 0 |
//! | broadcast | 2P − 2 | s | s·(P − 2)/P |
//!
//! Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", JPDC 2009; Thakur, Rabenseifner and Gropp, IJHPCA 2005 (the pipelined chain).
//!
//! Of a broadcast's steps P − 1 wait for each other, and cost a latency: the first rank sends its segments without
//! waiting for anything.
//!
//! Ignored: on a network whose links carry as much the other way, half of it is idle; see
//! [`super::ring`].
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let ring = named("ring_unidirectional")?;
//! let program = ring.program(Operation::ReduceScatter, 4);
//! assert_eq!(program.step_count(), 3);
//! assert_eq!(program.steps[1][0].sends[0].to, 2);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::{Algorithm, Alike, Cost, LinkTime, OnLinks, Pattern, saturating_steps};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "ring_unidirectional";

/// See the [module](self).
pub(crate) struct RingUnidirectional;

impl Algorithm for RingUnidirectional {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "one ring in one direction (Patarasuk and Yuan 2009)"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::ALL
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        let p = u64::from(ranks);
        let (sent, steps, fill) = match operation {
            Operation::AllReduce => ((2 * (p - 1), p), 2 * (p - 1), (0, 1)),
            Operation::ReduceScatter | Operation::AllGather => ((p - 1, p), p - 1, (0, 1)),
            Operation::AllToAll => ((p - 1, 2), p - 1, (0, 1)),
            Operation::Broadcast => ((1, 1), 2 * p - 2, (p - 2, p)),
        };
        // The first rank of a chain sends all segments without waiting.
        let latencies = if operation == Operation::Broadcast { p - 1 } else { steps };
        let (steps, latencies) = (saturating_steps(steps), saturating_steps(latencies));
        Cost { sent, steps, latencies, fill }
    }

    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        let cost = self.cost(operation, ranks);
        let twice = |(numerator, denominator): (u64, u64)| (2 * numerator, denominator);
        let time = if ranks > 2 {
            // One of the two directions does all the work.
            LinkTime { busy: twice(cost.sent), fill: twice(cost.fill) }
        } else {
            LinkTime::as_sent(&cost)
        };
        OnLinks {
            time: (kind == Kind::Ring).then_some(time),
            alike: match operation {
                Operation::AllReduce | Operation::ReduceScatter | Operation::AllGather => {
                    Some(Alike { steps: cost.steps, to: &[1], blocks: ranks })
                }
                Operation::AllToAll | Operation::Broadcast => None,
            },
            unaware: Some(Pattern::Ring),
            ..OnLinks::default()
        }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        let hops = ranks as usize - 1;
        let up = Lane { ranks, lanes: 1, lane: 0, forward: true };
        match operation {
            Operation::AllReduce => {
                let mut program = Program::empty(ranks, ranks, 2 * hops);
                up.reduce_scatter(&mut program, 0);
                up.all_gather(&mut program, hops);
                program
            }
            Operation::ReduceScatter => {
                let mut program = Program::empty(ranks, ranks, hops);
                up.reduce_scatter(&mut program, 0);
                program
            }
            Operation::AllGather => {
                let mut program = Program::empty(ranks, ranks, hops);
                up.all_gather(&mut program, 0);
                program
            }
            Operation::AllToAll => all_to_all(ranks),
            Operation::Broadcast => {
                let mut program = Program::empty(ranks, ranks, 2 * hops);
                up.chain(&mut program);
                program
            }
        }
    }
}

/// A block with `e` hops to go is in slot `rank + e`; one that is home is in its origin's slot.
/// In step `k` the slots `rank + 1 ..= rank + P − 1 − k` hold what has to go on, and the block that
/// comes home takes the last of them.
fn all_to_all(ranks: u32) -> Program {
    let mut program = Program::empty(ranks, ranks, ranks as usize - 1);
    let ring = Lane { ranks, lanes: 1, lane: 0, forward: true };
    for step in 0..ranks - 1 {
        let moving = ranks - 1 - step;
        for source in 0..ranks {
            let destination = ring.at(source, 1);
            let into = (1..=moving)
                .map(|left| ring.at(destination, if left == 1 { moving } else { left - 1 }))
                .collect();
            program.message(
                step as usize,
                (source, Blocks::Wrapped { start: ring.at(source, 1), count: moving }),
                (destination, Blocks::of(into, ranks)),
                Combine::Replace,
            );
        }
    }
    program
}

/// One of `lanes` rings that share the buffer: block `shard · lanes + lane` of each shard is its.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) ranks: u32,
    pub(super) lanes: u32,
    pub(super) lane: u32,
    /// From `i` to `i + 1`; else to `i − 1`.
    pub(super) forward: bool,
}

impl Lane {
    /// The rank `hops` further on this ring; `hops` ≤ ranks.
    pub(super) fn at(self, rank: u32, hops: u32) -> u32 {
        let (p, rank, hops) = (u64::from(self.ranks), u64::from(rank), u64::from(hops));
        let reached = if self.forward { rank + hops } else { rank + p - hops };
        u32::try_from(reached % p).expect("smaller than a u32")
    }

    /// The rank `hops` back on this ring.
    pub(super) fn before(self, rank: u32, hops: u32) -> u32 {
        Self { forward: !self.forward, ..self }.at(rank, hops)
    }

    fn block(self, shard: u32) -> Blocks {
        Blocks::Wrapped { start: shard * self.lanes + self.lane, count: 1 }
    }

    /// Steps `first ..= first + P − 2`.
    pub(super) fn reduce_scatter(self, program: &mut Program, first: usize) {
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let block = self.block(self.before(rank, step + 1));
                program.message(
                    first + step as usize,
                    (rank, block.clone()),
                    (self.at(rank, 1), block),
                    Combine::Reduce,
                );
            }
        }
    }

    /// Steps `first ..= first + P − 2`.
    pub(super) fn all_gather(self, program: &mut Program, first: usize) {
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let block = self.block(self.before(rank, step));
                program.message(
                    first + step as usize,
                    (rank, block.clone()),
                    (self.at(rank, 1), block),
                    Combine::Replace,
                );
            }
        }
    }

    /// Segment `j` crosses hop `h` in step `j + h`: steps `0 ..= 2P − 3`.
    pub(super) fn chain(self, program: &mut Program) {
        for segment in 0..self.ranks {
            for hop in 0..self.ranks - 1 {
                let block = self.block(segment);
                program.message(
                    (segment + hop) as usize,
                    (self.at(0, hop), block.clone()),
                    (self.at(0, hop + 1), block),
                    Combine::Replace,
                );
            }
        }
    }
}
