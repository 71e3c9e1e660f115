//! What a graph fabric is, without simulating it: the object that `allrail fabric show --json` prints.

use std::ops::ControlFlow;

use allrail_core::{FieldError, counted};
use serde::Serialize;

use crate::Dimension;
use crate::cost::{Prices, Usd};
use crate::graph::{CableKind, measure};
use crate::topologies::{Counts, Drawing, GraphTopology, Picture};

/// Networks of more NPUs than this are counted only: building and searching them takes minutes and
/// gigabytes.
const MOST_BUILT: u64 = 1 << 16;

/// Cables over all planes, by kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cables {
    /// Active optical.
    pub aoc: u64,
    /// Direct attach copper.
    pub dac: u64,
    /// Traces of boards.
    pub pcb: u64,
}

/// Counts, price, diameter and half-plane cut.
#[derive(Clone, Debug, Serialize)]
pub struct Show {
    /// Such as `hammingmesh`.
    pub topology: &'static str,
    /// NPUs that were bought.
    pub npus: u64,
    /// Planes, all alike.
    pub planes: u64,
    /// Ports of an NPU in one plane; the most, where they differ.
    pub ports: u64,
    /// Switches over all planes.
    pub switches: u64,
    /// Switches and ports over all planes that come with the NPUs' boards and are not priced; left out
    /// where there are none.
    #[serde(skip_serializing_if = "none")]
    pub on_board: u64,
    /// Cables over all planes.
    pub cables: Cables,
    /// Price of switches and cables.
    pub cost_usd: Usd,
    /// NPUs per million dollars; `None` where it costs nothing.
    pub npus_per_million_usd: Option<f64>,
    /// By the topology's formula, in cables.
    pub diameter: Option<u32>,
    /// Links of one plane between its halves.
    pub half_plane_cut_links: Option<u64>,
    /// Them as a share of what half of the NPUs inject.
    pub half_plane_cut_share: Option<f64>,
    /// As planners see it, the innermost first; `None` if it is no product of dimensions.
    pub dimensions: Option<Vec<Dimension>>,
    /// Why not.
    pub no_dimensions: Option<String>,
    /// Those that plans count over its cables then; `None` if nothing was built.
    pub counted: Option<Vec<Dimension>>,
    /// Where what is simulated is not what is counted: how they differ.
    pub simulated_as: Option<&'static str>,
    /// What only the graph tells.
    #[serde(flatten)]
    pub built: Option<Built>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn none(count: &u64) -> bool {
    *count == 0
}

/// What was read off the graph of one plane.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Built {
    /// NPUs that work: those of the graph; `None` above 65,536 NPUs, which are not built.
    pub npus_working: Option<u64>,
    /// By breadth-first search from every NPU, in cables; `None` above 65,536 NPUs.
    pub diameter_bfs: Option<u32>,
}

/// Counts only, nothing built.
#[must_use]
pub fn count(topology: &dyn GraphTopology, prices: &Prices) -> Show {
    let counts: Counts = topology.counts();
    let cost = prices.cost(&counts);
    let cut = topology.half_plane_cut_links();
    let half = (counts.npus * counts.ports) as f64 / 2.0;
    let million = cost.dollars() / 1e6;
    let dimensions = topology.dimensions();
    Show {
        topology: topology.tag(),
        npus: counts.npus,
        planes: counts.planes,
        ports: counts.ports,
        switches: counts.switches,
        on_board: topology.on_board() * counts.planes,
        cables: Cables { aoc: counts.aoc, dac: counts.dac, pcb: counts.pcb },
        cost_usd: cost,
        npus_per_million_usd: (million > 0.0).then(|| counts.npus as f64 / million),
        diameter: topology.diameter_formula(),
        half_plane_cut_links: cut,
        half_plane_cut_share: cut.map(|cut| cut as f64 / half),
        no_dimensions: dimensions.as_ref().err().cloned(),
        dimensions: dimensions.ok(),
        counted: None,
        simulated_as: topology.simulated_as(),
        built: None,
    }
}

/// Counts, then builds one plane and measures it, up to 65,536 NPUs. Whoever watches is told how far the longest
/// part of it is, the search from every NPU, and may end that: there is no `diameter_bfs` then.
///
/// # Errors
/// The graph is not whole.
pub fn show(
    topology: &dyn GraphTopology,
    prices: &Prices,
    watch: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Show, FieldError> {
    let mut counted = count(topology, prices);
    let mut built = Built { npus_working: None, diameter_bfs: None };
    if counted.npus <= MOST_BUILT {
        let graph = topology.build()?;
        built.npus_working = Some(u64::from(graph.npus()));
        built.diameter_bfs = measure::diameter_watched(&graph, watch);
        if counted.dimensions.is_none() {
            counted.counted = Some(topology.wired()?);
        }
    }
    Ok(Show { built: Some(built), ..counted })
}

/// The graph of one plane, for pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Drawn {
    /// NPUs: the first of the nodes.
    pub npus: u32,
    /// NPUs and switches.
    pub nodes: usize,
    /// Each cable as its two nodes and its kind.
    pub cables: Vec<(u32, u32, CableKind)>,
    /// Where the nodes stand.
    pub picture: Picture,
    /// What they are called, where not by number.
    pub names: Option<Vec<String>>,
}

/// Builds one plane to be drawn.
///
/// # Errors
/// The graph is not whole, or has more than 65,536 NPUs.
pub fn draw(topology: &dyn GraphTopology) -> Result<Drawn, FieldError> {
    let npus = topology.counts().npus;
    if npus > MOST_BUILT {
        let why = format!("networks of more than {MOST_BUILT} NPUs are not built");
        return Err(FieldError::new("fabric", counted(npus, "NPU"), why, "draw a smaller one"));
    }
    let graph = topology.build()?;
    let cables = graph.cables().iter();
    let cables = cables.map(|cable| (cable.ends[0].0, cable.ends[1].0, cable.kind)).collect();
    let Drawing { picture, names, .. } = topology.drawing();
    Ok(Drawn { npus: graph.npus(), nodes: graph.nodes(), cables, picture, names })
}

/// What else a topology says of itself, beside its numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Whether its nodes have names, not numbers.
    pub named: bool,
    /// Whether all dimensions leave an NPU by the same cables.
    pub shares_ports: bool,
    /// The keys of a network of its kind that a picture can show, and their values.
    pub smaller: Option<Vec<(&'static str, serde_json::Value)>>,
}

/// Asks for them.
#[must_use]
pub fn facts(topology: &dyn GraphTopology) -> Facts {
    let Drawing { names, smaller, .. } = topology.drawing();
    Facts { named: names.is_some(), shares_ports: topology.shares_ports(), smaller }
}
