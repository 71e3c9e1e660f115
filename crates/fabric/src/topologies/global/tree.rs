//! A fat tree (`topologies/tree.rs`) as what joins boards.

use allrail_core::FieldError;

use super::{Inner, Network};
use crate::graph::{Builder, NodeId, Wire};
use crate::topologies::tree::Tree;

impl Network for Tree {
    fn switches(&self) -> u64 {
        Tree::switches(self)
    }

    fn inner(&self) -> Inner {
        Inner { aoc: self.inner_cables(), dac: 0 }
    }

    fn span(&self) -> u32 {
        Tree::span(self)
    }

    fn as_tree(&self) -> Option<&Tree> {
        Some(self)
    }

    fn leaf_of(&self, end: u64) -> usize {
        Tree::leaf_of(self, end)
    }

    fn build(&self, to: &mut Builder, wire: Wire) -> Result<Vec<NodeId>, FieldError> {
        Tree::build(self, to, wire)
    }
}
