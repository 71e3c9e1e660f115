//! The lower bound of collectives on a network that is no product of dimensions: cuts of its cables.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::{Contention, Fabric};
use allrail_schedule::cuts::{self, Network};

use crate::SimulateError;
use crate::scenario::{CollectiveScenario, Topology};

/// Networks of more nodes are left with the bound of their dimensions: cuts would take seconds there.
const MAX_NODES: usize = 1 << 11;

/// Cables on which all network models carry a scenario's messages.
pub(crate) struct CutBound<'s> {
    fabric: &'s Fabric,
    network: Network,
    /// Whether switches add.
    sums: bool,
}

impl<'s> CutBound<'s> {
    /// Of a scenario's network; `None` of a product of dimensions, whose own bound is what `dims` can reach.
    ///
    /// # Errors
    /// The network cannot be built.
    pub(crate) fn of(scenario: &'s CollectiveScenario) -> Result<Option<Self>, SimulateError> {
        let fabric = &scenario.fabric;
        let Some(Topology(topology, _)) = &scenario.topology else { return Ok(None) };
        if topology.dimensions().is_ok() {
            return Ok(None);
        }
        let graph = topology.simulated()?;
        let shared = fabric.dimensions.iter().all(|one| one.contention == Contention::Shared);
        if !shared || u64::from(graph.npus()) != fabric.npus() || graph.nodes() > MAX_NODES {
            return Ok(None);
        }
        let network = Network::of_graph(&graph, topology.counts().planes);
        Ok(Some(Self { fabric, network, sums: topology.reduces().is_some() }))
    }

    /// Beneath every schedule of an operation over some dimensions: the largest of all groups'.
    pub(crate) fn lower(
        &self,
        operation: Operation,
        size: Bytes,
        dimensions: &[DimensionId],
    ) -> Time {
        let groups = self.groups(dimensions);
        let of =
            |members: &Vec<u32>| cuts::lower(&self.network, operation, members, size, self.sums);
        let most = groups.iter().filter_map(of).max().unwrap_or(Time::ZERO);
        // A float's last digits must not lift it above what was simulated.
        Time::from_ps((most.as_ps() as f64 * (1.0 - 1e-9)) as u64)
    }

    /// The NPUs that are alike but for their places on these dimensions, for each of the others' places.
    fn groups(&self, dimensions: &[DimensionId]) -> Vec<Vec<u32>> {
        let npus = u32::try_from(self.fabric.npus()).expect("fewer than nodes");
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for npu in 0..npus {
            let (mut stride, mut first) = (1, npu);
            for (id, dimension) in self.fabric.ids().zip(&self.fabric.dimensions) {
                if dimensions.contains(&id) {
                    first -= npu / stride % dimension.size * stride;
                }
                stride *= dimension.size;
            }
            groups.entry(first).or_default().push(npu);
        }
        groups.into_values().collect()
    }
}
