//! Two binary trees, each with half of the data; a rank is interior in at most one of them.
//!
//! The first tree is the heap of the ranks (node `i` has the children `2i` and `2i + 1`, rank `r` is
//! node `r + 1`), the second the same with the ranks in reverse, so the interior of one is among the
//! leaves of the other, which evens out the load. Each half is cut into `K =` [`SEGMENTS`] segments
//! that follow each other, one a step, on one clock: with `H = ⌊log₂ P⌋`, a rank at depth `d` sends
//! segment `j` up in step `j + H − d` and down to each child in step `j + H + d`. Broadcast has both
//! trees over the other `P − 1` ranks (`H' = ⌊log₂(P − 1)⌋`); rank 0 sends segment `j` to each
//! root in step `j`, a rank at depth `d` to its children in step `j + 1 + d`.
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | all-reduce | K + 2H − 1 | 2s; P = 3, 4: 3s/2; P = 2: s | s·(3H − 5 + ε)/2K for K > H, P ≥ 5 |
//! | broadcast | K + H' | s | s·(2H' − [P − 1 = 2^H', H' > 0])/2K |
//!
//! with ε = [P = 2^(H+1) − 1] − [P = 2^H] + [in step K a rank still sends four blocks]; the code has
//! the other cases. A rank with two children sends one segment up and two down in the one tree and one
//! up in the other: four of `2K` blocks a step while the pipeline is full.
//!
//! Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//! scan", Parallel Computing 2009; NCCL 2.4's all-reduce. Their trees are numbered in order and edges
//! coloured so that a rank sends and receives one segment at a time; here, as in NCCL, a rank serves
//! all its edges at once.
//!
//! Ignored: NCCL's chain inside each node; segments of a fixed size (here their number is fixed).
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let tree = named("double_binary_tree")?;
//! assert_eq!(tree.cost(Operation::AllReduce, 64).steps, 16 + 2 * 6 - 1);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use super::{Algorithm, Cost};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "double_binary_tree";

/// Segments of each tree's half of the data.
pub const SEGMENTS: u32 = 16;

/// See the [module](self).
pub(crate) struct DoubleBinaryTree;

impl Algorithm for DoubleBinaryTree {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "two pipelined binary trees (Sanders, Speck and Träff 2009; NCCL 2.4)"
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::AllReduce, Operation::Broadcast]
    }

    fn cost(&self, operation: Operation, ranks: u32) -> Cost {
        let (steps, sent, all) = match operation {
            Operation::AllReduce => all_reduce_cost(ranks, SEGMENTS),
            Operation::Broadcast => broadcast_cost(ranks, SEGMENTS),
            _ => panic!("`{TAG}` is only asked for its own operations"),
        };
        let blocks = 2 * u64::from(SEGMENTS);
        // Two ranks are one message; of four, or with five of a broadcast, a leaf need not wait once.
        let latencies = match (operation, ranks) {
            (Operation::Broadcast, 2) => 1,
            (Operation::AllReduce, 4) | (Operation::Broadcast, 5) => steps - 1,
            _ => steps,
        };
        Cost { sent: (sent, blocks), steps, latencies, fill: (all - sent, blocks) }
    }

    fn program(&self, operation: Operation, ranks: u32) -> Program {
        match operation {
            Operation::AllReduce => all_reduce(ranks, SEGMENTS),
            Operation::Broadcast => broadcast(ranks, SEGMENTS),
            _ => panic!("`{TAG}` is only asked for its own operations"),
        }
    }
}

/// The heap of `size` ranks from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    first: u32,
    size: u32,
    reversed: bool,
}

impl Tree {
    pub(crate) fn both(first: u32, size: u32) -> [Self; 2] {
        [Self { first, size, reversed: false }, Self { first, size, reversed: true }]
    }

    /// The rank of node 1, 2, …
    pub(crate) fn rank(self, node: u32) -> u32 {
        self.first + if self.reversed { self.size - node } else { node - 1 }
    }

    /// The node of a rank.
    pub(crate) fn node(self, rank: u32) -> u32 {
        let place = rank - self.first;
        if self.reversed { self.size - place } else { place + 1 }
    }

    /// (child, parent, depth of the child) for every edge.
    fn edges(self) -> impl Iterator<Item = (u32, u32, u32)> {
        (2..=self.size).map(move |node| (self.rank(node), self.rank(node / 2), node.ilog2()))
    }
}

fn all_reduce(ranks: u32, segments: u32) -> Program {
    let height = ranks.ilog2();
    let steps = segments + 2 * height - 1;
    let mut program = Program::empty(ranks, 2 * segments, steps as usize);
    for (half, tree) in (0..).zip(Tree::both(0, ranks)) {
        for (child, parent, depth) in tree.edges() {
            for segment in 0..segments {
                let block = Blocks::Wrapped { start: half * segments + segment, count: 1 };
                let (up, down) = (segment + height - depth, segment + height + depth - 1);
                program.message(
                    up as usize,
                    (child, block.clone()),
                    (parent, block.clone()),
                    Combine::Reduce,
                );
                program.message(
                    down as usize,
                    (parent, block.clone()),
                    (child, block),
                    Combine::Replace,
                );
            }
        }
    }
    program
}

