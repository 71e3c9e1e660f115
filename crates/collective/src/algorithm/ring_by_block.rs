//! One ring, block by block: [`super::ring_unidirectional`], whose all-to-all sends every block as a message
//! of its own.
//!
//! In an all-to-all the blocks that are not home yet leave one after the other, each when the one before
//! it has arrived: `P(P − 1)/2` messages in turn instead of `P − 1` that carry fewer and fewer blocks. Every
//! one of them costs a latency. All else is [`super::ring_unidirectional`]'s, its program too: which blocks
//! go where is the same.
//!
//! | operation | messages of a rank, in turn | bytes sent by the busiest rank |
//! |---|---|---|
//! | all-to-all | P(P − 1)/2 | s·(P − 1)/2 |
//!
//! Source: ASTRA-sim's ring.
//!
//! Ignored: on graphs, that they are apart.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! use allrail_fabric::Kind;
//! let ring = named("ring_by_block")?;
//! assert!(ring.on_links(Kind::Ring, Operation::AllToAll, 4).block_by_block);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::ring_unidirectional::RingUnidirectional;
use super::{Algorithm, Cost, OnLinks};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "ring_by_block";

/// See the [module](self).
pub(crate) struct RingByBlock;

impl Algorithm for RingByBlock {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "one ring in one direction; an all-to-all sends each block by itself (ASTRA-sim)"
    }

    fn operations(&self) -> &'static [Operation] {
        RingUnidirectional.operations()
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        RingUnidirectional.cost(operation, ranks)
    }

    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        OnLinks {
            block_by_block: operation == Operation::AllToAll,
            ..RingUnidirectional.on_links(kind, operation, ranks)
        }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        RingUnidirectional.program(operation, ranks)
    }
}
