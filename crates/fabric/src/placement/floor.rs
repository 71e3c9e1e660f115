//! What jobs are placed on: the boards of a fabric as rows and columns, and what a block may be.
//!
//! | topology | rows × columns | a job takes |
//! |---|---|---|
//! | `hammingmesh` | boards | any rows crossed with any columns |
//! | `hammingmesh_3d` | boards: planes along its first dimension, the other two as columns | any planes crossed with any rows and columns |
//! | `torus` | boards (of three dimensions, the last two as columns) | neighbouring boards, also around the ends |
//! | `fat_tree` | one row of NPUs | any NPUs |
//!
//! A fat tree has no boards: each NPU counts as one.

use allrail_core::{Bandwidth, FieldError};

use super::boards::{Block, Boards};
use super::boxes;
use super::greedy::find;
use super::locality::{Leaves, find_near};
use super::request::{Request, Size, Unit};
use super::shape::{Choice, Shape, shapes, turned};
use super::torus;
use crate::graph::Wire;

/// What a job's block may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Any rows crossed with any columns.
    SubGrid,
    /// Any planes crossed with any rows and columns, of a mesh of boards with these sides.
    SubBoxes([u32; 3]),
    /// Neighbours on a torus of boards with these sides.
    Contiguous(Vec<u32>),
}

/// The boards of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Such as `hammingmesh`.
    pub topology: &'static str,
    /// NPUs of a board along each dimension.
    pub(crate) board: Vec<u64>,
    /// Boards that the fabric's file names as failed, as row and column.
    pub failed: Vec<[u32; 2]>,
    /// What a board can send into the network, over all planes.
    pub board_bandwidth: Bandwidth,
    /// The leaf switches of rows and columns; one leaf where there is no upper level.
    pub leaves: Leaves,
    /// What a job's block may be.
    pub(crate) rule: Rule,
}

/// One of the shapes that a job may take: its sides along the dimensions of the floor.
type Sides = Vec<u32>;

impl Floor {
    /// NPUs of a board.
    #[must_use]
    pub fn per_board(&self) -> u64 {
        self.board.iter().product()
    }

    /// NPUs of a board along each dimension.
    fn sides_of_board(&self) -> &[u64] {
        &self.board
    }

    /// Whether it is known which lines of boards stand below which leaf switches.
    #[must_use]
    pub fn knows_leaves(&self) -> bool {
        !matches!(self.rule, Rule::SubBoxes(_))
    }

    /// Boards along each of three dimensions; `None` where there are two.
    #[must_use]
    pub fn sides(&self) -> Option<[u32; 3]> {
        match &self.rule {
            Rule::SubGrid => None,
            Rule::SubBoxes(sides) => Some(*sides),
            Rule::Contiguous(sides) => sides.as_slice().try_into().ok(),
        }
    }

    /// Rows and columns of NPUs of a board.
    pub(super) fn board(&self) -> [u64; 2] {
        [self.board[0], self.board[1..].iter().product()]
    }

    /// Checks that a job can ask for a size here.
    ///
    /// # Errors
    /// It is a shape of more or fewer sides than the boards have dimensions.
    pub fn check(&self, field: String, size: Size) -> Result<(), FieldError> {
        let three = self.sides().is_some();
        let (why, hint) = match size.sides() {
            Some(2) if three => (
                "the shape has two sides, and the boards three dimensions",
                "write three sides, such as `2x4x1`, or how many boards the job has",
            ),
            Some(3) if !three => (
                "the shape has three sides, and the boards two dimensions",
                "write rows and columns, such as `2x4`, or how many boards the job has",
            ),
            _ => return Ok(()),
        };
        Err(FieldError::new(field, size, why, hint))
    }

    /// Checks that jobs can be kept below few leaf switches here.
    ///
    /// # Errors
    /// The leaves of three dimensions are not known.
    pub fn check_leaves(&self, locality: bool, each: Option<u32>) -> Result<(), FieldError> {
        if self.knows_leaves() || !(locality || each.is_some()) {
            return Ok(());
        }
        let (field, value) = match each {
            Some(each) => ("leaf_boards", each.to_string()),
            None => ("locality", "true".to_owned()),
        };
        let why = "leaf switches are known of two dimensions only, and these boards have three";
        Err(FieldError::new(field, value, why, "leave it out"))
    }