fn broadcast(ranks: u32, segments: u32) -> Program {
    let steps = segments + (ranks - 1).ilog2();
    let mut program = Program::empty(ranks, 2 * segments, steps as usize);
    for (half, tree) in (0..).zip(Tree::both(1, ranks - 1)) {
        let first = std::iter::once((tree.rank(1), 0, 0));
        for (child, parent, depth) in first.chain(tree.edges()) {
            for segment in 0..segments {
                let block = Blocks::Wrapped { start: half * segments + segment, count: 1 };
                program.message(
                    (segment + depth) as usize,
                    (parent, block.clone()),
                    (child, block),
                    Combine::Replace,
                );
            }
        }
    }
    program
}

/// (steps, blocks that the busiest rank sends, sum over the steps of the most that a rank sends).
fn all_reduce_cost(ranks: u32, segments: u32) -> (u32, u64, u64) {
    let (p, h, k) = (u64::from(ranks), u64::from(ranks.ilog2()), u64::from(segments));
    let steps = segments + 2 * ranks.ilog2() - 1;
    let (sent, all) = match ranks {
        2 => (2 * k, 2 * k),
        3 => (3 * k, 3 * k + 1),
        4 => (3 * k, 3 * k + 3),
        _ => {
            let mut all = 0;
            // Steps 0..H: only upwards. In step 0 the deepest leaves send, one in both trees at once
            // only if the last level is full. The leaves are done after step K − 1, those one level up
            // after step K.
            all += 1 + u64::from(p + 1 == 2 << h);
            all += (h - 1) + (k - 1).min(h - 1);
            all += u64::from(k < h && p + 3 <= 2 << h);
            // Step H: the root sends to two children and, while it is still a leaf, up.
            all += if h < k { 3 } else { 2 };
            // Steps H + 1 ..= H + K − 2: one up and two down, and one up as a leaf until step K − 1, or
            // step K where that leaf is one level up.
            all += 3 * (k - 2) + (k.saturating_sub(h + 1));
            all += u64::from(h < k && sends_four_in_step_k(p, h, k));
            // The last H steps: two down; in the last the only leaf of a level may have one.
            all += 2 * h - u64::from(p == 1 << h);
            (4 * k, all)
        }
    };
    (steps, sent, all)
}

/// Whether in step `K` a rank sends up and to two children in one tree while it is a leaf one level up
/// in the other: a node `i ≥ 2` with two children, of a depth whose turn to send down has come, that
/// is node `P + 1 − i < 2^H` of the other.
fn sends_four_in_step_k(p: u64, h: u64, k: u64) -> bool {
    let deepest = (k - h).min(h - 1);
    let least = (p + 2).saturating_sub(1 << h).max(2);
    let most = ((p - 1) / 2).min((2 << deepest) - 1);
    least <= most
}

/// As [`all_reduce_cost`].
fn broadcast_cost(ranks: u32, segments: u32) -> (u32, u64, u64) {
    let height = (ranks - 1).ilog2();
    let lone_leaf = height > 0 && (ranks - 1).is_power_of_two();
    let sent = 2 * u64::from(segments);
    (segments + height, sent, sent + 2 * u64::from(height) - u64::from(lone_leaf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(program: &Program) -> (u64, u64) {
        let busiest = (0..program.ranks).map(|rank| program.blocks_sent(rank)).max();
        let all = (0..program.step_count())
            .map(|step| {
                let sent = program.steps.iter().map(|steps| {
                    steps[step].sends.iter().map(|send| u64::from(send.blocks.len())).sum::<u64>()
                });
                sent.max().unwrap_or(0)
            })
            .sum();
        (busiest.unwrap_or(0), all)
    }

    #[test]
    fn the_closed_forms_hold_for_other_numbers_of_segments() {
        for segments in [4, 5, 6, 7, 9, 16, 31] {
            for ranks in (2..=70).chain([127, 128, 129, 200, 255, 256, 300, 511, 512, 513]) {
                let program = all_reduce(ranks, segments);
                let (steps, sent, all) = all_reduce_cost(ranks, segments);
                assert_eq!(steps as usize, program.step_count());
                assert_eq!((sent, all), count(&program), "AR, {ranks} ranks, {segments} segments");
                let program = broadcast(ranks, segments);
                let (steps, sent, all) = broadcast_cost(ranks, segments);
                assert_eq!(steps as usize, program.step_count());
                assert_eq!((sent, all), count(&program), "BC, {ranks} ranks, {segments} segments");
            }
        }
    }

    #[test]
    fn no_rank_is_interior_in_both_trees() {
        for ranks in 2..=200 {
            let [first, second] = Tree::both(0, ranks);
            for (_, parent, _) in first.edges() {
                assert!(second.edges().all(|(_, other, _)| other != parent));
            }
        }
    }
}
