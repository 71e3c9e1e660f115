//! The algorithms of collectives as traffic, and the grid of their ranks: rank `r` is NPU `r`, in row `r / columns`.

use allrail_collective::grid::{self, GridAllReduce};
use allrail_collective::{CollectiveError, in_network};
use allrail_core::counted;
use allrail_fabric::topologies::GraphTopology;

use crate::SimulateError;
use crate::error::field;
use crate::scenario::Traffic;

/// An all-reduce of traffic.
#[derive(Clone, Copy, Debug)]
pub enum AllReduce {
    /// By the NPUs, in a grid.
    Grid(&'static dyn GridAllReduce),
    /// By the switches.
    InNetwork,
}

impl AllReduce {
    /// All of them, in the order of the docs.
    pub fn all() -> impl Iterator<Item = Self> {
        grid::ALL.iter().copied().map(Self::Grid).chain([Self::InNetwork])
    }

    /// The tag in scenario files.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::Grid(algorithm) => algorithm.tag(),
            Self::InNetwork => in_network::TAG,
        }
    }

    /// Whose halves stand for a reduce-scatter and an all-gather. Switches do whole sums only: then a
    /// ring's.
    #[must_use]
    pub(crate) fn halves(self) -> &'static dyn GridAllReduce {
        match self {
            Self::Grid(algorithm) => algorithm.halves(),
            Self::InNetwork => &grid::Ring,
        }
    }

    /// The all-reduce with this tag.
    pub(crate) fn named(name: &str) -> Result<Self, SimulateError> {
        let found = Self::all().find(|algorithm| algorithm.tag() == name);
        found.map_or_else(|| grid::named(name).map(Self::Grid), Ok).map_err(|e| explain(name, &e))
    }
}

/// Rows and columns of the ranks: the scenario's, or the fabric's own, or as square as it goes.
pub(super) fn shape(
    traffic: &Traffic,
    topology: &dyn GraphTopology,
    npus: u32,
) -> Result<[u32; 2], SimulateError> {
    let fits = |[rows, columns]: [u32; 2]| u64::from(rows) * u64::from(columns) == u64::from(npus);
    if let Some(shape) = traffic.shape {
        if !fits(shape) {
            let why = format!("its product is not the {npus}", npus = counted(npus, "NPU"));
            let [rows, columns] = square(npus);
            let hint = format!("for example `shape: [{rows}, {columns}]`");
            return Err(field("traffic.shape", format!("{shape:?}"), why, hint));
        }
        return Ok(shape);
    }
    Ok(topology.grid().filter(|shape| fits(*shape)).unwrap_or_else(|| square(npus)))
}

/// The most square grid of `npus`, no fewer columns than rows.
fn square(npus: u32) -> [u32; 2] {
    let rows = (1..=npus.isqrt()).rev().find(|rows| npus.is_multiple_of(*rows)).unwrap_or(1);
    [rows, npus / rows]
}

/// Refuses a grid of a shape on which the algorithm does not run.
pub(super) fn check(
    algorithm: &dyn GridAllReduce,
    [rows, columns]: [u32; 2],
) -> Result<(), SimulateError> {
    algorithm.check(rows, columns).map_err(|error| explain(algorithm.tag(), &error))
}

/// The field is the traffic's, whatever a collective calls it.
pub(super) fn explain(name: &str, error: &CollectiveError) -> SimulateError {
    let report = SimulateError::from(error.clone()).report();
    field("traffic.algorithm", name, report.why, report.hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_fabric::topologies;
    use serde_json::json;

    #[test]
    fn grids_are_the_fabrics_own_or_square() {
        let own = |fabric| topologies::read(fabric).expect("a topology").grid();
        assert_eq!(
            own(json!({ "topology": "hammingmesh", "board": [2, 3], "grid": [4, 5] })),
            Some([10, 12])
        );
        assert_eq!(own(json!({ "topology": "torus", "shape": [4, 2, 3] })), Some([4, 6]));
        assert_eq!(own(json!({ "topology": "fat_tree", "npus": 1024, "levels": 2 })), None);
        assert_eq!((square(1024), square(12), square(7)), ([32, 32], [3, 4], [1, 7]));
    }
}
