//! A broadcast as pipelines: segments that follow each other down trees that know nothing of each other.
//!
//! A rank passes segment `j` of a tree on, to all of its children there, when segments `0 ..= j` have
//! arrived and segment `j − 1` has left. So a source that waits for nobody has one segment of each tree on
//! its way, as a library with a window does, and not all at once.
//!
//! Of many segments only the first are run: as many as fill the tree, and 2K more. The last K of these
//! say how long one takes, and the rest is added:
//!
//! ```text
//! time = t(run) + left out · (t(last) − t(last − K)) / K
//! ```

use std::collections::BTreeSet;

use allrail_collective::grid::Spread;
use allrail_core::{Bytes, Time};

use super::driver::{Demand, Message};
use super::rounds::STEADY;

/// Bits of a tag below the tree's number, and below a rank's.
const TREE: u32 = 56;
const RANK: u32 = 32;

/// Segments on their way; rank `r` is NPU `r`.
pub(super) struct Pipelines {
    trees: Vec<Tree>,
    /// Run, and left out.
    segments: u32,
    left_out: u32,
    bytes: Bytes,
    /// When each segment of all trees was everywhere.
    completed: Vec<Time>,
    done: u64,
    total: u64,
}

struct Tree {
    root: u32,
    parents: Vec<u32>,
    children: Vec<Vec<u32>>,
    ranks: Vec<Passing>,
}

/// What a rank has of one tree.
#[derive(Clone, Debug, Default)]
struct Passing {
    /// Segments `0 .. held` are here; of later ones `ahead`.
    held: u32,
    ahead: BTreeSet<u32>,
    /// The next one to pass on.
    next: u32,
    /// Copies of the one before it that have not left.
    leaving: usize,
}

impl Pipelines {
    /// `segments` of `bytes` down each of `trees`; all of them are run unless `skip`.
    #[must_use]
    pub(super) fn new(trees: &[Spread], segments: u32, bytes: Bytes, skip: bool) -> Self {
        let depth = trees.iter().map(Spread::depth).max().unwrap_or(0);
        let enough = depth.saturating_add(2 * STEADY);
        let run = if skip { segments.min(enough) } else { segments };
        let ranks = trees.first().map_or(0, Spread::ranks);
        let arrivals = trees.len() as u64 * u64::from(ranks.max(1) - 1);
        let mut all: Vec<Tree> = trees
            .iter()
            .map(|tree| Tree {
                root: tree.root(),
                parents: tree.parents().to_vec(),
                children: tree.children(),
                ranks: vec![Passing::default(); ranks as usize],
            })
            .collect();
        for tree in &mut all {
            tree.ranks[tree.root as usize].held = run;
        }
        Self {
            trees: all,
            segments: run,
            left_out: segments - run,
            bytes,
            completed: vec![Time::ZERO; run as usize],
            done: 0,
            total: arrivals * u64::from(run),
        }
    }

    /// How many segments of each tree are run.
    #[must_use]
    pub(super) fn segments(&self) -> u32 {
        self.segments
    }

    /// Until the last of all segments is everywhere.
    #[must_use]
    pub(super) fn whole(&self) -> Time {
        let Some(&last) = self.completed.last() else { return Time::ZERO };
        if self.left_out == 0 {
            return last;
        }
        let before = self.completed[self.completed.len() - 1 - STEADY as usize];
        let span = u128::from(last.as_ps().saturating_sub(before.as_ps()));
        let added = span * u128::from(self.left_out) / u128::from(STEADY);
        last + Time::from_ps(u64::try_from(added).unwrap_or(u64::MAX - last.as_ps()))
    }

    /// Passes on what a rank of a tree may.
    fn pass(&mut self, tree: usize, rank: u32, out: &mut Vec<Message>) {
        let Tree { children, ranks, .. } = &mut self.trees[tree];
        let (below, state) = (&children[rank as usize], &mut ranks[rank as usize]);
        if below.is_empty() || state.leaving > 0 || state.next == state.held {
            return;
        }
        let segment = state.next;
        state.next += 1;
        state.leaving = below.len();
        out.extend(below.iter().map(|&child| Message {
            source: rank,
            destination: child,
            bytes: self.bytes,
            tag: (tree as u64) << TREE | u64::from(child) << RANK | u64::from(segment),
        }));
    }
}

/// Tree, receiver and segment of a tag.
fn read(tag: u64) -> (usize, u32, u32) {
    let rank = tag >> RANK & ((1 << (TREE - RANK)) - 1);
    ((tag >> TREE) as usize, rank as u32, tag as u32)
}

impl Demand for Pipelines {
    fn due(&mut self, _now: Time, out: &mut Vec<Message>) {
        for tree in 0..self.trees.len() {
            self.pass(tree, self.trees[tree].root, out);
        }
    }

    fn wants_sent(&self) -> bool {
        true
    }

    fn sent(&mut self, _now: Time, tag: u64, out: &mut Vec<Message>) {
        let (tree, child, _) = read(tag);
        let parent = self.trees[tree].parents[child as usize];
        self.trees[tree].ranks[parent as usize].leaving -= 1;
        self.pass(tree, parent, out);
    }

    fn delivered(&mut self, now: Time, tag: u64, out: &mut Vec<Message>) {
        let (tree, rank, segment) = read(tag);
        let state = &mut self.trees[tree].ranks[rank as usize];
        state.ahead.insert(segment);
        while state.ahead.remove(&state.held) {
            state.held += 1;
        }
        self.done += 1;
        let at = segment as usize;
        self.completed[at] = self.completed[at].max(now);
        self.pass(tree, rank, out);
    }

    fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    fn waits(&self) -> String {
        const SHOWN: usize = 12;
        let waiting = self.trees.iter().enumerate().flat_map(|(number, tree)| {
            let short = (0u32..).zip(&tree.ranks).filter(|(_, rank)| rank.held < self.segments);
            short.map(move |(rank, state)| {
                format!("  rank {rank}: segment {} of tree {number} has not arrived", state.held)
            })
        });
        waiting.take(SHOWN).collect::<Vec<_>>().join("\n")
    }
}
