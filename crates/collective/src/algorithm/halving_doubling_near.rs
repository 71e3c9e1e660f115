//! Recursive halving and doubling that begins with the nearest partner.
//!
//! As [`super::halving_doubling`], but with a power of two, reduce-scatter's partners are 1, then 2, …,
//! then `P/2` apart, and all-gather's the other way round. Most bytes go to the neighbour, so on a ring, or
//! where neighbours share a faster network, they cross fewer links; what is exchanged is not contiguous:
//! in step `k` rank `r` sends the blocks whose number ends in the bits of `r` with bit `k` flipped. For any
//! other `P` it is the same as that.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | reduce-scatter, all-gather | ⌈log₂ P⌉ | s·(P − 1)/P | 0 |
//! | all-reduce | 2⌈log₂ P⌉ | 2s·(P − 1)/P | 0 |
//!
//! Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005 (distance doubling); ASTRA-sim's
//! "halvingDoubling" does it so.
//!
//! Ignored: that the blocks of a message are not contiguous.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let program = named("halving_doubling_near")?.program(Operation::ReduceScatter, 8);
//! let partners: Vec<u32> = program.steps[5].iter().map(|step| step.sends[0].to).collect();
//! assert_eq!(partners, [4, 7, 1]);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::halving_doubling::HalvingDoubling;
use super::{Algorithm, Cost, OnLinks};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "halving_doubling_near";

/// See the [module](self).
pub(crate) struct HalvingDoublingNear;

impl Algorithm for HalvingDoublingNear {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "recursive halving and doubling, the nearest partner first (Thakur et al. 2005)"
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather]
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        HalvingDoubling.cost(operation, ranks)
    }

    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        OnLinks { usual: false, ..HalvingDoubling.on_links(kind, operation, ranks) }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        if !ranks.is_power_of_two() {
            return HalvingDoubling.program(operation, ranks);
        }
        let rounds = ranks.ilog2();
        let count = if operation == Operation::AllReduce { 2 * rounds } else { rounds };
        let mut program = Program::empty(ranks, ranks, count as usize);
        let mut first = 0;
        if operation != Operation::AllGather {
            for bit in 0..rounds {
                exchange(&mut program, first, bit, Combine::Reduce);
                first += 1;
            }
        }
        if operation != Operation::ReduceScatter {
            for bit in (0..rounds).rev() {
                exchange(&mut program, first, bit, Combine::Replace);
                first += 1;
            }
        }
        program
    }
}

/// Ranks that differ in `bit` exchange blocks: those that the other keeps, or that one has.
fn exchange(program: &mut Program, step: usize, bit: u32, combine: Combine) {
    let ranks = program.ranks;
    let low = (2u32 << bit) - 1;
    for rank in 0..ranks {
        let partner = rank ^ (1 << bit);
        let whose = if combine == Combine::Reduce { partner } else { rank };
        let held = (0..ranks).filter(|block| block & low == whose & low);
        let blocks = Blocks::of(held.collect(), ranks);
        program.message(step, (rank, blocks.clone()), (partner, blocks), combine);
    }
}
