//! `HammingMesh` (Hoefler et al., SC'22): boards of `a × b` NPUs, meshed by traces, in a grid of
//! `x × y` boards; every row and every column of NPUs ends in a tree of switches.
//!
//! A board has `a` rows and `b` columns of NPUs. The grid has `x` boards in a row and `y` in a
//! column. So there are `a·y` rows, each with `2x` ends at its tree (copper), and `b·x` columns, each
//! with `2y` ends (optical). Where the rows of a row of boards fit one switch (`2·x·a ≤ radix`), they
//! share it (`rows: merged`), columns alike; where one row does not fit a switch, its tree has two
//! levels. Per plane:
//!
//! ```text
//! DAC = a·y · 2x     AoC = b·x · 2y + cables between switches     PCB = x·y · (a(b−1) + b(a−1))
//! diameter = 2(floor((a−1)/2) + floor((b−1)/2)) + T(2x) + T(2y),  T = 2, 4, 6 for 1, 2, 3 levels
//! half-plane cut = a·x·y
//! ```
//!
//! Where `rows` is left out, switches are merged in what is counted and priced, and every row and column
//! has a tree of its own in what is simulated: so the paper has it. Say `rows: merged` to simulate
//! merged switches too: a small Hx4Mesh carries a quarter less all-to-all with them.
//!
//! The formula of the diameter counts one switch per row: a merged switch may shorten it (6 instead
//! of 8 on the small Hx4Mesh), and with `x = 1` or `y = 1` it is too long.
//!
//! To planners it is two rings, along the rows (innermost) and along the columns. A ring is what an
//! NPU has towards its row: a port east and a port west in each plane, to its neighbour on the board
//! or, at the edge, to the tree, through which the next board is two cables away. Two rings use every
//! port both ways, as the paper's all-reduce does. An all-to-all along a row gains from the trees,
//! which pass boards by: there a ring promises too little.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::dimension::{cables, ring};
use super::tree::Tree;
use super::{Counts, Drawing, GraphTopology, Picture, or_adaptive};
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::placement::Floor;
use crate::routing::hammingmesh::Variant;
use crate::routing::{HammingMeshRouting, Routing};
use crate::{Dimension, FabricError};

/// The tag in fabric files.
pub const TAG: &str = "hammingmesh";
pub(super) const ABOUT: &str = "meshed boards, their rows and columns joined by trees";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"board": [2, 2], "grid": [3, 3]}"#,
    r#"{"board": [1, 1], "grid": [4, 3]}"#,
    r#"{"board": [2, 3], "grid": [2, 4], "planes": 2}"#,
];

/// Whether the rows of a row of boards share a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// They share one.
    Merged,
    /// Each has a tree of its own.
    PerAccelerator,
}

/// The keys of a `HammingMesh`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HammingMesh {
    /// Rows and columns of NPUs of a board.
    pub board: [u32; 2],
    /// Boards in a row and in a column.
    pub grid: [u32; 2],
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// Ports of a switch.
    #[serde(default = "checks::radix_64")]
    pub switch_radix: u32,
    /// Whether rows (and columns) share switches; if left out, where they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Rows>,
    /// Share of the uplinks left out in trees of more than one level, from 0 to below 1.
    #[serde(default)]
    pub taper: f64,
    /// A cable.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// A trace within a board.
    #[serde(default = "Wire::trace")]
    pub board_link: Wire,
    /// Boards that do not work, each as its place in its row and in its column, from 0.
    #[serde(default)]
    pub failed_boards: Vec<[u32; 2]>,
}

/// The trees of all rows, or of all columns.
struct Trees {
    /// How many there are.
    count: u64,
    /// Rows (or columns) that share one.
    shared: u32,
    tree: Tree,
}

impl HammingMesh {
    /// Rows (0) or columns (1): what the trees of `across` NPUs per board and `boards` boards need.
    fn trees(&self, axis: usize) -> Option<Trees> {
        let (across, boards, others) = (self.board[axis], self.grid[axis], self.grid[1 - axis]);
        let ends = 2 * u64::from(boards);
        let merged = ends * u64::from(across) <= u64::from(self.switch_radix);
        let shared = if merged && self.rows != Some(Rows::PerAccelerator) { across } else { 1 };
        let tree = Tree::lowest(ends * u64::from(shared), self.switch_radix, self.taper)?;
        Some(Trees { count: u64::from(across / shared) * u64::from(others), shared, tree })
    }

    fn both(&self) -> [Trees; 2] {
        [0, 1].map(|axis| self.trees(axis).expect("a validated HammingMesh fits its trees"))
    }

