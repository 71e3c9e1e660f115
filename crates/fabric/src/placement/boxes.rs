//! Blocks on a `HammingMesh` of three dimensions: any planes crossed with any rows and any columns.
//!
//! Every line of boards along a dimension ends in a tree of its own, so a job on such a block is a
//! `HammingMesh` of three dimensions itself, wherever its planes, rows and columns lie. The search is
//! that of `greedy.rs`, one dimension further: from a first plane on, every plane is added that leaves a
//! block of `v × w` boards free in all planes so far, until there are `u`; where that fails, it starts
//! again at the next plane. As there, a block that exists may be missed: a plane is never given up
//! (how often: `tests/it/placement_boxes.rs`).
//!
//! A plane is a row of [`Boards`], its rows and columns are folded into the columns, row by row.

use super::boards::{Block, Boards};
use super::greedy;
use super::shape::Shape;

/// The first block of free boards with `sides` on a mesh with sides `whole`.
pub(super) fn find(free: &Boards, sides: &[u32], whole: &[u32]) -> Option<Block> {
    let shape = Shape { rows: sides[1], columns: sides[2] };
    let plane = |at: u32| {
        Boards::of(whole[1], whole[2], |row, column| free.is_free(at, row * whole[2] + column))
    };
    let enough = |at: &u32| free.free_in_row(*at) >= shape.boards();
    let planes: Vec<(u32, Boards)> =
        (0..whole[0]).filter(enough).map(|at| (at, plane(at))).collect();
    (0..planes.len()).find_map(|start| from(&planes[start..], sides[0], shape)).map(
        |(rows, block)| {
            let columns = block
                .rows
                .iter()
                .flat_map(|row| block.columns.iter().map(move |column| row * whole[2] + column));
            Block { rows, columns: columns.collect() }
        },
    )
}

/// `count` of `planes`, the first among them, and a block of `shape` that is free in all of these.
fn from(planes: &[(u32, Boards)], count: u32, shape: Shape) -> Option<(Vec<u32>, Block)> {
    let ((first, common), others) = planes.split_first()?;
    if planes.len() < count as usize {
        return None;
    }
    let (mut taken, mut common) = (vec![*first], common.clone());
    let mut block = greedy::find(&common, shape)?;
    for (at, free) in others {
        if taken.len() == count as usize {
            break;
        }
        let both = common.in_common(free);
        if let Some(found) = greedy::find(&both, shape) {
            (block, common) = (found, both);
            taken.push(*at);
        }
    }
    (taken.len() == count as usize).then_some((taken, block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_rows_and_columns_need_not_be_neighbours() {
        // 3 x 3 x 3; the middle plane is taken, and in the others the middle row and column.
        let free =
            Boards::of(3, 9, |plane, folded| plane != 1 && folded / 3 != 1 && folded % 3 != 1);
        let block = find(&free, &[2, 2, 2], &[3, 3, 3]).expect("the eight corners");
        assert_eq!((block.rows, block.columns), (vec![0, 2], vec![0, 2, 6, 8]));
        assert_eq!(find(&free, &[3, 1, 1], &[3, 3, 3]), None);
        assert_eq!(find(&free, &[1, 1, 3], &[3, 3, 3]), None);
    }
}
