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
//! of 8 on the small Hx4Mesh).
//!
//! **One board along an axis** (`x = 1` or `y = 1`, a 1D `HammingMesh`) needs no switches there: a copper
//! cable leads around the board and closes each line to a ring, `floor(n / 2)` in the diameter.
//!
//! **Trees over several rows.** `joined_lines: n` lets one network join the ends of `n` rows (and of `n`
//! columns), with as many levels as it takes: packets may change rows in it. `global` says what the
//! network is, where more than one switch is needed: a `fat_tree`, a `dragonfly` or a `slim_fly`.
//!
//! To planners it is two rings, along the rows (innermost) and along the columns. A ring is what an
//! NPU has towards its row: a port east and a port west in each plane, to its neighbour on the board
//! or, at the edge, to the tree, through which the next board is two cables away. Two rings use every
//! port both ways, as the paper's all-reduce does. An all-to-all along a row gains from the trees,
//! which pass boards by: there a ring promises too little.

use allrail_core::{FieldError, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::drawing::{Drawing, Picture};
use super::global::Global;
use super::lines::{self, Axis};
use super::topology::{Counts, GraphTopology, Summing, or_adaptive};
use crate::Dimension;
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::placement::{Floor, Leaves, Rule, at_edges};
use crate::routing::hammingmesh::Variant;
use crate::routing::{Adaptive, HammingMeshRouting, Routing};

/// The tag in fabric files.
pub const TAG: &str = "hammingmesh";
pub(super) const ABOUT: &str = "meshed boards, their rows and columns joined by trees";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"board": [2, 2], "grid": [3, 3]}"#,
    r#"{"board": [1, 1], "grid": [4, 3]}"#,
    r#"{"board": [2, 3], "grid": [2, 4], "planes": 2}"#,
    r#"{"board": [2, 2], "grid": [1, 3]}"#,
    r#"{"board": [3, 4], "grid": [2, 1], "planes": 2}"#,
    r#"{"board": [2, 2], "grid": [4, 4], "joined_lines": 4, "switch_radix": 8}"#,
    r#"{"board": [2, 2], "grid": [3, 3], "global": "dragonfly", "joined_lines": 6, "switch_radix": 8}"#,
    r#"{"board": [2, 1], "grid": [5, 5], "global": "slim_fly", "joined_lines": 5, "switch_radix": 8}"#,
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
    /// What joins the ends of a row (or column).
    #[serde(default)]
    pub global: Global,
    /// How many rows (and columns) of NPUs one network joins; it has as many levels as that takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_lines: Option<u32>,
    /// Share of the uplinks left out in trees of more than one level, from 0 to below 1.
    #[serde(default)]
    pub taper: f64,
    /// A cable.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// A trace within a board.
    #[serde(default = "Wire::trace")]
    pub board_link: Wire,
    /// Whether the routers of NPUs, and switches, sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
    /// Boards that do not work, each as its place in its row and in its column, from 0.
    #[serde(default)]
    pub failed_boards: Vec<[u32; 2]>,
}

impl HammingMesh {
    /// Lines of NPUs along rows (0) and columns (1): how many, NPUs of a board along and across them, and
    /// boards along them.
    fn lines(&self, axis: usize) -> (u64, u32, u32, u32) {
        let (across, along) = (self.board[axis], self.board[1 - axis]);
        let (boards, others) = (self.grid[axis], self.grid[1 - axis]);
        (u64::from(across) * u64::from(others), along, across, boards)
    }

    /// Rows (0) or columns (1), and what joins them; `None` if switches are too small for it.
    fn axis(&self, axis: usize) -> Option<Axis> {
        let (lines, along, across, boards) = self.lines(axis);
        let kind = [CableKind::Dac, CableKind::Aoc][axis];
        if boards == 1 {
            return Some(Axis { lines, along, boards, shared: 1, network: None, kind });
        }
        let ends = 2 * u64::from(boards);
        let merged = ends * u64::from(across) <= u64::from(self.switch_radix);
        let shared = match (self.joined_lines, self.rows) {
            (Some(joined), _) => u64::from(joined),
            (None, Some(Rows::PerAccelerator)) => 1,
            (None, _) if merged => u64::from(across),
            (None, _) => 1,
        };
        let network = self.global.plan(ends * shared, self.switch_radix, self.taper)?;
        Some(Axis { lines, along, boards, shared, network: Some(network), kind })
    }

