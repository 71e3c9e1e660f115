//! Fat tree: NPUs under leaves, leaves under spines, tapered or not.
//!
//! The formulas are those of the switches' trees (`tree.rs`). Endpoint cables are copper and one is
//! counted for every leaf port, used or not, as the paper does; all cables between switches are
//! optical. Diameter: 4 cables over two levels, 6 over three, 2 below one switch.
//!
//! To planners it is a switch for each level, where all switches of a level are equally full: the
//! NPUs of a leaf, the leaves (of a pod, with three levels), the pods. An NPU has its whole bandwidth
//! on the first and, on the others, its part of the leaf's uplinks: `up / down`.
//!
//! A tapered tree of two levels is *costed* with as few spines as have ports enough. Where they then get
//! two cables from some leaves and three from others, as with 22 uplinks and 9 or 10 spines, which leaf
//! pairs do well depends on the wiring. It is *simulated* with one cable from each leaf to each of `up`
//! spines, as by the paper's authors ([`GraphTopology::simulated`]); both have the same cables.
//!
//! What it ignores: where leaves stand, and hence the lengths of cables.

use allrail_core::{FieldError, counted, either};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::dimension::cables;
use super::drawing::Drawing;
use super::topology::{Counts, GraphTopology, Summing};
use super::tree::Tree;
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::placement::{Floor, Leaves, Rule, times};
use crate::{Dimension, Kind};

/// The tag in fabric files.
pub const TAG: &str = "fat_tree";
pub(super) const ABOUT: &str = "leaves and spines, two or three levels, tapered or not";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"npus": 12, "switch_radix": 8, "levels": 2}"#,
    r#"{"npus": 64, "switch_radix": 8, "levels": 3}"#,
    r#"{"npus": 20, "switch_radix": 8, "levels": 2, "taper": 0.5, "planes": 2}"#,
];

/// The keys of a fat tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FatTree {
    /// How many NPUs.
    pub npus: u32,
    /// Ports of a switch.
    #[serde(default = "checks::radix_64")]
    pub switch_radix: u32,
    /// Levels of switches: 2 or 3.
    pub levels: u32,
    /// Share of the leaves' uplinks left out, from 0 to below 1.
    #[serde(default)]
    pub taper: f64,
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// Every cable.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// Whether switches sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
}

impl FatTree {
    fn plan(&self) -> Option<Tree> {
        Tree::of_levels(u64::from(self.npus), self.switch_radix, self.taper, self.levels)
    }

    fn tree(&self) -> Tree {
        self.plan().expect("a validated fat tree fits its levels")
    }

    /// NPUs under the leaves of what `tree` builds.
    fn with_npus(
        &self,
        tree: impl Fn(&Tree, &mut Builder, Wire) -> Result<Vec<NodeId>, FieldError>,
    ) -> Result<Graph, FieldError> {
        let mut builder = Builder::new(self.npus);
        let plan = self.tree();
        let leaves = tree(&plan, &mut builder, self.link)?;
        for npu in 0..self.npus {
            let leaf = leaves[plan.leaf_of(u64::from(npu))];
            builder.cable(NodeId(npu), leaf, CableKind::Dac, self.link)?;
        }
        builder.build()
    }

    /// The leaf of each NPU.
    fn leaves(&self) -> Vec<u32> {
        let tree = self.tree();
        (0..u64::from(self.npus)).map(|npu| tree.leaf_of(npu) as u32).collect()
    }
}

impl GraphTopology for FatTree {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        checks::npus("npus", &[self.npus])?;
        checks::switch_radix(self.switch_radix)?;
        if !(2..=3).contains(&self.levels) {
            return Err(FieldError::new(
                "fabric.levels",
                self.levels,
                "a fat tree has 2 or 3 levels of switches",
                "write `levels: 2` or `levels: 3`",
            ));
        }
        checks::taper(self.taper)?;
        checks::planes(self.planes)?;
        match self.plan() {
            Some(tree) if tree.levels == 1 => checks::nothing_to_taper(self.taper),
            Some(_) => Ok(()),
            None => Err(FieldError::new(
                "fabric.switch_radix",
                self.switch_radix,
                format!(
                    "{} {does} not fit {} of it",
                    counted(self.npus, "NPU"),
                    counted(self.levels, "level"),
                    does = either(&self.npus, "does", "do")
                ),
                "take `levels: 3`, larger switches or fewer NPUs",
            )),
        }
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Switches)
    }

    fn counts(&self) -> Counts {
        let tree = self.tree();
        Counts {
            npus: u64::from(self.npus),
            switches: tree.switches(),
            aoc: tree.inner_cables(),
            dac: tree.leaves * tree.down,
            pcb: 0,
            planes: 1,
            ports: 1,
        }
        .of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        let one_pod = self.tree().leaves <= u64::from(self.switch_radix / 2);
        Some(if one_pod { self.tree().span().min(4) } else { self.tree().span() })
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        self.npus.is_multiple_of(2).then(|| self.tree().half_cut())
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        let tree = self.tree();
        if u64::from(self.npus) != tree.leaves * tree.down {
            return Err(format!(
                "its leaves are not equally full: {} {are} no multiple of {}",
                counted(self.npus, "NPU"),
                tree.down,
                are = either(&self.npus, "is", "are")
            ));
        }
        let pod = if self.levels == 3 { u64::from(self.switch_radix / 2) } else { tree.leaves };
        let pod = pod.min(tree.leaves);
        if !tree.leaves.is_multiple_of(pod) {
            let leaves = tree.leaves;
            return Err(format!("its pods are not equally full: {leaves} leaves in pods of {pod}"));
        }
        let across = if tree.levels == 1 {
            self.link.bandwidth
        } else {
            self.link.bandwidth.fraction(tree.up.min(tree.down), tree.down)
        };
        let levels = [(tree.down, self.link.bandwidth), (pod, across), (tree.leaves / pod, across)];
        let switch = |(level, (size, bandwidth))| {
            let size = u32::try_from(size).expect("validated");
            Dimension::new(Kind::Switch, size, self.planes, bandwidth, cables(2 * level, self.link))
        };
        Ok((1u64..).zip(levels).filter(|(_, (size, _))| *size > 1).map(switch).collect())
    }

    fn shares_ports(&self) -> bool {
        true
    }

    fn floor(&self) -> Option<Floor> {
        Some(Floor {
            topology: TAG,
            board: vec![1, 1],
            board_bandwidth: times(self.link.bandwidth, u64::from(self.planes)),
            failed: Vec::new(),
            leaves: Leaves { of_rows: vec![0], of_columns: self.leaves() },
            rule: Rule::SubGrid,
        })
    }

    fn drawing(&self) -> Drawing {
        let most = if self.levels == 2 { 32 } else { 64 };
        let smaller = [("npus", self.npus.min(most)), ("switch_radix", 8)];
        Drawing {
            smaller: Some(smaller.map(|(key, value)| (key, value.into())).to_vec()),
            ..Drawing::default()
        }
    }

    fn build(&self) -> Result<Graph, FieldError> {
        self.with_npus(Tree::build)
    }

    fn simulated(&self) -> Result<Graph, FieldError> {
        if self.tree().is_even() { self.build() } else { self.with_npus(Tree::build_evenly) }
    }

    fn simulated_as(&self) -> Option<&'static str> {
        const TOLD: &str = "costed with as few spines as have ports enough, simulated with one cable \
                            from each leaf to each of as many spines as a leaf has uplinks";
        (!self.tree().is_even()).then_some(TOLD)
    }
}
