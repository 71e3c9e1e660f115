//! Under which leaf switch a row or column of boards stands, and blocks that stay below few leaves.
//!
//! A row's tree has leaves, each for some neighbouring columns of boards, and a column's tree for rows.
//! Traffic between two columns under one leaf stays below the upper levels. With locality, the search
//! of `greedy.rs` is done once from the rows of each leaf on (its own rows first, then all others), and
//! columns are taken leaf by leaf: the leaf with the fewest columns that suffice, otherwise the one
//! with the most. Of the blocks found, the one with the fewest ordered pairs of boards across leaves
//! is taken, the first among equals:
//!
//! ```text
//! crossing(u × v) = u² · (ordered column pairs across leaves) + v² · (ordered row pairs across leaves)
//! ```

use super::boards::{Block, Boards, columns};
use super::greedy::{find, rows_in_common};
use super::shape::Shape;

/// The leaf of every row and of every column of boards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// By row: its leaf in the columns' trees, ascending.
    pub of_rows: Vec<u32>,
    /// By column: its leaf in the rows' trees, ascending.
    pub of_columns: Vec<u32>,
}

impl Leaves {
    /// `each` neighbouring boards under one leaf, both ways.
    #[must_use]
    pub fn of(rows: u32, columns: u32, each: u32) -> Self {
        let leaves = |lines: u32| (0..lines).map(|line| line / each).collect();
        Self { of_rows: leaves(rows), of_columns: leaves(columns) }
    }

    /// Ordered pairs of boards of a block across leaves, those of rows and of columns added up.
    #[must_use]
    pub fn crossing(&self, block: &Block) -> u64 {
        let [u, v] = [block.rows.len() as u64, block.columns.len() as u64];
        u * u * pairs_across(&self.of_columns, &block.columns)
            + v * v * pairs_across(&self.of_rows, &block.rows)
    }
}

/// Ordered pairs of `lines` under unlike leaves.
#[must_use]
pub fn pairs_across(leaves: &[u32], lines: &[u32]) -> u64 {
    let all = (lines.len() as u64).pow(2);
    let same = lines.chunk_by(|&a, &b| leaves[a as usize] == leaves[b as usize]);
    all - same.map(|run| (run.len() as u64).pow(2)).sum::<u64>()
}

/// A block of that shape below few leaves, all of its boards free.
#[must_use]
pub fn find_near(boards: &Boards, shape: Shape, leaves: &Leaves) -> Option<Block> {
    let plain = find(boards, shape)?;
    let mut least = leaves.crossing(&plain);
    let mut best = plain;
    let mut start = 0;
    for run in leaves.of_rows.chunk_by(|a, b| a == b) {
        if least == 0 {
            break;
        }
        let own = start..start + run.len() as u32;
        start = own.end;
        let order: Vec<u32> =
            own.clone().chain(own.end..boards.rows()).chain((0..own.start).rev()).collect();
        let Some((mut rows, common)) = rows_in_common(boards, shape, order.into_iter()) else {
            continue;
        };
        rows.sort_unstable();
        let columns = columns_leaf_by_leaf(&common, shape.columns, &leaves.of_columns);
        let block = Block { rows, columns };
        let crossing = leaves.crossing(&block);
        if crossing < least {
            (least, best) = (crossing, block);
        }
    }
    Some(best)
}

/// `count` of the columns in `common`, from as few leaves as can be.
fn columns_leaf_by_leaf(common: &[u64], count: u32, leaves: &[u32]) -> Vec<u32> {
    let all: Vec<u32> = columns(common).collect();
    let mut runs: Vec<&[u32]> =
        all.chunk_by(|&a, &b| leaves[a as usize] == leaves[b as usize]).collect();
    let mut chosen = Vec::with_capacity(count as usize);
    while chosen.len() < count as usize {
        let missing = count as usize - chosen.len();
        let (next, run) = runs
            .iter()
            .enumerate()
            .min_by_key(|(_, run)| match run.len() {
                enough if enough >= missing => (0, enough),
                less => (1, usize::MAX - less),
            })
            .expect("the rows have enough columns in common");
        chosen.extend(run.iter().take(missing));
        runs.remove(next);
    }
    chosen.sort_unstable();
    chosen
}
