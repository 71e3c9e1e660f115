//! One binary tree, a whole chunk at a time: [`super::binary_trees`] without turns.
//!
//! Every chunk goes up and down the tree of the first one, so the next chunk's leaves wait until this one
//! has come down to them.
//!
//! Steps, bytes and program are those of [`super::binary_trees`]. Source: "doubleBinaryTree" of ASTRA-sim 1.0.
//!
//! ```
//! use allrail_collective::algorithm::named;
//! assert_eq!(named("binary_tree")?.turns(8), 1);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::binary_trees::BinaryTrees;
use super::{Algorithm, Cost, OnLinks};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "binary_tree";

/// See the [module](self).
pub(crate) struct BinaryTree;

impl Algorithm for BinaryTree {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "one binary tree for all chunks, a whole chunk at a time (ASTRA-sim 1.0)"
    }

    fn operations(&self) -> &'static [Operation] {
        BinaryTrees.operations()
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        BinaryTrees.cost(operation, ranks)
    }

    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        BinaryTrees.on_links(kind, operation, ranks)
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        BinaryTrees.program(operation, ranks)
    }
}
