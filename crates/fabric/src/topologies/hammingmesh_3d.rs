//! `HammingMesh` of three dimensions: boards of `a × b × c` NPUs, meshed by traces, in a grid of boards;
//! along each dimension every line of NPUs ends in a network of switches, as rows and columns do in
//! two (`hammingmesh.rs`). An NPU has six ports in each plane.
//!
//! The paper (SC'22) names it and builds two dimensions. What follows from its rules, per plane, for a
//! dimension `d` with `n_d` NPUs of a board along it, `g_d` boards and `l_d` lines of NPUs:
//!
//! ```text
//! cables to switches = 2 · g_d · l_d    traces = g_d · (n_d − 1) · l_d
//! diameter = Σ 2 floor((n_d − 1)/2) + T(2 g_d)
//! ```
//!
//! Cables along the first dimension are copper, along the others optical. A dimension of one board is
//! wrapped by a cable. NPUs are numbered along the first dimension first. Packets go any shortest path
//! (`routing/adaptive.rs`): north last is a rule of two dimensions.

use allrail_core::{FieldError, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::drawing::Drawing;
use super::global::Global;
use super::lines::{self, Axis};
use super::topology::{Counts, GraphTopology, Summing};
use crate::Dimension;
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::placement::{Floor, Leaves, Rule, at_edges};

/// The tag in fabric files.
pub const TAG: &str = "hammingmesh_3d";
pub(super) const ABOUT: &str = "meshed boards of three dimensions, joined by networks along each";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"board": [2, 2, 2], "grid": [2, 3, 2]}"#,
    r#"{"board": [3, 1, 2], "grid": [2, 2, 1], "planes": 2}"#,
    r#"{"board": [1, 1, 2], "grid": [4, 4, 4], "joined_lines": 4, "switch_radix": 8}"#,
    r#"{"board": [2, 1, 1], "grid": [3, 3, 3], "global": "dragonfly", "joined_lines": 9, "switch_radix": 8}"#,
];

/// The keys of a `HammingMesh` of three dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HammingMesh3d {
    /// NPUs of a board along each dimension.
    pub board: [u32; 3],
    /// Boards along each dimension.
    pub grid: [u32; 3],
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// Ports of a switch.
    #[serde(default = "checks::radix_64")]
    pub switch_radix: u32,
    /// What joins the ends of a line of NPUs.
    #[serde(default)]
    pub global: Global,
    /// How many lines of NPUs one network joins; it has as many levels as that takes.
    #[serde(default = "checks::one")]
    pub joined_lines: u32,
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
}

impl HammingMesh3d {
    /// NPUs along a dimension.
    fn size(&self, dimension: usize) -> u32 {
        self.board[dimension] * self.grid[dimension]
    }

    /// How far apart neighbours along a dimension are numbered.
    fn stride(&self, dimension: usize) -> u32 {
        (0..dimension).map(|inner| self.size(inner)).product()
    }

    /// The NPU at a place of a line along a dimension. Lines are numbered as their first NPUs.
    fn npu(&self, dimension: usize, line: u64, place: u32) -> NodeId {
        let (stride, line) = (self.stride(dimension), line as u32);
        let (inner, outer) = (line % stride, line / stride);
        NodeId(inner + stride * (place + self.size(dimension) * outer))
    }

    fn axis(&self, dimension: usize) -> Option<Axis> {
        let (along, boards) = (self.board[dimension], self.grid[dimension]);
        let lines = (0..3).filter(|d| *d != dimension).map(|d| u64::from(self.size(d))).product();
        let kind = if dimension == 0 { CableKind::Dac } else { CableKind::Aoc };
        let shared = u64::from(self.joined_lines);
        let ends = 2 * u64::from(boards) * shared;
        let network = match boards {
            1 => None,
            _ => Some(self.global.plan(ends, self.switch_radix, self.taper)?),
        };
        Some(Axis { lines, along, boards, shared, network, kind })
    }

    fn axes(&self) -> [Axis; 3] {
        [0, 1, 2].map(|d| self.axis(d).expect("a validated HammingMesh fits its networks"))
    }
}

