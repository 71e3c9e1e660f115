//! Two counter-rotating rings, each with half of the data, so that links are used both ways.
//!
//! The buffer is divided into `2P` blocks; shard `i` is blocks `2i` (goes up) and `2i + 1` (goes
//! down). Reduce-scatter, all-gather and broadcast are those of [`super::ring_unidirectional`], once
//! per direction. All-to-all sends every block the shorter way round, store and forward; with an even
//! number of ranks the block for the opposite rank goes half up, half down. What is in transit waits
//! in the slots that a rank's own blocks have left. Broadcast is two chains from rank 0, one up and
//! one down, each with `P` segments of its half in the pipeline.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | reduce-scatter, all-gather | P − 1 | s·(P − 1)/P | 0 |
//! | all-reduce | 2(P − 1) | 2s·(P − 1)/P | 0 |
//! | all-to-all | ⌊P/2⌋ | s·⌊P²/4⌋/P | 0 |
//! | broadcast | 2P − 2 | s | s·(P − 2 + ⌊P/2⌋)/2P; P = 2: 0, P = 3: s/6 |
//!
//! Each step costs a latency, but for one of a broadcast over an even number of ranks.
//!
//! (While broadcast's pipeline runs dry, ⌊P/2⌋ steps still have a rank that sends both ways.)
//!
//! Source: the rings of [`super::ring_unidirectional`], both ways at once, as on a torus and in
//! ASTRA-sim's bidirectional ring.
//!
//! Ignored: with two ranks both neighbours are the same rank, which then gets two messages a step.
//! `fill` counts bytes per rank; where each direction has its own links, a step of broadcast's run-out
//! that uses one direction lasts as long as one that uses both.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let cost = named("ring")?.cost(Operation::AllToAll, 8);
//! assert_eq!((cost.sent, cost.steps), ((16, 8), 4));
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::ring_unidirectional::Lane;
use super::{Algorithm, Alike, Cost, LinkTime, OnLinks, Pattern, saturating_steps};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "ring";

/// See the [module](self).
pub struct Ring;

impl Algorithm for Ring {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "two counter-rotating rings, half of the data each"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::ALL
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        let p = u64::from(ranks);
        let (sent, steps, fill) = match operation {
            Operation::AllReduce => ((2 * (p - 1), p), 2 * (p - 1), (0, 1)),
            Operation::ReduceScatter | Operation::AllGather => ((p - 1, p), p - 1, (0, 1)),
            Operation::AllToAll => ((p * p / 4, p), p / 2, (0, 1)),
            Operation::Broadcast => {
                // Only from four ranks on is there one that forwards in both directions.
                let both_ways = if p < 4 { 0 } else { p / 2 };
                ((1, 1), 2 * p - 2, (p - 2 + both_ways, 2 * p))
            }
        };
        // The two chains of a broadcast wait for each other where they meet: of an even number of ranks one
        // step less than there are.
        let early = u64::from(operation == Operation::Broadcast && p.is_multiple_of(2));
        let (steps, latencies) = (saturating_steps(steps), saturating_steps(steps - early));
        Cost { sent, steps, latencies, fill }
    }

    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        let cost = self.cost(operation, ranks);
        let size = u64::from(ranks);
        let time = match operation {
            // The two directions run out at different steps, and a step lasts as long with one.
            Operation::Broadcast => LinkTime { busy: cost.sent, fill: (size - 2, size) },
            _ => LinkTime::as_sent(&cost),
        };
        let fits = kind == Kind::Ring;
        OnLinks {
            usual: fits,
            time: fits.then_some(time),
            alike: match operation {
                Operation::AllReduce | Operation::ReduceScatter | Operation::AllGather => {
                    Some(Alike { steps: cost.steps, to: &[1, -1], blocks: 2 * ranks })
                }
                Operation::AllToAll | Operation::Broadcast => None,
            },
            unaware: Some(Pattern::Ring),
            ..OnLinks::default()
        }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        let hops = ranks as usize - 1;
        let steps = match operation {
            Operation::AllReduce | Operation::Broadcast => 2 * hops,
            Operation::ReduceScatter | Operation::AllGather => hops,
            Operation::AllToAll => ranks as usize / 2,
        };
        let mut program = Program::empty(ranks, 2 * ranks, steps);
        for lane in [
            Lane { ranks, lanes: 2, lane: 0, forward: true },
            Lane { ranks, lanes: 2, lane: 1, forward: false },
        ] {
            match operation {
                Operation::AllReduce => {
                    lane.reduce_scatter(&mut program, 0);
                    lane.all_gather(&mut program, hops);
                }
                Operation::ReduceScatter => lane.reduce_scatter(&mut program, 0),
                Operation::AllGather => lane.all_gather(&mut program, 0),
                Operation::AllToAll => all_to_all(lane, &mut program),
                Operation::Broadcast => lane.chain(&mut program),
            }
        }
        program
    }
}

/// One direction. What has `distance` hops to go in all is, wherever it is on its way, in the slot
/// `distance` ahead of the rank that holds it; when it comes home in step `distance − 1` it takes the
/// slot as far behind, which the other direction's block of that distance leaves in the same step.
fn all_to_all(lane: Lane, program: &mut Program) {
    let (ranks, total) = (lane.ranks, program.blocks);
    let slot = |rank: u32, distance: u32| {
        let both = if 2 * distance == ranks { lane.lane..lane.lane + 1 } else { 0..2 };
        both.map(move |half| 2 * rank + half)
    };
    for step in 0..ranks / 2 {
        for source in 0..ranks {
            let destination = lane.at(source, 1);
            let distances = step + 1..=ranks / 2;
            let from = distances.clone().flat_map(|d| slot(lane.at(source, d), d)).collect();
            let into = distances
                .flat_map(|d| {
                    let home = d == step + 1;
                    let rank =
                        if home { lane.before(destination, d) } else { lane.at(destination, d) };
                    slot(rank, d)
                })
                .collect();
            program.message(
                step as usize,
                (source, Blocks::of(from, total)),
                (destination, Blocks::of(into, total)),
                Combine::Replace,
            );
        }
    }
}
