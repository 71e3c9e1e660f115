//! `HyperX` of two dimensions, as `HammingMesh` (SC'22, Table II) has it: two facts in one row.
//!
//! It is *costed*, and its diameter counted, as a `HammingMesh` of 1 × 1 boards: every NPU has two
//! ports to the tree of its row and two to that of its column. That is what [`GraphTopology::counts`]
//! and [`GraphTopology::build`] give. Its published bandwidth is that of direct links between
//! routers, one to every other router of the row and of the column: [`HyperX::direct`], which no price
//! is printed for.
//!
//! To planners its rows and its columns are fully connected, as in the direct graph. Both leave an
//! NPU by the one cable to its router, so each has that cable's bandwidth, over all planes.

use allrail_core::FieldError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::dimension::cables;
use super::drawing::{Drawing, Picture};
use super::hammingmesh::HammingMesh;
use super::topology::{Counts, GraphTopology, Summing, or_adaptive};
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::routing::{HyperXRouting, Routing};
use crate::{Dimension, Kind};

/// The tag in fabric files.
pub const TAG: &str = "hyperx";
pub(super) const ABOUT: &str = "all joined in each row and column, priced as 1 x 1 boards";
pub(super) const EXAMPLES: &[&str] = &[r#"{"shape": [4, 3]}"#, r#"{"shape": [3, 3], "planes": 4}"#];

/// The keys of a `HyperX`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HyperX {
    /// NPUs in a row and in a column.
    pub shape: [u32; 2],
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// Ports of a switch.
    #[serde(default = "checks::radix_64")]
    pub switch_radix: u32,
    /// Every cable.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// What joins an NPU and its router where links are direct; as `link` where absent.
    #[serde(default)]
    pub npu_link: Option<Wire>,
    /// Whether switches sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
}

impl HyperX {
    fn as_costed(&self) -> HammingMesh {
        HammingMesh {
            board: [1, 1],
            grid: self.shape,
            planes: self.planes,
            switch_radix: self.switch_radix,
            rows: None,
            global: super::global::Global::FatTree,
            joined_lines: None,
            taper: 0.0,
            link: self.link,
            board_link: self.link,
            failed_boards: Vec::new(),
            in_network_reduction: false,
        }
    }

    /// One plane with direct links: a router for each NPU, one cable between the two, one cable from
    /// each router to every other of its row and its column.
    ///
    /// # Errors
    /// None for a validated `HyperX`.
    pub fn direct(&self) -> Result<Graph, FieldError> {
        let [x, y] = self.shape;
        let mut builder = Builder::new(x * y);
        let routers: Vec<NodeId> = (0..x * y).map(|_| builder.switch()).collect();
        for npu in 0..x * y {
            let here = routers[npu as usize];
            builder.cable(NodeId(npu), here, CableKind::Pcb, self.npu_link.unwrap_or(self.link))?;
            let row = npu + 1..(npu / x + 1) * x;
            let column = (npu + x..x * y).step_by(x as usize);
            for (others, kind) in
                [(row.collect::<Vec<_>>(), CableKind::Dac), (column.collect(), CableKind::Aoc)]
            {
                for other in others {
                    builder.cable(here, routers[other as usize], kind, self.link)?;
                }
            }
        }
        builder.build()
    }
}

impl GraphTopology for HyperX {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        if self.shape.contains(&0) {
            return Err(FieldError::new(
                "fabric.shape",
                checks::list(&self.shape),
                "a side is 0",
                "for example `shape: [32, 32]`",
            ));
        }
        checks::npus("shape", &self.shape)?;
        self.as_costed().validate()
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Switches)
    }

    fn counts(&self) -> Counts {
        self.as_costed().counts()
    }

    fn diameter_formula(&self) -> Option<u32> {
        self.as_costed().diameter_formula()
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        self.as_costed().half_plane_cut_links()
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        let latency = cables(3, self.link);
        let sizes = self.shape.into_iter().filter(|&size| size > 1);
        let line = |size| {
            Dimension::new(Kind::FullyConnected, size, self.planes, self.link.bandwidth, latency)
        };
        Ok(sizes.map(line).collect())
    }

    fn grid(&self) -> Option<[u32; 2]> {
        Some(self.shape)
    }

    fn shares_ports(&self) -> bool {
        true
    }

    fn drawing(&self) -> Drawing {
        let note = "as it is costed; its bandwidth is that of direct links in each row and column";
        let smaller = self.shape.map(|size| size.min(6)).to_vec();
        Drawing {
            picture: Picture::OnBoards {
                board: [1, 1],
                grid: self.shape,
                failed: Vec::new(),
                note,
            },
            smaller: Some(vec![("shape", smaller.into())]),
            ..Drawing::default()
        }
    }

    fn build(&self) -> Result<Graph, FieldError> {
        self.as_costed().build()
    }

    fn simulated(&self) -> Result<Graph, FieldError> {
        self.direct()
    }

    fn simulated_as(&self) -> Option<&'static str> {
        Some("costed as a HammingMesh of 1 x 1 boards, simulated with direct links between routers")
    }

    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FieldError> {
        or_adaptive(HyperXRouting::new(graph, self.shape), graph)
    }
}
