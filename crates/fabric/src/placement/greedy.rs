//! The greedy row-intersection allocation of `HammingMesh` (SC'22).
//!
//! A block of `u × v` boards needs `u` rows whose sets of free columns have `v` columns in common. The
//! search starts at the first row with `v` free columns and adds every further row that leaves `v` in
//! common, until it has `u`; of the columns in common it takes the lowest. Where that fails, it starts
//! again at the next row. One start is `rows · columns / 64` word operations, and one is nearly always
//! enough.
//!
//! It may miss a block that exists: a row that was added is never given up. How often is measured
//! against an exhaustive search in `tests/it/placement_oracle.rs`.
//!
//! ```
//! use allrail_fabric::placement::{Boards, Shape, find};
//! let mut boards = Boards::new(4, 4);
//! boards.fail(0, 0);
//! let block = find(&boards, Shape { rows: 2, columns: 3 }).unwrap();
//! assert_eq!((block.rows, block.columns), (vec![0, 1], vec![1, 2, 3]));
//! ```

use super::boards::{Block, Boards, columns};
use super::shape::Shape;

/// The first block of that shape whose boards are all free.
#[must_use]
pub fn find(boards: &Boards, shape: Shape) -> Option<Block> {
    let wide_enough = |row: &u32| boards.free_in_row(*row) >= shape.columns;
    let (rows, common) = (0..boards.rows())
        .filter(wide_enough)
        .find_map(|start| rows_in_common(boards, shape, start..boards.rows()))?;
    Some(Block { rows, columns: columns(&common).take(shape.columns as usize).collect() })
}

/// The first `shape.rows` rows of `order` that leave `shape.columns` free columns in common, in that
/// order, and these columns.
pub(super) fn rows_in_common(
    boards: &Boards,
    shape: Shape,
    order: impl ExactSizeIterator<Item = u32>,
) -> Option<(Vec<u32>, Vec<u64>)> {
    let needed = shape.rows as usize;
    let mut rows: Vec<u32> = Vec::with_capacity(needed);
    let mut common: Vec<u64> = Vec::new();
    let mut ahead = order.len();
    for row in order {
        if rows.len() + ahead < needed {
            return None;
        }
        ahead -= 1;
        if boards.free_in_row(row) < shape.columns {
            continue;
        }
        let free = boards.row(row);
        if rows.is_empty() {
            common.extend_from_slice(free);
        } else {
            let left: u32 = common.iter().zip(free).map(|(a, b)| (a & b).count_ones()).sum();
            if left < shape.columns {
                continue;
            }
            common.iter_mut().zip(free).for_each(|(a, b)| *a &= b);
        }
        rows.push(row);
        if rows.len() == needed {
            return Some((rows, common));
        }
    }
    None
}
