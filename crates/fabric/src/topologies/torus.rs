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
//!
//! With a `twist` the cables that close the rings of all dimensions but the last end `twist` NPUs further along the
//! last: a line of `k` is then a part of a ring of `k · s / gcd(s, twist)`, which is shorter to most others than the torus
//! of the same cables where that is longer than wide (Cámara et al., "Twisted Torus Topologies for Enhanced
//! Interconnection Networks", IEEE TPDS 2010; Google's TPU v4 has `k × k × 2k` with a twist of `k`). Along the last
//! dimension rings stay rings, and are the first dimension of planners. No other lines close, so what joins them is
//! one dimension more, counted over cables. It has no formulas, and packets take any shortest path.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allrail_core::{FieldError, Time, counted};

use super::checks;
use super::dimension;
use super::drawing::{Drawing, Picture};
use super::topology::{Counts, GraphTopology, Summing, grid_of, or_adaptive};
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::placement::{Floor, Leaves, Rule, at_edges};
use crate::routing::{Routing, TorusRouting};
use crate::wiring::Ports;
use crate::{Dimension, Wiring};

/// The tag in fabric files.
pub const TAG: &str = "torus";
pub(super) const ABOUT: &str = "rings in two or three dimensions, boards joined by cables";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"shape": [4, 4]}"#,
    r#"{"shape": [3, 2, 4], "planes": 2}"#,
    r#"{"shape": [4, 6], "board": [2, 2]}"#,
    r#"{"shape": [3, 6], "twist": 3}"#,
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
    /// How many NPUs further along the last dimension the cables end that close the rings of the others; 0, the
    /// default, is no twist. TPU v4's `4 × 4 × 8` has 4.
    #[serde(default)]
    pub twist: u32,
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// A cable between boards.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// A trace within a board.
    #[serde(default = "Wire::trace")]
    pub board_link: Wire,
    /// Whether the routers of NPUs, and switches, sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
}

impl Torus {
    fn npus(&self) -> u64 {
        self.shape.iter().map(|&size| u64::from(size)).product()
    }

    fn board(&self, dimension: usize) -> u64 {
        self.board.get(dimension).map_or(1, |&board| u64::from(board))
    }

    /// NPUs along the last dimension.
    fn last(&self) -> u32 {
        *self.shape.last().expect("validated")
    }

    /// The ring along a dimension, as planners see it.
    fn dimension(&self, index: usize) -> Dimension {
        let (all, traces) = self.ring(index);
        let size = self.shape[index];
        let links = self.planes * if size == 2 { 1 } else { 2 };
        dimension::ring(size, links, &[(all - traces, self.link), (traces, self.board_link)])
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

    fn validate(&self) -> Result<(), FieldError> {
        checks::shape(&self.shape, "a torus", "ring", "for example `shape: [32, 32]`")?;
        checks::npus("shape", &self.shape)?;
        checks::planes(self.planes)?;
        let board = checks::list(&self.board);
        if !self.board.is_empty() && self.board.len() != self.shape.len() {
            return Err(FieldError::new(
                "fabric.board",
                board,
                format!("the torus has {}", counted(self.shape.len(), "dimension")),
                "write one size for each of them",
            ));
        }
        let (last, others) = self.shape.split_last().expect("two dimensions or more");
        if self.twist > 0 && (self.twist >= *last || others.contains(&2)) {
            return Err(FieldError::new(
                "fabric.twist",
                self.twist,
                format!("with `shape: {}` there is no such twist", checks::list(&self.shape)),
                format!("take 1 to {}, and 3 NPUs or more along the other dimensions", last - 1),
            ));
        }
        for (&size, &on_board) in self.shape.iter().zip(&self.board) {
            if on_board == 0 || !size.is_multiple_of(on_board) {
                return Err(FieldError::new(
                    "fabric.board",
                    board,
                    format!("boards of {on_board} do not tile a dimension of {size}"),
                    format!("take a divisor of {size}"),
                ));
            }
        }
        Ok(())
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Routers)
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
        (self.twist == 0).then(|| self.shape.iter().map(|size| size / 2).sum())
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        if self.twist > 0 {
            return None;
        }
        let longest = self.shape.iter().filter(|size| size.is_multiple_of(2)).max()?;
        Some(self.npus() / u64::from(*longest) * if *longest == 2 { 1 } else { 2 })
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        if self.twist > 0 {
            return Err("a twist leaves rings along the last dimension of a torus alone".to_owned());
        }
        Ok((0..self.shape.len()).rev().map(|index| self.dimension(index)).collect())
    }

    fn wired(&self) -> Result<Vec<Dimension>, FieldError> {
        let inside = self.dimension(self.shape.len() - 1);
        let widest = self.link.bandwidth.max(self.board_link.bandwidth);
        let wire = if self.board.iter().all(|&on_board| on_board == 1) {
            self.link.bandwidth
        } else {
            widest
        };
        let cables = 2 * (self.shape.len() as u64 - 1) * u64::from(self.planes);
        let rate = wire.checked_mul(cables).unwrap_or(wire);
        let of = (0..u32::try_from(self.npus()).expect("validated")).collect();
        let ends = Ports { of, domain: self.last(), rate, link: None, way: Time::ZERO };
        let cables = Wiring::of_domains(self.build()?, u64::from(self.planes), ends);
        Ok(vec![inside, Dimension::over_cables(cables)])
    }

    fn grid(&self) -> Option<[u32; 2]> {
        grid_of(&self.shape).filter(|_| self.twist == 0)
    }

    fn floor(&self) -> Option<Floor> {
        if self.twist > 0 {
            return None;
        }
        let on_board = |dimension| self.board.get(dimension).copied().unwrap_or(1);
        let boards = (0..self.shape.len()).map(on_board).collect::<Vec<u32>>();
        let sides: Vec<u32> =
            self.shape.iter().zip(&boards).map(|(size, on_board)| size / on_board).collect();
        let npus = boards.iter().map(|&side| u64::from(side)).product();
        Some(Floor {
            topology: TAG,
            board: boards.iter().map(|&side| u64::from(side)).collect(),
            board_bandwidth: at_edges(&boards, npus, self.planes, self.link),
            failed: Vec::new(),
            leaves: Leaves::of(sides[0], sides[1..].iter().product(), u32::MAX),
            rule: Rule::Contiguous(sides),
        })
    }

    fn drawing(&self) -> Drawing {
        if self.twist > 0 {
            return Drawing::default();
        }
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

    fn build(&self) -> Result<Graph, FieldError> {
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
                let next = if at + 1 < size {
                    npu + stride
                } else if stride == 1 {
                    npu - at
                } else {
                    let (last, place) = (self.last(), npu % self.last());
                    npu - at * stride - place + (place + self.twist) % last
                };
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

    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FieldError> {
        or_adaptive(TorusRouting::new(graph, &self.shape), graph)
    }
}
