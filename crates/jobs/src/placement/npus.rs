//! The NPUs of a placed job, as the `HammingMesh` of its own that they are.
//!
//! A job on `u × v` boards of `a × b` NPUs has a virtual grid of `a·u` rows and `b·v` columns of NPUs.
//! Neighbours in it are adjacent: on one board by a trace, from board to board by the tree of their row
//! or column. NPUs are numbered as in the graph of one plane (`topologies/hammingmesh.rs`): row by row
//! over the whole mesh, failed boards left out.

use allrail_fabric::graph::NodeId;
use allrail_fabric::topologies::hammingmesh::HammingMesh;

use super::place::Placed;

/// The numbers of all NPUs of a mesh, made once for many jobs.
pub struct Numbering {
    board: [u32; 2],
    columns: u32,
    numbers: Vec<Option<NodeId>>,
}

/// A job's NPUs in rows and columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualGrid {
    /// Rows of NPUs.
    pub rows: u32,
    /// Columns of NPUs.
    pub columns: u32,
    /// The NPUs, row by row.
    pub npus: Vec<NodeId>,
}

impl VirtualGrid {
    /// The NPU in a row and a column.
    #[must_use]
    pub fn at(&self, row: u32, column: u32) -> NodeId {
        self.npus[(row * self.columns + column) as usize]
    }
}

impl Numbering {
    /// The numbers of a validated mesh.
    #[must_use]
    pub fn new(mesh: &HammingMesh) -> Self {
        let columns = mesh.board[1] * mesh.grid[0];
        Self { board: mesh.board, columns, numbers: mesh.numbers().0 }
    }

    /// A placed job's NPUs.
    ///
    /// # Panics
    /// The job stands on a failed board: it was placed on another mesh.
    #[must_use]
    pub fn grid(&self, placed: &Placed) -> VirtualGrid {
        let [a, b] = self.board;
        let lines = |boards: &[u32], each: u32| -> Vec<u32> {
            boards.iter().flat_map(|board| board * each..(board + 1) * each).collect()
        };
        let (rows, columns) = (lines(&placed.rows, a), lines(&placed.columns, b));
        let number = |row: u32, column: u32| {
            self.numbers[(row * self.columns + column) as usize]
                .expect("a job stands on boards that work")
        };
        let npus = rows.iter().flat_map(|&row| columns.iter().map(move |&column| (row, column)));
        VirtualGrid {
            rows: rows.len() as u32,
            columns: columns.len() as u32,
            npus: npus.map(|(row, column)| number(row, column)).collect(),
        }
    }
}
