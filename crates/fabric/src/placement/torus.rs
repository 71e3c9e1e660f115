//! Contiguous blocks on a torus of boards, for comparison.
//!
//! A job takes `n` boards as a box of neighbours, which may go around the ends. Its sides are the
//! factors of `n` that are the most alike, the longest along the first dimension; a number without a box
//! that fits is rounded up. `transpose` adds the other assignments of sides to dimensions, `aspect` the
//! boxes whose longest side is at most so many times the shortest. Of all places, the first in row-major
//! order of the box's first corner is taken: `places · n` tests at most. A third dimension is folded into
//! the columns of [`Boards`], row-major.

use super::boards::{Block, Boards};
use super::shape::Choice;

/// The boxes of so many boards on a torus, or a mesh of boards, with sides `whole`, the first choice first.
pub(super) fn shapes(boards: u32, whole: &[u32], choice: Choice) -> Vec<Vec<u32>> {
    let all: u64 = whole.iter().map(|&side| u64::from(side)).product();
    if boards == 0 || u64::from(boards) > all {
        return Vec::new();
    }
    (boards..)
        .map(|size| of_size(size, whole, choice))
        .find(|shapes| !shapes.is_empty())
        .expect("the whole torus is a box that fits")
}

fn of_size(size: u32, whole: &[u32], choice: Choice) -> Vec<Vec<u32>> {
    let mut boxes = factors(size, whole.len(), size);
    boxes.sort_by_key(|sides| (sides[0], std::cmp::Reverse(sides[sides.len() - 1])));
    let mut found: Vec<Vec<u32>> = Vec::new();
    for sides in boxes {
        let shortest = *sides.last().expect("a torus has dimensions");
        let within = choice.aspect.is_some_and(|most| sides[0] <= most.saturating_mul(shortest));
        if !found.is_empty() && !within {
            continue;
        }
        for (index, turned) in orders(&sides).into_iter().enumerate() {
            let fits = turned.iter().zip(whole).all(|(side, whole)| side <= whole);
            if fits && (index == 0 || choice.transpose || found.is_empty()) {
                found.push(turned);
            }
        }
    }
    found
}

/// `size` as a product of so many factors, none above `most`, descending.
fn factors(size: u32, count: usize, most: u32) -> Vec<Vec<u32>> {
    if count == 1 {
        return if size <= most { vec![vec![size]] } else { Vec::new() };
    }
    let first = (1..=size.min(most)).rev().filter(|&first| size.is_multiple_of(first));
    first
        .flat_map(|first| {
            let rest = factors(size / first, count - 1, first).into_iter();
            rest.map(move |rest| [vec![first], rest].concat())
        })
        .collect()
}

/// A box that a job asks for, and with `transpose` all orders of its sides; those that fit.
pub(super) fn turned(sides: &[u32], whole: &[u32], choice: Choice) -> Vec<Vec<u32>> {
    let mut all = orders(sides);
    all.truncate(if choice.transpose { all.len() } else { 1 });
    all.retain(|sides| sides.iter().zip(whole).all(|(side, whole)| side <= whole));
    all
}

/// All orders of `sides`, each once, the given one first.
fn orders(sides: &[u32]) -> Vec<Vec<u32>> {
    if sides.len() < 2 {
        return vec![sides.to_vec()];
    }
    let mut found: Vec<Vec<u32>> = Vec::new();
    for first in 0..sides.len() {
        let rest = [&sides[..first], &sides[first + 1..]].concat();
        for order in orders(&rest) {
            let order = [vec![sides[first]], order].concat();
            if !found.contains(&order) {
                found.push(order);
            }
        }
    }
    found
}

/// The first box of free boards with these sides.
pub(super) fn find(free: &Boards, sides: &[u32], whole: &[u32]) -> Option<Block> {
    let columns_from = |corner: u32| match *whole {
        [_, columns] => around(corner, sides[1], columns),
        [_, middle, inner] => around(corner / inner, sides[1], middle)
            .into_iter()
            .flat_map(|at| {
                around(corner % inner, sides[2], inner).into_iter().map(move |i| at * inner + i)
            })
            .collect(),
        _ => unreachable!("a torus has 2 or 3 dimensions"),
    };
    let places: Vec<Vec<u32>> = (0..free.columns()).map(columns_from).collect();
    for row in 0..free.rows() {
        let rows = around(row, sides[0], whole[0]);
        if rows.iter().any(|&row| free.free_in_row(row) < places[0].len() as u32) {
            continue;
        }
        let fits = |columns: &Vec<u32>| {
            rows.iter().all(|&row| columns.iter().all(|&column| free.is_free(row, column)))
        };
        if let Some(columns) = places.iter().find(|columns| fits(columns)) {
            return Some(Block { rows, columns: columns.clone() });
        }
    }
    None
}

/// `count` neighbours from `start` on, on a ring of `whole`.
fn around(start: u32, count: u32, whole: u32) -> Vec<u32> {
    (0..count).map(|step| (start + step) % whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_cubic_as_they_can_be() {
        let only = Choice::default();
        assert_eq!(shapes(12, &[16, 16], only), [[4, 3]]);
        assert_eq!(shapes(17, &[16, 16], only), [[6, 3]]);
        assert_eq!(shapes(12, &[4, 4, 4], only), [[3, 2, 2]]);
        let turned = shapes(12, &[4, 4, 4], Choice { transpose: true, aspect: Some(4) });
        assert_eq!(turned[..3], [[3, 2, 2], [2, 3, 2], [2, 2, 3]]);
        assert!(turned.contains(&vec![1, 3, 4]));
    }

    #[test]
    fn a_box_goes_around_the_ends_and_stays_together() {
        let mut free = Boards::new(4, 4);
        for row in 0..4 {
            free.fail(row, 1);
        }
        let block = find(&free, &[2, 3], &[4, 4]).expect("columns 2, 3 and 0 are neighbours");
        assert_eq!((block.rows, block.columns), (vec![0, 1], vec![2, 3, 0]));
        for row in 0..4 {
            free.fail(row, 3);
        }
        assert!(find(&free, &[2, 2], &[4, 4]).is_none(), "a HammingMesh would cross 0 and 2");
    }

    #[test]
    fn a_third_dimension_is_part_of_the_columns() {
        let mut free = Boards::new(2, 9);
        free.fail(0, 4);
        let block = find(&free, &[2, 2, 2], &[2, 3, 3]).expect("it goes around the middle");
        assert_eq!(block.columns, [2, 0, 5, 3]);
    }
}
