//! The sub-grids that a job of so many boards may take.
//!
//! A job of `n` boards takes `u × v = n`, `u` rows and `v` columns. The first choice is the most square
//! pair of factors that fits the mesh, tall (`u ≥ v`) where that fits. A job without such a pair (17
//! boards on 16 × 16) takes the next larger size that has one. Further choices, in this order:
//! `transpose` adds `v × u`, `aspect` the other pairs up to `u/v = aspect`, the most square first. A job
//! that asks for a shape has it and, with `transpose`, its `v × u` as choices (`request.rs`).

use allrail_core::FieldError;

/// Rows and columns of boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Shape {
    /// How many rows.
    pub rows: u32,
    /// How many columns.
    pub columns: u32,
}

impl Shape {
    /// How many boards.
    #[must_use]
    pub fn boards(self) -> u32 {
        self.rows * self.columns
    }

    /// Rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows }
    }

    fn fits(self, rows: u32, columns: u32) -> bool {
        self.rows <= rows && self.columns <= columns
    }
}

/// Which shapes are tried beside the first choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Each shape also with rows and columns exchanged.
    pub transpose: bool,
    /// Other pairs of factors, up to this many times as long as wide.
    pub aspect: Option<u32>,
}

impl Choice {
    /// Checks the aspect.
    ///
    /// # Errors
    /// It is 0.
    pub fn validate(&self) -> Result<(), FieldError> {
        if self.aspect == Some(0) {
            return Err(FieldError::new(
                "aspect",
                0,
                "a shape is 1 time as long as wide at least",
                "`aspect: 8` is the largest that the paper takes",
            ));
        }
        Ok(())
    }
}

/// The shapes for a job of `boards` boards on a mesh of `rows × columns`, the first choice first;
/// none if it is larger than the mesh.
#[must_use]
pub fn shapes(boards: u32, rows: u32, columns: u32, choice: Choice) -> Vec<Shape> {
    let whole = u64::from(rows) * u64::from(columns);
    if boards == 0 || u64::from(boards) > whole {
        return Vec::new();
    }
    (boards..)
        .map(|size| of_size(size, rows, columns, choice))
        .find(|shapes| !shapes.is_empty())
        .expect("the whole mesh is a shape that fits")
}

/// A shape that a job asks for, and with `transpose` the same exchanged; those that fit.
#[must_use]
pub(super) fn turned(shape: Shape, rows: u32, columns: u32, choice: Choice) -> Vec<Shape> {
    let other = Some(shape.transposed()).filter(|&other| choice.transpose && other != shape);
    std::iter::once(shape).chain(other).filter(|shape| shape.fits(rows, columns)).collect()
}

fn of_size(size: u32, rows: u32, columns: u32, choice: Choice) -> Vec<Shape> {
    let mut found: Vec<Shape> = Vec::new();
    for width in (1..=size.isqrt()).rev().filter(|&width| size.is_multiple_of(width)) {
        let tall = Shape { rows: size / width, columns: width };
        let within = choice.aspect.is_some_and(|most| tall.rows <= most.saturating_mul(width));
        if !found.is_empty() && !within {
            break;
        }
        let wide = tall.transposed();
        if tall.fits(rows, columns) {
            found.push(tall);
        }
        // A mesh that is wider than high may have room for the wide shape alone.
        if (choice.transpose || found.is_empty()) && wide != tall && wide.fits(rows, columns) {
            found.push(wide);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(boards: u32, rows: u32, columns: u32, choice: Choice) -> Vec<(u32, u32)> {
        let shapes = shapes(boards, rows, columns, choice);
        shapes.iter().map(|shape| (shape.rows, shape.columns)).collect()
    }

    #[test]
    fn most_square_first_then_transposed_then_longer() {
        let only = Choice::default();
        assert_eq!(listed(12, 16, 16, only), [(4, 3)]);
        let transpose = Choice { transpose: true, aspect: None };
        assert_eq!(listed(12, 16, 16, transpose), [(4, 3), (3, 4)]);
        let all = Choice { transpose: true, aspect: Some(8) };
        assert_eq!(listed(12, 16, 16, all), [(4, 3), (3, 4), (6, 2), (2, 6)]);
        assert_eq!(listed(9, 16, 16, Choice { aspect: Some(9), ..only }), [(3, 3), (9, 1)]);
    }

    #[test]
    fn sizes_without_a_shape_grow_and_larger_ones_have_none() {
        assert_eq!(listed(17, 16, 16, Choice::default()), [(6, 3)]);
        assert_eq!(listed(22, 8, 8, Choice::default()), [(6, 4)]);
        assert_eq!(listed(257, 16, 16, Choice::default()), []);
        assert_eq!(listed(6, 2, 16, Choice::default()), [(2, 3)]);
        assert_eq!(listed(0, 2, 2, Choice::default()), []);
    }

    #[test]
    fn a_job_without_a_square_shape_takes_its_line_whatever_the_aspect() {
        assert_eq!(listed(13, 16, 16, Choice { transpose: false, aspect: Some(2) }), [(13, 1)]);
    }
}
