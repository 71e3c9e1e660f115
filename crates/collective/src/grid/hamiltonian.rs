//! Cycles through all NPUs of a torus: one for any grid, two that share no link for some.
//!
//! Two edge-disjoint Hamiltonian cycles take all `2rc` cables of an `r × c` torus. With
//! `X = c·x₁ + x₀`, `0 ≤ x₀ < c`, position `X` of the two is (row, column)
//!
//! ```text
//! red    (x₁, (x₀ − x₁) mod c)
//! green  ((x₁(c − 1) + x₀) mod r, x₁ mod c)
//! ```
//!
//! They are Hamiltonian and disjoint just if `r = kc` and `gcd(r, c − 1) = 1`; where the transposed
//! grid is such, rows and columns change places. Red goes once along a row and down to the next,
//! green `c − 1` down a column and on to the next, which are the links that red leaves out.
//!
//! One cycle, [`cycle`], exists on every grid. It goes through the rows, each whole, in either
//! direction, and down to the next where it ends. A row to the right moves that place by −1, one to
//! the left by +1, so it closes if the signs add up to a multiple of `c`: alternating ones for an even
//! `r` (which needs no wrap within a row), `(r + c)/2` against `(r − c)/2` if both are odd and `r ≥ c`.
//! Otherwise the transposed grid is one of these.
//!
//! Source: Bae, `AlBdaiwi` and Bose, "Edge-disjoint Hamiltonian cycles in two-dimensional torus", 2004,
//! as `HammingMesh` (SC'22, Section V) uses them. The formulas were derived from their condition and
//! checked exhaustively for `2 ≤ c ≤ 24`, `2 ≤ r ≤ 120`. Not covered: grids that have such a pair by
//! another construction, such as 96 × 4.
//!
//! ```
//! use allrail_collective::grid::hamiltonian::{cycle, pair};
//! let [red, green] = pair(4, 4)?;
//! assert_eq!((&red[..5], &green[..5]), (&[0, 1, 2, 3, 7][..], &[0, 4, 8, 12, 13][..]));
//! assert_eq!(cycle(2, 3), [0, 1, 2, 5, 4, 3]);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use super::refusal;
use crate::CollectiveError;

/// The tag in scenario files of the all-reduce over [`pair`], which refusals name.
pub(super) const RINGS: &str = "rings";

/// Two edge-disjoint Hamiltonian cycles of a torus: the ranks in their order.
///
/// # Errors
/// The grid has none by this construction; the reason names the divisor.
pub fn pair(rows: u32, columns: u32) -> Result<[Vec<u32>; 2], CollectiveError> {
    check_pair(rows, columns)?;
    if fits(rows, columns) {
        let rank = |(row, column)| row * columns + column;
        return Ok([
            red(rows, columns).map(rank).collect(),
            green(rows, columns).map(rank).collect(),
        ]);
    }
    let rank = |(column, row)| row * columns + column;
    Ok([red(columns, rows).map(rank).collect(), green(columns, rows).map(rank).collect()])
}

/// Whether [`pair`] has two cycles for a grid.
///
/// # Errors
/// As [`pair`].
pub(crate) fn check_pair(rows: u32, columns: u32) -> Result<(), CollectiveError> {
    if fits(rows, columns) || fits(columns, rows) {
        return Ok(());
    }
    let (long, short) = (rows.max(columns), rows.min(columns));
    let why = if short < 2 {
        "two edge-disjoint Hamiltonian cycles need 2 rows and 2 columns at least".to_owned()
    } else if !long.is_multiple_of(short) {
        format!(
            "its two cycles need a long side that is a multiple of the short one: {long} is none of {short}"
        )
    } else {
        let (less, divisor) = (short - 1, gcd(long, short - 1));
        format!(
            "its two cycles need gcd({long}, {short} - 1) = 1, and gcd({long}, {less}) is {divisor}"
        )
    };
    let hint = match nearest(long, short) {
        Some(long) => {
            let [rows, columns] = if rows < columns { [short, long] } else { [long, short] };
            format!("take `algorithm: torus`, or a fabric of {rows}x{columns} NPUs")
        }
        None => "take `algorithm: ring`".to_owned(),
    };
    Err(refusal(RINGS, rows, columns, why, hint))
}

