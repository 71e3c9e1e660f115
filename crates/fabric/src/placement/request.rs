//! What a job asks for: so many boards, in any of the shapes that they can have, or a shape.
//!
//! A job that asks for a shape (`2x4`: 2 rows and 4 columns) was written for it, such as one whose tensor
//! parallelism runs along rows: it gets these sides and no others, with `transpose` also `4x2`. Where boards
//! have three dimensions, so has a shape (`2x4x1`). `aspect` reshapes jobs that ask for a number only.

use std::fmt;

use super::shape::Shape;

/// A size as a file has it, in boards or NPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// So many, however they lie.
    Count(u64),
    /// Rows and columns.
    Sides([u64; 2]),
    /// Along three dimensions.
    Cuboid([u64; 3]),
}

impl Size {
    /// How many of its unit.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Sides([rows, columns]) => rows.saturating_mul(columns),
            Self::Cuboid(sides) => sides.into_iter().fold(1, u64::saturating_mul),
        }
    }

    /// How many sides it says; `None` of a number.
    #[must_use]
    pub fn sides(self) -> Option<usize> {
        match self {
            Self::Count(_) => None,
            Self::Sides(sides) => Some(sides.len()),
            Self::Cuboid(sides) => Some(sides.len()),
        }
    }
}

/// What a size of a histogram counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Boards.
    #[default]
    Boards,
    /// NPUs; a job has whole boards.
    Npus,
}

impl From<u64> for Size {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(to, "{count}"),
            Self::Sides([rows, columns]) => write!(to, "{rows}x{columns}"),
            Self::Cuboid([a, b, c]) => write!(to, "{a}x{b}x{c}"),
        }
    }
}

/// What a job asks for, in boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(untagged)]
pub enum Request {
    /// So many boards, in one of the shapes that they can have (`shape.rs`).
    Boards(u32),
    /// These rows and columns.
    Sides(Shape),
    /// These sides along three dimensions.
    Cuboid([u32; 3]),
}

impl Request {
    /// How many boards; `None` beyond `u32`.
    #[must_use]
    pub fn boards(self) -> Option<u32> {
        match self {
            Self::Boards(boards) => Some(boards),
            Self::Sides(Shape { rows, columns }) => rows.checked_mul(columns),
            Self::Cuboid([a, b, c]) => a.checked_mul(b)?.checked_mul(c),
        }
    }
}

impl From<u32> for Request {
    fn from(boards: u32) -> Self {
        Self::Boards(boards)
    }
}

impl From<Shape> for Request {
    fn from(shape: Shape) -> Self {
        Self::Sides(shape)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boards(boards) => write!(to, "{boards}"),
            Self::Sides(Shape { rows, columns }) => write!(to, "{rows}x{columns}"),
            Self::Cuboid([a, b, c]) => write!(to, "{a}x{b}x{c}"),
        }
    }
}
