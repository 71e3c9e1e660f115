//! What the algorithms of a grid do beside all-reduces: reduce-scatter, all-gather, broadcast.
//!
//! **Halves.** An all-reduce of rings is a reduce-scatter and an all-gather that mirrors it. Either half has
//! half of its steps, of its bytes and of its load on every link (`rings`: p − 1 steps, (S/4)(p − 1)/p on a
//! link). Shard `i` belongs to rank `i`, whatever the order of the ring.
//!
//! **Broadcast.** The buffer is divided among [`Spread`]ing trees, and each part into segments that follow
//! each other down its tree. On a torus of `r × c = p` NPUs, of links of one bandwidth:
//!
//! | | trees | depth | bytes on the busiest link |
//! |---|---|---|---|
//! | `rings` | 4: both ways round two rings that share no link | p − 1 | S/4 |
//! | `ring` | 2: both ways round one ring | p − 1 | S/2 |
//! | `ring_unidirectional` | 1 | p − 1 | S |
//! | `torus` | 4: along rows, then columns, and the other way about, both ways | r + c − 2 | S/2 |
//! | `hierarchical` | 2: along a row, then along all columns, both ways | r + c − 2 | S/2 |
//! | `tree` | 2 binary trees | 1 + ⌊log₂(p − 1)⌋ | depends on the routing |
//!
//! With `K` segments in each of `t` trees that share no link and are `d` deep, latency α and bandwidth B,
//! the last byte is there after
//!
//! ```text
//! d α + (K + d − 1) · S / (t K B)
//! ```
//!
//! which for many segments is S / (t B): a fourth of S / B on `rings`, which is all that four links
//! bring (Hoefler et al., "`HammingMesh`", SC'22, Section V: pipelines on disjoint rings).
//!
//! Ignored: nothing is sent back, so a source that loses a segment never learns of it.

use allrail_core::Bytes;

use crate::program::{Blocks, Combine};
use crate::{Operation, Program, Steps};

/// One half of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Every rank keeps its shard of the sum.
    ReduceScatter,
    /// Every rank gets all shards.
    AllGather,
}

impl Half {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::ReduceScatter, Self::AllGather];

    /// The operation that it is.
    #[must_use]
    pub fn operation(self) -> Operation {
        match self {
            Self::ReduceScatter => Operation::ReduceScatter,
            Self::AllGather => Operation::AllGather,
        }
    }
}

/// The group collectives of an algorithm on a grid; asked only for grids that it runs on.
pub trait GridGroup: Sync {
    /// A half's messages with the blocks that they carry; `None` of what sums whole buffers only.
    fn half_program(&self, half: Half, rows: u32, columns: u32) -> Option<Program>;

    /// A half's messages for a buffer of `size` (before a reduce-scatter, after an all-gather), padded to
    /// whole blocks.
    fn half_steps(
        &self,
        half: Half,
        rows: u32,
        columns: u32,
        size: Bytes,
    ) -> Option<Box<dyn Steps>>;

    /// The trees of a broadcast from `root`, an equal part of the buffer each.
    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread>;
}

/// A tree down which a broadcast goes: from whom each rank receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    root: u32,
    /// Of the root: itself.
    parents: Vec<u32>,
}

impl Spread {
    /// A tree of ranks `0 .. parents.len()`, all of which hang below `root`.
    #[must_use]
    pub fn new(root: u32, parents: Vec<u32>) -> Self {
        Self { root, parents }
    }

    /// A chain through all ranks, in the order of a ring from `root` on.
    #[must_use]
    pub fn chain(ring: &[u32], root: u32) -> Self {
        let mut parents = vec![root; ring.len()];
        for (from, to) in ring.iter().zip(ring.iter().cycle().skip(1)) {
            if *to != root {
                parents[*to as usize] = *from;
            }
        }
        Self { root, parents }
    }

    /// Both ways round a ring.
    #[must_use]
    pub(crate) fn both_ways(ring: &[u32], root: u32) -> [Self; 2] {
        let back: Vec<u32> = ring.iter().rev().copied().collect();
        [Self::chain(ring, root), Self::chain(&back, root)]
    }

    /// Who starts with the buffer.
    #[must_use]
    pub fn root(&self) -> u32 {
        self.root
    }

    /// From whom each rank receives; of the root, itself.
    #[must_use]
    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// How many ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.parents.len()).expect("ranks are counted in 32 bits")
    }

    /// To whom each rank passes segments on.
    #[must_use]
    pub fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.parents.len()];
        for (rank, parent) in (0..).zip(&self.parents) {
            if rank != self.root {
                children[*parent as usize].push(rank);
            }
        }
        children
    }

    /// How many messages lie between the root and each rank; `None` of one that hangs below no root.
    #[must_use]
    pub fn depths(&self) -> Vec<Option<u32>> {
        let children = self.children();
        let mut depths = vec![None; self.parents.len()];
        depths[self.root as usize] = Some(0);
        let mut reached = vec![(self.root, 0)];
        while let Some((rank, depth)) = reached.pop() {
            for &child in &children[rank as usize] {
                depths[child as usize] = Some(depth + 1);
                reached.push((child, depth + 1));
            }
        }
        depths
    }

    /// How many messages lie between the root and the rank that is the furthest from it.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depths().into_iter().flatten().max().unwrap_or(0)
    }
}

/// A broadcast of `segments` blocks down each of `trees`, for the verifier: segment `j` reaches a rank of
/// depth `d` in step `j + d − 1`.
#[must_use]
pub fn program(trees: &[Spread], segments: u32) -> Program {
    let ranks = trees.first().map_or(0, Spread::ranks);
    let depth = trees.iter().map(Spread::depth).max().unwrap_or(0);
    let count = u32::try_from(trees.len()).expect("few trees");
    let mut program =
        Program::empty(ranks, count * segments, (segments + depth.max(1) - 1) as usize);
    for (number, tree) in (0..).zip(trees) {
        for (rank, depth) in (0..).zip(tree.depths()) {
            let Some(depth) = depth.filter(|depth| *depth > 0) else { continue };
            let parent = tree.parents[rank as usize];
            for segment in 0..segments {
                let block = Blocks::Wrapped { start: number * segments + segment, count: 1 };
                let step = (segment + depth - 1) as usize;
                program.message(step, (parent, block.clone()), (rank, block), Combine::Replace);
            }
        }
    }
    program
}