/// One Hamiltonian cycle of a torus, the ranks in its order; on every grid of 2 ranks or more.
#[must_use]
pub fn cycle(rows: u32, columns: u32) -> Vec<u32> {
    let as_it_is = rows.is_multiple_of(2) || (columns % 2 == 1 && rows >= columns);
    let (r, c) = if as_it_is { (rows, columns) } else { (columns, rows) };
    let mut order = Vec::with_capacity(rows as usize * columns as usize);
    let mut start = 0;
    for row in 0..r {
        // For odd sides the surplus of rows to the right comes first: c of them move it round once.
        let right = if r.is_multiple_of(2) {
            row.is_multiple_of(2)
        } else {
            row < c || (row - c).is_multiple_of(2)
        };
        order.extend((0..c).map(|i| {
            let column = if right { (start + i) % c } else { (start + c - i) % c };
            if as_it_is { row * columns + column } else { column * columns + row }
        }));
        start = if right { (start + c - 1) % c } else { (start + 1) % c };
    }
    order
}

fn fits(rows: u32, columns: u32) -> bool {
    columns >= 2 && rows >= 2 && rows.is_multiple_of(columns) && gcd(rows, columns - 1) == 1
}

/// The multiple of `short` next to `long` that has a pair with it; the smaller of two.
fn nearest(long: u32, short: u32) -> Option<u32> {
    if short < 2 {
        return None;
    }
    let near = long / short;
    let around = (0..=near).flat_map(|away| [near - away, near + away]);
    around.filter(|k| *k > 0).find_map(|k| short.checked_mul(k).filter(|long| fits(*long, short)))
}

fn red(r: u32, c: u32) -> impl Iterator<Item = (u32, u32)> {
    positions(r, c).map(move |(x1, x0)| (x1, (x0 + c - x1 % c) % c))
}

fn green(r: u32, c: u32) -> impl Iterator<Item = (u32, u32)> {
    let row = move |x1: u32, x0: u32| {
        let row = (u64::from(x1) * u64::from(c - 1) + u64::from(x0)) % u64::from(r);
        u32::try_from(row).expect("less than r")
    };
    positions(r, c).map(move |(x1, x0)| (row(x1, x0), x1 % c))
}

