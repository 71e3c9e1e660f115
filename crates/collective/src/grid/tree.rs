//! Two binary trees over all ranks, half of the buffer each, in segments that follow each other.
//!
//! The algorithm is [`crate::algorithm::double_binary_tree`]; the grid only numbers its ranks. Few
//! steps, but messages between ranks that are far apart: for switches rather than for a torus, where
//! what a link carries depends on the routing.

use std::ops::Range;

use allrail_core::Bytes;

use super::{GridAllReduce, GridCost, GridGroup, Half, Spread, block, check_size};
use crate::algorithm::double_binary_tree::{DoubleBinaryTree, SEGMENTS, Tree as Heap};
use crate::{Algorithm, CollectiveError, Operation, Program, Steps};

/// The tag in scenario files.
const TAG: &str = "tree";

pub(super) struct Tree;

impl GridAllReduce for Tree {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "two pipelined binary trees over all ranks (Sanders, Speck and Träff 2009)"
    }

    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError> {
        check_size(TAG, rows, columns, false)
    }

    fn program(&self, rows: u32, columns: u32) -> Program {
        DoubleBinaryTree.program(Operation::AllReduce, rows * columns)
    }

    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        Box::new(TreeSteps { ranks: rows * columns, bytes: block(size, 2 * SEGMENTS) })
    }

    fn cost(&self, rows: u32, columns: u32) -> GridCost {
        let cost = DoubleBinaryTree.cost(Operation::AllReduce, rows * columns);
        GridCost { steps: cost.steps, sent: cost.sent, link: None }
    }
}

impl GridGroup for Tree {
    fn half_program(&self, _: Half, _: u32, _: u32) -> Option<Program> {
        None
    }

    fn half_steps(&self, _: Half, _: u32, _: u32, _: Bytes) -> Option<Box<dyn Steps>> {
        None
    }

    /// Two heaps of the other ranks, each below the root, in opposite orders.
    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread> {
        let ranks = rows * columns;
        let rank = |place: u32| (root + place) % ranks;
        let of = |tree: Heap| {
            let mut parents = vec![root; ranks as usize];
            for node in 2..ranks {
                parents[rank(tree.rank(node)) as usize] = rank(tree.rank(node / 2));
            }
            Spread::new(root, parents)
        };
        Heap::both(1, ranks - 1).map(of).into()
    }
}

/// A rank sends a segment up and, later, one to each child in every step in which one is due.
struct TreeSteps {
    ranks: u32,
    bytes: Bytes,
}

impl TreeSteps {
    fn height(&self) -> u32 {
        self.ranks.ilog2()
    }

    /// When segments go from a node up.
    fn up(&self, node: u32) -> Range<u32> {
        let first = self.height() - node.ilog2();
        first..first + SEGMENTS
    }

    /// When they come down to it.
    fn down(&self, node: u32) -> Range<u32> {
        let first = self.height() + node.ilog2() - 1;
        first..first + SEGMENTS
    }

    /// The nodes below `node`.
    fn children(&self, node: u32) -> impl Iterator<Item = u32> {
        (2 * node..=2 * node + 1).filter(|child| *child <= self.ranks)
    }
}

impl Steps for TreeSteps {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn steps(&self) -> u32 {
        SEGMENTS + 2 * self.height() - 1
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        for tree in Heap::both(0, self.ranks) {
            let node = tree.node(rank);
            if node > 1 && self.up(node).contains(&step) {
                out.push((tree.rank(node / 2), self.bytes));
            }
            let due = self.children(node).filter(|child| self.down(*child).contains(&step));
            out.extend(due.map(|child| (tree.rank(child), self.bytes)));
        }
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        let of_tree = |tree: Heap| {
            let node = tree.node(rank);
            let below = self.children(node).filter(|child| self.up(*child).contains(&step));
            below.count() + usize::from(node > 1 && self.down(node).contains(&step))
        };
        let all: usize = Heap::both(0, self.ranks).map(of_tree).iter().sum();
        u32::try_from(all).expect("six at most")
    }

    fn alike(&self) -> Vec<Range<u32>> {
        let leftmost = (1..=self.height()).map(|depth| 1 << depth);
        let runs = leftmost.flat_map(|node| [self.up(node), self.down(node)]);
        let mut ends: Vec<u32> = runs.flat_map(|run| [run.start, run.end]).collect();
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|pair| pair[0]..pair[1]).filter(|run| run.len() > 1).collect()
    }
}