    /// The leaf of each board in its row's tree (axis 0) or its column's (axis 1), by its first end.
    pub(crate) fn leaves(&self, axis: usize) -> Vec<u32> {
        let tree = self.both()[axis].tree;
        let leaf = |board| if tree.levels == 1 { 0 } else { tree.leaf_of(2 * board) as u32 };
        (0..u64::from(self.grid[axis])).map(leaf).collect()
    }

    fn too_small(&self, why: String, hint: &str) -> FabricError {
        FabricError::new("fabric.switch_radix", self.switch_radix, why, hint)
    }

    fn check_failed(&self) -> Result<(), FabricError> {
        let [x, y] = self.grid;
        let boards = u64::from(x) * u64::from(y);
        if self.failed_boards.len() as u64 >= boards {
            return Err(FabricError::new(
                "fabric.failed_boards",
                format!("{} boards", self.failed_boards.len()),
                format!("the grid has {boards} boards, and one must work"),
                "name fewer boards",
            ));
        }
        for (i, &[column, row]) in self.failed_boards.iter().enumerate() {
            let field = format!("fabric.failed_boards[{i}]");
            let value = checks::list(&[column, row]);
            if column >= x || row >= y {
                let hint = format!("from `[0, 0]` to `[{}, {}]`", x - 1, y - 1);
                return Err(FabricError::new(field, value, "there is no such board", hint));
            }
            if self.failed_boards[..i].contains(&[column, row]) {
                return Err(FabricError::new(
                    field,
                    value,
                    "the board stands twice",
                    "name each board once",
                ));
            }
        }
        Ok(())
    }

    /// Numbers the NPUs on working boards, row by row over the whole mesh.
    pub(crate) fn numbers(&self) -> (Vec<Option<NodeId>>, u32) {
        let ([a, b], [x, y]) = (self.board, self.grid);
        let mut works = vec![true; (x * y) as usize];
        for [column, row] in &self.failed_boards {
            works[(row * x + column) as usize] = false;
        }
        let mut next = 0;
        let numbers = (0..a * y)
            .flat_map(|row| (0..b * x).map(move |column| (row / a * x + column / b) as usize))
            .map(|board| {
                works[board].then(|| {
                    next += 1;
                    NodeId(next - 1)
                })
            })
            .collect();
        (numbers, next)
    }

    /// Row and column, in the whole mesh, of every NPU on a working board.
    #[must_use]
    pub fn places(&self) -> Vec<[u32; 2]> {
        let width = self.board[1] * self.grid[0];
        let numbers = (0u32..).zip(self.numbers().0);
        numbers.filter_map(|(at, npu)| npu.map(|_| [at / width, at % width])).collect()
    }
}

impl GraphTopology for HammingMesh {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FabricError> {
        for (key, [one, other]) in [("board", self.board), ("grid", self.grid)] {
            if one == 0 || other == 0 {
                return Err(FabricError::new(
                    format!("fabric.{key}"),
                    checks::list(&[one, other]),
                    "a side is 0",
                    "write 1 or more for each side",
                ));
            }
        }
        checks::npus("grid", &[self.board, self.grid].concat())?;
        checks::planes(self.planes)?;
        checks::switch_radix(self.switch_radix)?;
        checks::taper(self.taper)?;
        for (axis, name) in ["row", "column"].into_iter().enumerate() {
            let (across, boards) = (self.board[axis], self.grid[axis]);
            let Some(trees) = self.trees(axis) else {
                return Err(self.too_small(
                    format!("the {} ends of a {name} do not fit three levels", 2 * boards),
                    "take larger switches or a smaller grid",
                ));
            };
            if self.rows == Some(Rows::Merged) && trees.shared != across {
                let ends = 2 * u64::from(boards) * u64::from(across);
                return Err(self.too_small(
                    format!(
                        "`rows: merged` needs {ends} ports for the {name}s of a {name} of boards"
                    ),
                    "leave `rows` out: it merges where it fits",
                ));
            }
        }
        if self.both().iter().all(|trees| trees.tree.levels == 1) {
            checks::nothing_to_taper(self.taper)?;
        }
        self.check_failed()
    }

    fn counts(&self) -> Counts {
        let [a, b, x, y] =
            [self.board[0], self.board[1], self.grid[0], self.grid[1]].map(u64::from);
        let trees = self.both();
        let sum = |of: fn(&Tree) -> u64| trees.iter().map(|t| t.count * of(&t.tree)).sum::<u64>();
        Counts {
            npus: a * b * x * y,
            switches: sum(Tree::switches),
            aoc: trees[1].count * trees[1].tree.ends + sum(Tree::inner_cables),
            dac: trees[0].count * trees[0].tree.ends,
            pcb: x * y * (a * (b - 1) + b * (a - 1)),
            planes: 1,
            ports: 4,
        }
        .of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        if !self.failed_boards.is_empty() || self.grid.contains(&1) {
            return None;
        }
        let across = self.board.iter().map(|side| 2 * ((side - 1) / 2)).sum::<u32>();
        Some(across + self.both().iter().map(|trees| trees.tree.span()).sum::<u32>())
    }