/// `(x₁, x₀)` in the order of `X`.
fn positions(r: u32, c: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..r).flat_map(move |x1| (0..c).map(move |x0| (x1, x0)))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use allrail_core::FieldError;

    use super::*;

    /// Which of an NPU's four cables leads to the next: 0, 1 right, left; 2, 3 down, up.
    fn cables(r: u32, c: u32, from: (u32, u32), to: (u32, u32)) -> Vec<usize> {
        let beside = [
            (from.0, (from.1 + 1) % c),
            (from.0, (from.1 + c - 1) % c),
            ((from.0 + 1) % r, from.1),
            ((from.0 + r - 1) % r, from.1),
        ];
        (0..4).filter(|way| beside[*way] == to).collect()
    }

    /// Whether these are Hamiltonian cycles that use no cable twice. Between two NPUs of a dimension
    /// of 2 there are two cables.
    fn valid(r: u32, c: u32, cycles: &[Vec<(u32, u32)>]) -> bool {
        let index = |(row, column): (u32, u32)| (row * c + column) as usize;
        // The cable to the right and the one down of each NPU.
        let mut used = vec![[false; 2]; (r * c) as usize];
        for cycle in cycles {
            let mut seen = vec![false; (r * c) as usize];
            if cycle.len() != seen.len()
                || cycle.iter().any(|npu| std::mem::replace(&mut seen[index(*npu)], true))
            {
                return false;
            }
            for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                let free = cables(r, c, *from, *to).into_iter().find_map(|way| {
                    let owner = if way % 2 == 0 { *from } else { *to };
                    let cable = (index(owner), way / 2);
                    (!used[cable.0][cable.1]).then_some(cable)
                });
                let Some((owner, way)) = free else { return false };
                used[owner][way] = true;
            }
        }
        true
    }

    fn on_grid(order: &[u32], columns: u32) -> Vec<(u32, u32)> {
        order.iter().map(|rank| (rank / columns, rank % columns)).collect()
    }

    #[test]
    fn the_published_sizes_have_a_pair_that_uses_every_cable() {
        let published = [(4, 4), (8, 4), (9, 3), (16, 8), (16, 16), (32, 32), (64, 64), (128, 128)];
        for (r, c) in published.into_iter().chain([(4, 8), (3, 9), (8, 16)]) {
            let cycles = pair(r, c).expect("a pair").map(|order| on_grid(&order, c));
            assert!(valid(r, c, &cycles), "{r}x{c}");
            // Two cycles of rc cables each, none twice: all 2rc.
            assert_eq!(cycles.iter().map(Vec::len).sum::<usize>(), 2 * (r * c) as usize);
        }
    }

    #[test]
    fn the_sequences_of_4x4_and_8x4() {
        let digits = |text: &str| -> Vec<(u32, u32)> {
            let digit = |c: char| c.to_digit(10).expect("a digit");
            text.split(' ')
                .map(|pair| {
                    let mut digits = pair.chars().map(digit);
                    (digits.next().expect("a row"), digits.next().expect("a column"))
                })
                .collect()
        };
        let expected = [
            (4, "00 01 02 03 13 10 11 12 22 23 20 21 31 32 33 30"),
            (4, "00 10 20 30 31 01 11 21 22 32 02 12 13 23 33 03"),
            (
                8,
                "00 01 02 03 13 10 11 12 22 23 20 21 31 32 33 30 40 41 42 43 53 50 51 52 62 63 60 \
                 61 71 72 73 70",
            ),
            (
                8,
                "00 10 20 30 31 41 51 61 62 72 02 12 13 23 33 43 40 50 60 70 71 01 11 21 22 32 42 \
                 52 53 63 73 03",
            ),
        ];
        for (i, (r, text)) in expected.into_iter().enumerate() {
            let cycles = pair(r, 4).expect("a pair");
            assert_eq!(on_grid(&cycles[i % 2], 4), digits(text), "{r}x4");
        }
    }

    #[test]
    fn the_condition_is_the_truth_for_all_small_grids() {
        for c in 2..=24 {
            for r in 2..=120 {
                let cycles = [red(r, c).collect(), green(r, c).collect()];
                assert_eq!(valid(r, c, &cycles), fits(r, c), "{r}x{c}");
            }
        }
    }

    #[test]
    fn a_pair_that_shares_a_cable_or_jumps_is_no_pair() {
        let [red, green] = pair(8, 4).expect("a pair").map(|order| on_grid(&order, 4));
        assert!(!valid(8, 4, &[red.clone(), red.clone()]));
        let mut jumping = green;
        jumping.swap(3, 9);
        assert!(!valid(8, 4, &[red, jumping]));
    }

    #[test]
    fn every_grid_has_one_cycle() {
        for r in 1..=13 {
            for c in (1..=13).filter(|c| r * c >= 2) {
                assert!(valid(r, c, &[on_grid(&cycle(r, c), c)]), "{r}x{c}");
            }
        }
        for (r, c) in [(2, 70_001), (70_001, 3), (1, 70_001)] {
            assert!(valid(r, c, &[on_grid(&cycle(r, c), c)]), "{r}x{c}");
        }
    }

    #[test]
    fn grids_without_a_pair_are_refused_with_the_reason() {
        let refused = |r, c| match pair(r, c) {
            Err(CollectiveError::Field(FieldError { value, why, hint, .. })) => (value, why, hint),
            other => panic!("{r}x{c}: {other:?}"),
        };
        let (value, why, hint) = refused(96, 4);
        assert_eq!(value, "rings on 96x4");
        assert_eq!(why, "its two cycles need gcd(96, 4 - 1) = 1, and gcd(96, 3) is 3");
        assert_eq!(hint, "take `algorithm: torus`, or a fabric of 92x4 NPUs");
        assert!(refused(4, 96).2.ends_with("4x92 NPUs"));
        assert_eq!(refused(4, 96).1, why);
        assert!(refused(10, 4).1.contains("10 is none of 4"));
        assert!(refused(1, 1 << 31).1.contains("2 rows"));
        assert!(refused(0, 0).1.contains("2 rows"));
        assert!(pair(92, 4).is_ok());
    }
}