    fn both(&self) -> [Axis; 2] {
        [0, 1].map(|axis| self.axis(axis).expect("a validated HammingMesh fits its networks"))
    }

    /// The leaf of each board in its row's network (axis 0) or its column's (axis 1), by its first end.
    fn leaves(&self, axis: usize) -> Vec<u32> {
        let [rows, columns] = self.both();
        let network = if axis == 0 { rows.network } else { columns.network };
        let leaf = |board| network.as_ref().map_or(0, |one| one.leaf_of(2 * board) as u32);
        (0..u64::from(self.grid[axis])).map(leaf).collect()
    }

    fn check_joined(&self) -> Result<(), FieldError> {
        let Some(joined) = self.joined_lines else { return Ok(()) };
        let refuse = |why: String, hint: &str| {
            Err(FieldError::new("fabric.joined_lines", joined, why, hint))
        };
        if self.rows.is_some() {
            let why = "`rows` says already how many lines share a switch".to_owned();
            return refuse(why, "leave `rows` out");
        }
        for (axis, name) in ["rows", "columns"].into_iter().enumerate() {
            let (lines, _, _, boards) = self.lines(axis);
            if boards > 1 && (joined == 0 || !lines.is_multiple_of(u64::from(joined))) {
                let why = format!("the {lines} {name} of NPUs are no multiple of it");
                return refuse(why, "write a number that divides rows and columns");
            }
        }
        Ok(())
    }

    fn too_small(&self, why: String, hint: &str) -> FieldError {
        FieldError::new("fabric.switch_radix", self.switch_radix, why, hint)
    }

