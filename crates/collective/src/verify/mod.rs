//! Proves a [`Program`] right by running it symbolically.
//!
//! Every block of every rank holds, instead of numbers, a name: *which* block of the original buffers
//! it is, and *whose* contributions are summed in it. Messages are matched by (source, destination,
//! step), in order where there are several, and carry what the sender's blocks held before any receive
//! of that step. It is proved that
//!
//! - every message that is awaited is sent, in the same step and of the same length, and every message
//!   that is sent is awaited: hence no deadlock;
//! - nothing is sent or added to that its rank does not hold (in all-gather, what has not arrived);
//! - a sum never mixes different blocks nor counts a contribution twice;
//! - no step writes a block in an order that matters;
//! - at the end every rank holds exactly what the [`Operation`] defines.
//!
//! What is proved holds for any timing: a rank's steps are in order, and a message belongs to one step.
//! It is not proved that arithmetic gives the same bits in any order of summation.
//!
//! Shard `i` of `B` blocks over `P` ranks is blocks `i·B/P .. (i + 1)·B/P`, for the algorithms of one
//! dimension and for those composed over several alike. What a rank must hold at the end:
//!
//! | operation | starts with | ends with |
//! |---|---|---|
//! | all-reduce | its buffer | every block, summed over all ranks |
//! | reduce-scatter | its buffer | its shard, summed over all ranks; the rest is free |
//! | all-gather | its shard | every block, from the rank whose shard it is in |
//! | all-to-all | its buffer | in shard `i`, rank `i`'s shard for it |
//! | broadcast | rank 0: its buffer; others: nothing | every block, from rank 0 |
//!
//! Memory: `ranks · blocks · (4 + ranks / 8)` bytes.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named, verify::verify};
//! let mut program = named("ring")?.program(Operation::AllReduce, 4);
//! let proof = verify(&program, Operation::AllReduce).expect("the ring is right");
//! assert_eq!((proof.ranks, proof.steps, proof.messages), (4, 6, 48));
//!
//! let lost = program.steps[2][1].sends.pop();
//! assert!(lost.is_some() && verify(&program, Operation::AllReduce).is_err());
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

mod contents;
pub(crate) mod matching;
mod violation;

pub use violation::{Violation, Waiting};

use std::ops::Range;

use crate::program::Combine;
use crate::{Operation, Program};
use contents::Contents;

/// What was proved, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Ranks that hold what they should.
    pub ranks: u32,
    /// Steps in which something is sent.
    pub steps: u32,
    /// Messages, each sent and received once.
    pub messages: u64,
    /// Blocks that these carry.
    pub blocks: u64,
}

