//! What a job asks for: so many boards, in any of the shapes that they can have, or a shape.
//!
//! A job that asks for a shape (`2x4`: 2 rows and 4 columns) was written for it, such as one whose tensor
//! parallelism runs along rows: it gets these sides and no others, with `transpose` also `4x2`. Where boards
//! have three dimensions, so has a shape (`2x4x1`). `aspect` reshapes jobs that ask for a number only.

use std::fmt;

use super::floor::Floor;
use super::mix::Unit;
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

    /// The boards that it asks for: whole ones. `None` if they are more than `floor` has.
    #[must_use]
    pub fn on(self, floor: &Floor, unit: Unit) -> Option<Request> {
        let whole = |count: u64, each: u64| match unit {
            Unit::Boards => count,
            Unit::Npus => count.div_ceil(each),
        };
        let request = match self {
            Self::Count(count) => {
                Request::Boards(u32::try_from(whole(count, floor.per_board())).ok()?)
            }
            Self::Sides([rows, columns]) => {
                let [high, wide] = floor.board();
                Request::Sides(Shape {
                    rows: u32::try_from(whole(rows, high)).ok()?,
                    columns: u32::try_from(whole(columns, wide)).ok()?,
                })
            }
            Self::Cuboid(sides) => {
                let mut boards = [0; 3];
                for ((to, side), each) in boards.iter_mut().zip(sides).zip(floor.sides_of_board()) {
                    *to = u32::try_from(whole(side, *each)).ok()?;
                }
                Request::Cuboid(boards)
            }
        };
        (u64::from(request.boards()?) <= floor.boards()).then_some(request)
    }
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