    fn check_failed(&self) -> Result<(), FieldError> {
        let [x, y] = self.grid;
        let boards = u64::from(x) * u64::from(y);
        if self.failed_boards.len() as u64 >= boards {
            return Err(FieldError::new(
                "fabric.failed_boards",
                counted(self.failed_boards.len(), "board"),
                format!(
                    "the grid has {boards}, and one must work",
                    boards = counted(boards, "board")
                ),
                "name fewer boards",
            ));
        }
        for (i, &[column, row]) in self.failed_boards.iter().enumerate() {
            let field = format!("fabric.failed_boards[{i}]");
            let value = checks::list(&[column, row]);
            if column >= x || row >= y {
                let hint = format!("from `[0, 0]` to `[{}, {}]`", x - 1, y - 1);
                return Err(FieldError::new(field, value, "there is no such board", hint));
            }
            if self.failed_boards[..i].contains(&[column, row]) {
                return Err(FieldError::new(
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
    #[must_use]
    pub fn numbers(&self) -> (Vec<Option<NodeId>>, u32) {
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

    fn validate(&self) -> Result<(), FieldError> {
        for (key, [one, other]) in [("board", self.board), ("grid", self.grid)] {
            if one == 0 || other == 0 {
                return Err(FieldError::new(
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
        self.check_joined()?;
        for (axis, name) in ["row", "column"].into_iter().enumerate() {
            let (_, _, across, boards) = self.lines(axis);
            let ends = 2 * u64::from(boards);
            let Some(lines) = self.axis(axis) else {
                let ends = ends * u64::from(self.joined_lines.unwrap_or(1));
                return Err(self.too_small(
                    format!("the {ends} ends of a {name} do not fit its network of switches"),
                    "take larger switches or a smaller grid",
                ));
            };
            if self.rows == Some(Rows::Merged) && boards > 1 && lines.shared != u64::from(across) {
                let ends = ends * u64::from(across);
                return Err(self.too_small(
                    format!(
                        "`rows: merged` needs {ends} for the {name}s of a {name} of boards",
                        ends = counted(ends, "port")
                    ),
                    "leave `rows` out: it merges where it fits",
                ));
            }
        }
        if self.both().iter().all(|axis| !axis.tapers()) {
            checks::nothing_to_taper(self.taper)?;
        }
        self.check_failed()
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Routers)
    }

    fn counts(&self) -> Counts {
        let npus =
            [self.board, self.grid].as_flattened().iter().map(|&side| u64::from(side)).product();
        let mut counts = Counts { npus, switches: 0, aoc: 0, dac: 0, pcb: 0, planes: 1, ports: 0 };
        for axis in self.both() {
            axis.count(&mut counts);
        }
        counts.of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        let whole = self.failed_boards.is_empty();
        whole.then(|| self.both().iter().map(Axis::span).sum())
    }

    /// Between the left and the right half of the boards.
    fn half_plane_cut_links(&self) -> Option<u64> {
        if !self.failed_boards.is_empty() {
            return None;
        }
        let [rows, _] = self.both();
        rows.half_cut()
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        if !self.failed_boards.is_empty() {
            return Err("boards of it have failed: its NPUs are no longer alike".to_owned());
        }
        let axes = self.both();
        if axes.iter().any(|axis| !axis.is_ruled_by_trees()) {
            return Err(lines::NO_RINGS.to_owned());
        }
        let ring = |axis: &Axis| axis.ring(self.planes, self.link, self.board_link);
        Ok(axes.iter().filter_map(ring).collect())
    }

    fn grid(&self) -> Option<[u32; 2]> {
        let ([a, b], [x, y]) = (self.board, self.grid);
        Some([a * y, b * x])
    }

    fn floor(&self) -> Option<Floor> {
        // Along an axis of one board cables lead back to it.
        let [x, y] = self.grid;
        let sides: Vec<u32> = (self.board.into_iter().zip([y, x]))
            .filter(|(_, boards)| *boards > 1 || x * y == 1)
            .map(|(side, _)| side)
            .collect();
        let npus = self.board.iter().map(|&side| u64::from(side)).product();
        Some(Floor {
            topology: TAG,
            board: self.board.map(u64::from).to_vec(),
            board_bandwidth: at_edges(&sides, npus, self.planes, self.link),
            failed: self.failed_boards.iter().map(|&[column, row]| [row, column]).collect(),
            leaves: Leaves { of_rows: self.leaves(1), of_columns: self.leaves(0) },
            rule: Rule::SubGrid,
        })
    }

    fn drawing(&self) -> Drawing {
        let mut smaller = vec![("grid", self.grid.map(|size| size.min(4)).to_vec().into())];
        if !self.failed_boards.is_empty() {
            smaller.push(("failed_boards", serde_json::Value::Array(Vec::new())));
        }
        if self.taper > 0.0 {
            smaller.push(("taper", 0.0.into()));
        }
        if self.joined_lines.is_some() {
            smaller.push(("joined_lines", serde_json::Value::Null));
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

    fn build(&self) -> Result<Graph, FieldError> {
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
        rows.build(&mut builder, self.link, |row, place| npu(row as u32, place))?;
        columns.build(&mut builder, self.link, |column, place| npu(place, column as u32))?;
        builder.build()
    }

    fn simulated(&self) -> Result<Graph, FieldError> {
        if self.simulated_as().is_none() {
            return self.build();
        }
        Self { rows: Some(Rows::PerAccelerator), ..self.clone() }.build()
    }

    /// Table II's prices are those of merged switches and its bandwidths those of one tree per row.
    fn simulated_as(&self) -> Option<&'static str> {
        let merges = || self.both().iter().any(|axis| axis.shared > 1);
        (self.rows.is_none() && self.joined_lines.is_none() && merges()).then_some(
            "costed with merged switches, simulated with a tree for each row and column of NPUs \
             (`rows: per_accelerator`)",
        )
    }

    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FieldError> {
        // Its rule is one of meshes and trees: a cable around a board makes a ring, and other networks have
        // circles of their own.
        if self.both().iter().any(|axis| axis.wraps() || !axis.is_ruled_by_trees()) {
            return Ok(Box::new(Adaptive::new(graph)?));
        }
        or_adaptive(HammingMeshRouting::new(graph, &self.places(), Variant::default())?, graph)
    }
}
