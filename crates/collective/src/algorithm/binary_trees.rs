//! A binary tree in which whole chunks go up and come down; chunks take turns with the tree's ranks.
//!
//! Rank `P − 1` is the root; its only child is the root of a balanced tree of the others in order, each
//! part's middle above what is on its left and on its right. With `P = 2^H` the even ranks are its leaves.
//! In every other chunk ranks are counted from the second one on, so the leaves of one chunk's tree are
//! interior in the next one's.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | all-reduce | 2H, H = ⌈log₂ P⌉ | 3s; P = 3: 2s; P = 2: s | s·(3H − 3 + ε) less that; P = 2: s |
//!
//! with ε = 2 where a rank has two children on the last level, else 1.
//!
//! Source: NCCL 2.4's trees without their pipelining; "doubleBinaryTree" is ASTRA-sim's name for it.
//!
//! Ignored: that the next chunk's leaves may begin while this one's are under way, in the closed form.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let program = named("binary_trees")?.program(Operation::AllReduce, 8);
//! // The leaves' parents wait for two.
//! assert_eq!(program.steps[1][0].receives.len(), 2);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::{Algorithm, Cost, OnLinks};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "binary_trees";

/// See the [module](self).
pub(crate) struct BinaryTrees;

impl Algorithm for BinaryTrees {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "binary trees that take turns, a whole chunk at a time (NCCL 2.4's, not pipelined)"
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::AllReduce]
    }

    fn cost(&self, _operation: Operation, ranks: u32) -> Cost {
        let height = height(ranks);
        let sent = u64::from(ranks.min(4) - 1);
        // Every level sends up once, and down once or twice.
        let all = match height {
            1 => 2,
            _ => {
                let two_at_last = (ranks - 1) >> (height - 2) == 3;
                3 * u64::from(height) - 3 + if two_at_last { 2 } else { 1 }
            }
        };
        let steps = 2 * height;
        Cost { sent: (sent, 1), steps, latencies: steps, fill: (all - sent, 1) }
    }

    fn program(&self, _operation: Operation, ranks: u32) -> Program {
        let height = height(ranks) as usize;
        let mut program = Program::empty(ranks, ranks, 2 * height);
        let whole = || Blocks::range(0..ranks);
        for (child, parent, depth) in edges(ranks) {
            let depth = depth as usize;
            program.message(height - depth, (child, whole()), (parent, whole()), Combine::Reduce);
            let down = height + depth - 1;
            program.message(down, (parent, whole()), (child, whole()), Combine::Replace);
        }
        program
    }

    fn on_links(&self, _kind: Kind, _operation: Operation, _ranks: u32) -> OnLinks {
        OnLinks { relays: true, ..OnLinks::default() }
    }

    fn turns(&self, ranks: u32) -> u32 {
        ranks.min(2)
    }
}

/// ⌈log₂ P⌉.
fn height(ranks: u32) -> u32 {
    (ranks - 1).checked_ilog2().map_or(0, |log| log + 1)
}

/// (child, parent, depth of the child) of every rank but the root.
fn edges(ranks: u32) -> Vec<(u32, u32, u32)> {
    let mut found = Vec::new();
    // Parts of the ranks in order, whose middle has this parent and this depth.
    let mut parts = vec![(0, ranks - 1, ranks - 1, 1)];
    while let Some((start, end, parent, depth)) = parts.pop() {
        if start < end {
            let middle = start + (end - start) / 2;
            found.push((middle, parent, depth));
            parts.push((start, middle, middle, depth + 1));
            parts.push((middle + 1, end, middle, depth + 1));
        }
    }
    found
}