    /// Between the left and the right half of the boards.
    fn half_plane_cut_links(&self) -> Option<u64> {
        if !self.failed_boards.is_empty() || self.grid[0] % 2 == 1 {
            return None;
        }
        let [rows, _] = self.both();
        Some(rows.count * rows.tree.half_cut())
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        if !self.failed_boards.is_empty() {
            return Err("boards of it have failed: its NPUs are no longer alike".to_owned());
        }
        let ([a, b], [x, y]) = (self.board, self.grid);
        let through = Wire { latency: cables(2, self.link), ..self.link };
        let line = |(on_board, boards): (u32, u32)| {
            let traces = u64::from(boards) * u64::from(on_board - 1);
            let hops = [(traces, self.board_link), (u64::from(boards), through)];
            ring(on_board * boards, 2 * self.planes, &hops)
        };
        let lines = [(b, x), (a, y)].into_iter().filter(|(on_board, boards)| on_board * boards > 1);
        Ok(lines.map(line).collect())
    }

    fn grid(&self) -> Option<[u32; 2]> {
        let ([a, b], [x, y]) = (self.board, self.grid);
        Some([a * y, b * x])
    }

    fn floor(&self) -> Option<Floor> {
        Some(Floor::of_mesh(self))
    }

    fn as_mesh(&self) -> Option<&HammingMesh> {
        Some(self)
    }

    fn drawing(&self) -> Drawing {
        let mut smaller = vec![("grid", self.grid.map(|size| size.min(4)).to_vec().into())];
        if !self.failed_boards.is_empty() {
            smaller.push(("failed_boards", serde_json::Value::Array(Vec::new())));
        }
        if self.taper > 0.0 {
            smaller.push(("taper", 0.0.into()));
        }
        Drawing {
            picture: Picture::OnBoards {
                board: self.board,
                grid: self.grid,
                failed: self.failed_boards.clone(),
                note: "",
            },
            smaller: self.board.iter().all(|&side| side <= 4).then_some(smaller),
            ..Drawing::default()
        }
    }

    fn build(&self) -> Result<Graph, FabricError> {
        let ([a, b], [x, y]) = (self.board, self.grid);
        let (numbers, npus) = self.numbers();
        let npu = |row: u32, column: u32| numbers[(row * b * x + column) as usize];
        let mut builder = Builder::new(npus);
        for row in 0..a * y {
            for column in 0..b * x {
                let Some(here) = npu(row, column) else { continue };
                let east = ((column + 1) % b != 0).then(|| npu(row, column + 1)).flatten();
                let south = ((row + 1) % a != 0).then(|| npu(row + 1, column)).flatten();
                for next in [east, south].into_iter().flatten() {
                    builder.cable(here, next, CableKind::Pcb, self.board_link)?;
                }
            }
        }
        let [rows, columns] = self.both();
        for (trees, [lines, boards, along], kind) in
            [(&rows, [a * y, x, b], CableKind::Dac), (&columns, [b * x, y, a], CableKind::Aoc)]
        {
            let end = |line: u32, place: u32| match kind {
                CableKind::Dac => npu(line, place),
                _ => npu(place, line),
            };
            for first in (0..lines).step_by(trees.shared as usize) {
                let leaves = trees.tree.build(&mut builder, self.link)?;
                let mut number = 0;
                for line in first..first + trees.shared {
                    for place in (0..boards).flat_map(|i| [i * along, i * along + along - 1]) {
                        let leaf = leaves[trees.tree.leaf_of(number)];
                        number += 1;
                        if let Some(npu) = end(line, place) {
                            builder.parallel(npu, leaf, kind, self.link)?;
                        }
                    }
                }
            }
        }
        builder.build()
    }

    fn simulated(&self) -> Result<Graph, FabricError> {
        if self.simulated_as().is_none() {
            return self.build();
        }
        Self { rows: Some(Rows::PerAccelerator), ..self.clone() }.build()
    }

    /// Table II's prices are those of merged switches and its bandwidths those of one tree per row.
    fn simulated_as(&self) -> Option<&'static str> {
        let merges = || self.both().iter().any(|trees| trees.shared > 1);
        (self.rows.is_none() && merges()).then_some(
            "costed with merged switches, simulated with a tree for each row and column of NPUs \
             (`rows: per_accelerator`)",
        )
    }

    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FabricError> {
        or_adaptive(HammingMeshRouting::new(graph, &self.places(), Variant::default())?, graph)
    }
}
