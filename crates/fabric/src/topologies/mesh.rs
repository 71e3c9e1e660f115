//! Mesh of switches of two or three dimensions, without the wraps of a torus, some NPUs at each.
//!
//! NPUs are numbered switch by switch, switches row by row: along the first dimension first. An NPU
//! and its switch share a board: their link is a trace. Cables between switches are copper along the
//! first dimension and optical along the others, as `HammingMesh` (SC'22) has its rows and columns.
//! Per plane, with `S` switches, `s_d` of them along dimension `d`, and `n` NPUs at each:
//!
//! ```text
//! cables along d = S − S / s_d        traces = n · S
//! diameter = Σ (s_d − 1) + 2          half-plane cut = S / s over the longest even dimension s
//! ```
//!
//! It is no product of dimensions to planners: a line of switches is none of their kinds.

use allrail_core::{FieldError, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::drawing::{Drawing, Picture};
use super::topology::{Counts, GraphTopology, Summing, grid_of};
use crate::Dimension;
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};

/// The tag in fabric files.
pub const TAG: &str = "mesh";
pub(super) const ABOUT: &str = "switches in rows and columns, each with NPUs of its own";
pub(super) const EXAMPLES: &[&str] =
    &[r#"{"shape": [3, 4]}"#, r#"{"shape": [2, 3, 2], "npus_per_switch": 2, "planes": 2}"#];

/// The keys of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mesh {
    /// Switches along each dimension.
    #[schemars(length(min = 2, max = 3))]
    pub shape: Vec<u32>,
    /// NPUs at each switch.
    #[serde(default = "checks::one")]
    pub npus_per_switch: u32,
    /// Ports of a switch.
    #[serde(default = "checks::radix_64")]
    pub switch_radix: u32,
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// A cable between switches.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// The trace from an NPU to its switch.
    #[serde(default = "Wire::trace")]
    pub board_link: Wire,
    /// Whether switches sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
}

impl Mesh {
    fn switches(&self) -> u64 {
        self.shape.iter().map(|&size| u64::from(size)).product()
    }

    fn cables_along(&self, dimension: usize) -> u64 {
        self.switches() - self.switches() / u64::from(self.shape[dimension])
    }

    /// Ports of a switch that is nowhere at the edge.
    fn ports(&self) -> u64 {
        let neighbours = self.shape.iter().map(|&size| u64::from(size.min(3) - 1)).sum::<u64>();
        u64::from(self.npus_per_switch) + neighbours
    }
}

impl GraphTopology for Mesh {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        checks::shape(&self.shape, "a mesh", "neighbours", "for example `shape: [4, 4]`")?;
        checks::count("npus_per_switch", self.npus_per_switch, 1 << 12)?;
        checks::npus("shape", &[&self.shape[..], &[self.npus_per_switch]].concat())?;
        checks::planes(self.planes)?;
        checks::switch_radix(self.switch_radix)?;
        let ports = self.ports();
        if ports > u64::from(self.switch_radix) {
            return Err(FieldError::new(
                "fabric.switch_radix",
                self.switch_radix,
                format!(
                    "a switch has {ports}, to its NPUs and its neighbours",
                    ports = counted(ports, "cable")
                ),
                format!(
                    "take switches of {ports} or more, or fewer NPUs at each",
                    ports = counted(ports, "port")
                ),
            ));
        }
        Ok(())
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Switches)
    }

    fn counts(&self) -> Counts {
        Counts {
            npus: self.switches() * u64::from(self.npus_per_switch),
            switches: self.switches(),
            aoc: (1..self.shape.len()).map(|dimension| self.cables_along(dimension)).sum(),
            dac: self.cables_along(0),
            pcb: self.switches() * u64::from(self.npus_per_switch),
            planes: 1,
            ports: 1,
        }
        .of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        Some(self.shape.iter().map(|size| size - 1).sum::<u32>() + 2)
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        let longest = self.shape.iter().filter(|size| size.is_multiple_of(2)).max()?;
        Some(self.switches() / u64::from(*longest))
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        Err("a line of switches is neither a ring nor a switch nor fully connected".to_owned())
    }

    fn grid(&self) -> Option<[u32; 2]> {
        grid_of(&self.shape)
    }

    fn drawing(&self) -> Drawing {
        let most = if self.shape.len() == 2 { 5 } else { 3 };
        let shape: Vec<u32> = self.shape.iter().map(|&size| size.min(most)).collect();
        let npus_per_switch = self.npus_per_switch;
        Drawing {
            picture: Picture::AtSwitches { shape: self.shape.clone(), npus_per_switch },
            smaller: Some(vec![
                ("shape", shape.into()),
                ("npus_per_switch", npus_per_switch.min(4).into()),
            ]),
            ..Drawing::default()
        }
    }

    fn build(&self) -> Result<Graph, FieldError> {
        let count = u32::try_from(self.switches()).expect("validated");
        let mut builder = Builder::new(count * self.npus_per_switch);
        let switches: Vec<NodeId> = (0..count).map(|_| builder.switch()).collect();
        for here in 0..count {
            let switch = switches[here as usize];
            for npu in here * self.npus_per_switch..(here + 1) * self.npus_per_switch {
                builder.cable(NodeId(npu), switch, CableKind::Pcb, self.board_link)?;
            }
            let mut stride = 1;
            for (dimension, &size) in self.shape.iter().enumerate() {
                if here / stride % size + 1 < size {
                    let next = switches[(here + stride) as usize];
                    let kind = if dimension == 0 { CableKind::Dac } else { CableKind::Aoc };
                    builder.cable(switch, next, kind, self.link)?;
                }
                stride *= size;
            }
        }
        builder.build()
    }
}