/// Proves that `program` does `operation`.
///
/// # Errors
/// The first [`Violation`] found, with the rank, step and block.
pub fn verify(program: &Program, operation: Operation) -> Result<Proof, Violation> {
    check_shape(program, operation)?;
    let mut proof = Proof { ranks: program.ranks, steps: 0, messages: 0, blocks: 0 };
    let mut contents = initial(program, operation);
    let mut written = Written::new(program);
    for step in 0..program.step_count() {
        let messages = matching::messages(program, step)?;
        let carried = messages
            .iter()
            .map(|message| {
                let blocks = message.send.blocks.iter(program.blocks);
                contents.copy(message.source, blocks).map_err(|block| Violation::NotHeld {
                    rank: message.source,
                    step,
                    block,
                    to: message.send.to,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        for (message, carried) in messages.iter().zip(&carried) {
            let rank = message.send.to;
            let into = message.receive.blocks.iter(program.blocks);
            for (block, name) in into.zip(carried.iter()) {
                let combine = message.receive.combine;
                if !written.allows(rank, block, step, combine) {
                    return Err(Violation::WrittenTwice { rank, step, block });
                }
                match combine {
                    Combine::Replace => contents.set(rank, block, name),
                    Combine::Reduce => contents
                        .add(rank, block, name)
                        .map_err(|clash| clash.violation(rank, step, block, message.source))?,
                }
            }
        }
        proof.steps += u32::from(!messages.is_empty());
        proof.messages += messages.len() as u64;
        proof.blocks += messages.iter().map(|m| u64::from(m.send.blocks.len())).sum::<u64>();
    }
    check_end(program, operation, &contents)?;
    Ok(proof)
}

/// The blocks of a rank's shard.
#[must_use]
pub fn shard(rank: u32, ranks: u32, blocks: u32) -> Range<u32> {
    let each = blocks / ranks;
    rank * each..(rank + 1) * each
}

fn check_shape(program: &Program, operation: Operation) -> Result<(), Violation> {
    let Program { ranks, blocks, .. } = *program;
    if program.steps.len() != ranks as usize {
        return Err(Violation::Ranks { ranks, lists: program.steps.len() });
    }
    let count = program.step_count();
    for (rank, steps) in (0..).zip(&program.steps) {
        if steps.len() != count {
            return Err(Violation::StepCounts { rank, steps: steps.len(), others: count });
        }
        for (step, content) in steps.iter().enumerate() {
            let sent = content.sends.iter().map(|send| (send.to, &send.blocks));
            let received = content.receives.iter().map(|receive| (receive.from, &receive.blocks));
            for (peer, list) in sent.chain(received) {
                if peer >= ranks || peer == rank {
                    return Err(Violation::Peer { rank, step, peer, ranks });
                }
                if let Some(block) = list.outside(blocks) {
                    return Err(Violation::Block { rank, step, block, blocks });
                }
            }
        }
    }
    let sharded =
        matches!(operation, Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll);
    if sharded && (blocks == 0 || !blocks.is_multiple_of(ranks)) {
        return Err(Violation::Shards { ranks, blocks, operation });
    }
    Ok(())
}

fn initial(program: &Program, operation: Operation) -> Contents {
    let Program { ranks, blocks, .. } = *program;
    let mut contents = Contents::nothing(ranks, blocks);
    for rank in 0..ranks {
        let held = match operation {
            Operation::AllReduce | Operation::ReduceScatter | Operation::AllToAll => 0..blocks,
            Operation::AllGather => shard(rank, ranks, blocks),
            Operation::Broadcast => 0..if rank == 0 { blocks } else { 0 },
        };
        for block in held {
            contents.start(rank, block);
        }
    }
    contents
}

fn check_end(
    program: &Program,
    operation: Operation,
    contents: &Contents,
) -> Result<(), Violation> {
    let Program { ranks, blocks, .. } = *program;
    let each = (blocks / ranks).max(1);
    for rank in 0..ranks {
        let defined = match operation {
            Operation::ReduceScatter => shard(rank, ranks, blocks),
            _ => 0..blocks,
        };
        for block in defined {
            let (expected, from) = match operation {
                Operation::AllReduce | Operation::ReduceScatter => (block, None),
                Operation::AllGather => (block, Some(block / each)),
                Operation::AllToAll => (rank * each + block % each, Some(block / each)),
                Operation::Broadcast => (block, Some(0)),
            };
            contents.expect(rank, block, expected, from)?;
        }
    }
    Ok(())
}

/// Who wrote a block in this step: two sums may, in either order; a replacement must be alone.
struct Written {
    blocks: u32,
    /// Per (rank, block): the step after the last write, and whether that was a sum.
    last: Vec<(usize, bool)>,
}

impl Written {
    fn new(program: &Program) -> Self {
        let all = program.ranks as usize * program.blocks as usize;
        Self { blocks: program.blocks, last: vec![(0, false); all] }
    }

    fn allows(&mut self, rank: u32, block: u32, step: usize, combine: Combine) -> bool {
        let sum = combine == Combine::Reduce;
        let last = &mut self.last[rank as usize * self.blocks as usize + block as usize];
        let before = std::mem::replace(last, (step + 1, sum));
        before.0 != step + 1 || (before.1 && sum)
    }
}