    /// Whether any rows crossed with any columns are a block.
    #[must_use]
    pub fn takes_sub_grids(&self) -> bool {
        self.rule == Rule::SubGrid
    }

    /// Rows of boards.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.leaves.of_rows.len() as u32
    }

    /// Columns of boards.
    #[must_use]
    pub fn columns(&self) -> u32 {
        self.leaves.of_columns.len() as u32
    }

    /// The boards that a job of a size asks for: whole ones. `None` if they are more than there are.
    #[must_use]
    pub fn request(&self, size: Size, unit: Unit) -> Option<Request> {
        let whole = |count: u64, each: u64| match unit {
            Unit::Boards => count,
            Unit::Npus => count.div_ceil(each),
        };
        let request = match size {
            Size::Count(count) => {
                Request::Boards(u32::try_from(whole(count, self.per_board())).ok()?)
            }
            Size::Sides([rows, columns]) => {
                let [high, wide] = self.board();
                Request::Sides(Shape {
                    rows: u32::try_from(whole(rows, high)).ok()?,
                    columns: u32::try_from(whole(columns, wide)).ok()?,
                })
            }
            Size::Cuboid(sides) => {
                let mut boards = [0; 3];
                for ((to, side), each) in boards.iter_mut().zip(sides).zip(self.sides_of_board()) {
                    *to = u32::try_from(whole(side, *each)).ok()?;
                }
                Request::Cuboid(boards)
            }
        };
        (u64::from(request.boards()?) <= self.boards()).then_some(request)
    }

    /// All boards, failed ones among them.
    #[must_use]
    pub fn boards(&self) -> u64 {
        u64::from(self.rows()) * u64::from(self.columns())
    }

    /// The boards that are free when no job is there.
    #[must_use]
    pub fn empty(&self) -> Boards {
        let mut boards = Boards::new(self.rows(), self.columns());
        for &[row, column] in &self.failed {
            boards.fail(row, column);
        }
        boards
    }

    /// The shapes of a job that asks for this, the first choice first; none if it is larger than the
    /// floor.
    #[must_use]
    pub fn shapes(&self, request: Request, choice: Choice) -> Vec<Sides> {
        let pairs = |shapes: Vec<Shape>| {
            shapes.into_iter().map(|shape| vec![shape.rows, shape.columns]).collect()
        };
        match (request, &self.rule) {
            (Request::Sides(shape), _) => pairs(turned(shape, self.rows(), self.columns(), choice)),
            (Request::Cuboid(sides), _) => {
                self.sides().map_or_else(Vec::new, |whole| torus::turned(&sides, &whole, choice))
            }
            (Request::Boards(boards), Rule::SubBoxes(sides)) => {
                torus::shapes(boards, sides, choice)
            }
            (Request::Boards(boards), Rule::SubGrid) => {
                pairs(shapes(boards, self.rows(), self.columns(), choice))
            }
            (Request::Boards(boards), Rule::Contiguous(sides)) => {
                torus::shapes(boards, sides, choice)
            }
        }
    }

    /// Free boards of the first of `shapes` that has a block; below few leaves if `near`.
    #[must_use]
    pub fn find(&self, free: &Boards, shapes: &[Sides], near: bool) -> Option<Block> {
        shapes.iter().find_map(|sides| match &self.rule {
            Rule::Contiguous(whole) => torus::find(free, sides, whole),
            Rule::SubBoxes(whole) => boxes::find(free, sides, whole),
            Rule::SubGrid => {
                let shape = Shape { rows: sides[0], columns: sides[1] };
                if near { find_near(free, shape, &self.leaves) } else { find(free, shape) }
            }
        })
    }
}

/// Two cables at the ends of every line of the `npus` NPUs of a board along these sides, in every plane.
pub(crate) fn at_edges(sides: &[u32], npus: u64, planes: u32, link: Wire) -> Bandwidth {
    let cables: u64 = sides.iter().map(|&side| 2 * npus / u64::from(side)).sum();
    times(link.bandwidth, cables * u64::from(planes))
}

/// The bandwidth of `links` alike links together.
pub(crate) fn times(bandwidth: Bandwidth, links: u64) -> Bandwidth {
    let sum = bandwidth.bytes_per_second().saturating_mul(links);
    Bandwidth::from_bytes_per_second(sum).expect("a board has cables")
}