impl GraphTopology for HammingMesh3d {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        for (key, sides) in [("board", self.board), ("grid", self.grid)] {
            if sides.contains(&0) {
                let hint = "write 1 or more for each side";
                let value = checks::list(&sides);
                return Err(FieldError::new(format!("fabric.{key}"), value, "a side is 0", hint));
            }
        }
        checks::npus("grid", [self.board, self.grid].as_flattened())?;
        checks::planes(self.planes)?;
        checks::switch_radix(self.switch_radix)?;
        checks::taper(self.taper)?;
        for dimension in 0..3 {
            let lines = u64::from(self.stride(3) / self.size(dimension));
            let joined = u64::from(self.joined_lines);
            if self.grid[dimension] > 1 && (joined == 0 || !lines.is_multiple_of(joined)) {
                return Err(FieldError::new(
                    "fabric.joined_lines",
                    joined,
                    format!(
                        "the {lines} of dimension {dimension} are no multiple of it",
                        lines = counted(lines, "line")
                    ),
                    "write a number that divides the lines of each dimension",
                ));
            }
            if self.axis(dimension).is_none() {
                let ends = 2 * u64::from(self.grid[dimension]) * joined;
                return Err(FieldError::new(
                    "fabric.switch_radix",
                    self.switch_radix,
                    format!("the {ends} ends of dimension {dimension} do not fit its network"),
                    "take larger switches or a smaller grid",
                ));
            }
        }
        if self.axes().iter().all(|axis| !axis.tapers()) {
            checks::nothing_to_taper(self.taper)?;
        }
        Ok(())
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Routers)
    }

    fn counts(&self) -> Counts {
        let npus = u64::from(self.stride(3));
        let mut counts = Counts { npus, switches: 0, aoc: 0, dac: 0, pcb: 0, planes: 1, ports: 0 };
        for axis in self.axes() {
            axis.count(&mut counts);
        }
        counts.of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        Some(self.axes().iter().map(Axis::span).sum())
    }

    /// Between the first boards of the last dimension and the others.
    fn half_plane_cut_links(&self) -> Option<u64> {
        self.axes()[2].half_cut()
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        let axes = self.axes();
        if axes.iter().any(|axis| !axis.is_ruled_by_trees()) {
            return Err(lines::NO_RINGS.to_owned());
        }
        let ring = |axis: &Axis| axis.ring(self.planes, self.link, self.board_link);
        Ok(axes.iter().filter_map(ring).collect())
    }

    fn grid(&self) -> Option<[u32; 2]> {
        Some([self.size(1) * self.size(2), self.size(0)])
    }

    fn floor(&self) -> Option<Floor> {
        let alone = self.grid.iter().all(|&boards| boards == 1);
        let ends = self.board.into_iter().zip(self.grid);
        // Along a dimension of one board cables lead back to it.
        let sides: Vec<u32> =
            ends.filter(|(_, boards)| *boards > 1 || alone).map(|(side, _)| side).collect();
        let npus = self.board.iter().map(|&side| u64::from(side)).product();
        let [planes, rows, columns] = self.grid;
        Some(Floor {
            topology: TAG,
            board: self.board.map(u64::from).to_vec(),
            board_bandwidth: at_edges(&sides, npus, self.planes, self.link),
            failed: Vec::new(),
            leaves: Leaves::of(planes, rows * columns, u32::MAX),
            rule: Rule::SubBoxes(self.grid),
        })
    }

    fn drawing(&self) -> Drawing {
        let smaller = vec![
            ("grid", self.grid.map(|side| side.min(2)).to_vec().into()),
            ("board", self.board.map(|side| side.min(3)).to_vec().into()),
            ("joined_lines", 1.into()),
            ("taper", 0.0.into()),
        ];
        Drawing { smaller: Some(smaller), ..Drawing::default() }
    }

    fn build(&self) -> Result<Graph, FieldError> {
        let mut builder = Builder::new(self.stride(3));
        for (dimension, axis) in self.axes().iter().enumerate() {
            for line in 0..axis.lines {
                for place in (1..self.size(dimension)).filter(|place| place % axis.along != 0) {
                    let [one, two] = [place - 1, place].map(|at| self.npu(dimension, line, at));
                    builder.cable(one, two, CableKind::Pcb, self.board_link)?;
                }
            }
        }
        for (dimension, axis) in self.axes().iter().enumerate() {
            let npu = |line, place| Some(self.npu(dimension, line, place));
            axis.build(&mut builder, self.link, npu)?;
        }
        builder.build()
    }
}
