//! Torus of two or three dimensions, its NPUs on boards.
//!
//! Every NPU has a cable to its neighbour in each direction; a dimension of 2 has one cable, not two.
//! Cables within a board are traces. All others count as optical: only so do the prices that
//! `HammingMesh` (SC'22, Table II) prints come out, although its text says copper. Per plane, with
//! boards of `b` along a dimension of `s`: `npus/b` optical cables in that dimension.
//!
//! Diameter: the sum of `floor(s/2)`. Half-plane cut: `2 · npus / s` over the longest even dimension.
//!
//! To planners it is a ring for each dimension, the last of `shape` innermost, with all planes' links.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::dimension;
use super::{Counts, Drawing, GraphTopology, Picture, grid_of, or_adaptive};
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::placement::Floor;
use crate::routing::{Routing, TorusRouting};
use crate::{Dimension, FabricError};

/// The tag in fabric files.
pub const TAG: &str = "torus";
pub(super) const ABOUT: &str = "rings in two or three dimensions, boards joined by cables";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"shape": [4, 4]}"#,
    r#"{"shape": [3, 2, 4], "planes": 2}"#,
    r#"{"shape": [4, 6], "board": [2, 2]}"#,
];

/// The keys of a torus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Torus {
    /// NPUs along each dimension.
    #[schemars(length(min = 2, max = 3))]
    pub shape: Vec<u32>,
    /// NPUs of a board along each dimension; one NPU a board if left out.
    #[serde(default)]
    #[schemars(length(max = 3))]
    pub board: Vec<u32>,
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// A cable between boards.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// A trace within a board.
    #[serde(default = "Wire::trace")]
    pub board_link: Wire,
}

impl Torus {
    fn npus(&self) -> u64 {
        self.shape.iter().map(|&size| u64::from(size)).product()
    }

    fn board(&self, dimension: usize) -> u64 {
        self.board.get(dimension).map_or(1, |&board| u64::from(board))
    }

    /// Cables of one ring: all, and those within boards.
    fn ring(&self, dimension: usize) -> (u64, u64) {
        let (size, board) = (u64::from(self.shape[dimension]), self.board(dimension));
        (if size == 2 { 1 } else { size }, size / board * (board - 1))
    }
}

impl GraphTopology for Torus {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FabricError> {
        checks::shape(&self.shape, "a torus", "ring", "for example `shape: [32, 32]`")?;
        checks::npus("shape", &self.shape)?;
        checks::planes(self.planes)?;
        let board = checks::list(&self.board);
        if !self.board.is_empty() && self.board.len() != self.shape.len() {
            return Err(FabricError::new(
                "fabric.board",
                board,
                format!("the torus has {} dimensions", self.shape.len()),
                "write one size for each of them",
            ));
        }
        for (&size, &on_board) in self.shape.iter().zip(&self.board) {
            if on_board == 0 || !size.is_multiple_of(on_board) {
                return Err(FabricError::new(
                    "fabric.board",
                    board,
                    format!("boards of {on_board} do not tile a dimension of {size}"),
                    format!("take a divisor of {size}"),
                ));
            }
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let (mut aoc, mut pcb, mut ports) = (0, 0, 0);
        for (dimension, &size) in self.shape.iter().enumerate() {
            let rings = self.npus() / u64::from(size);
            let (all, traces) = self.ring(dimension);
            aoc += rings * (all - traces);
            pcb += rings * traces;
            ports += if size == 2 { 1 } else { 2 };
        }
        Counts { npus: self.npus(), switches: 0, aoc, dac: 0, pcb, planes: 1, ports }
            .of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        Some(self.shape.iter().map(|size| size / 2).sum())
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        let longest = self.shape.iter().filter(|size| size.is_multiple_of(2)).max()?;
        Some(self.npus() / u64::from(*longest) * if *longest == 2 { 1 } else { 2 })
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        let ring = |(index, &size): (usize, &u32)| {
            let (all, traces) = self.ring(index);
            let links = self.planes * if size == 2 { 1 } else { 2 };
            dimension::ring(size, links, &[(all - traces, self.link), (traces, self.board_link)])
        };
        Ok(self.shape.iter().enumerate().rev().map(ring).collect())
    }

    fn grid(&self) -> Option<[u32; 2]> {
        grid_of(&self.shape)
    }

    fn floor(&self) -> Option<Floor> {
        Some(Floor::of_torus(self))
    }

    fn drawing(&self) -> Drawing {
        let most = if self.shape.len() == 2 { 8 } else { 4 };
        let least = |(index, &size): (usize, &u32)| {
            let on_board = self.board.get(index).copied().unwrap_or(1);
            size.min((most / on_board).max(2) * on_board)
        };
        let shape: Vec<u32> = self.shape.iter().enumerate().map(least).collect();
        Drawing {
            picture: Picture::AroundEdges { shape: self.shape.clone(), board: self.board.clone() },
            smaller: Some(vec![("shape", shape.into())]),
            ..Drawing::default()
        }
    }

    fn build(&self) -> Result<Graph, FabricError> {
        let npus = u32::try_from(self.npus()).expect("validated");
        let mut builder = Builder::new(npus);
        for npu in 0..npus {
            let mut stride = npus;
            for (dimension, &size) in self.shape.iter().enumerate() {
                stride /= size;
                let at = npu / stride % size;
                if size == 2 && at == 1 {
                    continue;
                }
                let next = if at + 1 == size { npu - at * stride } else { npu + stride };
                let on_board = !u64::from(at + 1).is_multiple_of(self.board(dimension));
                let (kind, wire) = if on_board {
                    (CableKind::Pcb, self.board_link)
                } else {
                    (CableKind::Aoc, self.link)
                };
                builder.cable(NodeId(npu), NodeId(next), kind, wire)?;
            }
        }
        builder.build()
    }

    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FabricError> {
        or_adaptive(TorusRouting::new(graph, &self.shape), graph)
    }
}
