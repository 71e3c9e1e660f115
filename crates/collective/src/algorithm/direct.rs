//! All at once: every rank sends to every other in the same step.
//!
//! The buffer is divided into `P` blocks. Reduce-scatter sends block `j` to rank `j`, which adds the
//! `P − 1` that arrive; all-gather sends one's own block to all. A rank's first message goes to the
//! next rank, its second to the one after, so that no receiver is everyone's first.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | reduce-scatter, all-gather, all-to-all | 1 | s·(P − 1)/P | 0 |
//! | all-reduce | 2 | 2s·(P − 1)/P | 0 |
//! | broadcast | 1 | s·(P − 1), all by rank 0 | 0 |
//!
//! Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005 (the linear algorithms); "direct" is
//! ASTRA-sim's name.
//!
//! Ignored: that `P − 1` messages arrive at once (incast), and their cost per message.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let program = named("direct")?.program(Operation::AllToAll, 4);
//! assert_eq!(program.steps[3][0].sends.len(), 3);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::{Algorithm, Cost, LinkTime, OnLinks, Pattern};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "direct";

/// See the [module](self).
pub struct Direct;

impl Algorithm for Direct {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "everyone sends to everyone at once"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::ALL
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        let p = u64::from(ranks);
        let (sent, steps) = match operation {
            Operation::AllReduce => ((2 * (p - 1), p), 2),
            Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll => {
                ((p - 1, p), 1)
            }
            Operation::Broadcast => ((p - 1, 1), 1),
        };
        Cost { sent, steps, latencies: steps, fill: (0, 1) }
    }

    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        let fits = kind == Kind::FullyConnected;
        OnLinks {
            // A switch takes many small messages as well as few large ones, but for their steps.
            usual: fits || (kind == Kind::Switch && operation == Operation::AllToAll),
            time: fits.then(|| LinkTime::as_sent(&self.cost(operation, ranks))),
            messages: Some(u64::from(ranks).pow(2)),
            unaware: Some(Pattern::Direct),
            ..OnLinks::default()
        }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        let steps = if operation == Operation::AllReduce { 2 } else { 1 };
        let mut program = Program::empty(ranks, ranks, steps);
        match operation {
            Operation::AllReduce => {
                reduce_scatter(&mut program, 0);
                all_gather(&mut program, 1);
            }
            Operation::ReduceScatter => reduce_scatter(&mut program, 0),
            Operation::AllGather => all_gather(&mut program, 0),
            Operation::AllToAll => {
                each_pair(&mut program, 0, Combine::Replace, |source, to| (one(to), one(source)));
            }
            Operation::Broadcast => {
                for to in 1..ranks {
                    let whole = Blocks::range(0..ranks);
                    program.message(0, (0, whole.clone()), (to, whole), Combine::Replace);
                }
            }
        }
        program
    }
}

fn reduce_scatter(program: &mut Program, step: usize) {
    each_pair(program, step, Combine::Reduce, |_, to| (one(to), one(to)));
}

fn all_gather(program: &mut Program, step: usize) {
    each_pair(program, step, Combine::Replace, |source, _| (one(source), one(source)));
}

fn one(block: u32) -> Blocks {
    Blocks::Wrapped { start: block, count: 1 }
}

/// A message from each rank to each other; `blocks` says what it carries and where that goes.
fn each_pair(
    program: &mut Program,
    step: usize,
    combine: Combine,
    blocks: impl Fn(u32, u32) -> (Blocks, Blocks),
) {
    let ranks = program.ranks;
    for source in 0..ranks {
        for to in (source + 1..ranks).chain(0..source) {
            let (from, into) = blocks(source, to);
            program.message(step, (source, from), (to, into), combine);
        }
    }
}
