//! The trait of network models that run on a graph.

use std::sync::Arc;

use allrail_fabric::graph::Graph;
use allrail_fabric::topologies::GraphTopology;
use allrail_network::NetworkModel;
use allrail_network::flows::Splitting;
use allrail_network::packets::{Settings, Statistics};
use allrail_workload::StepGraph;

use crate::SimulateError;

/// One plane of a topology, and what scenarios say of messages on it.
pub(crate) struct OnGraph<'a> {
    pub(crate) topology: &'a dyn GraphTopology,
    pub(crate) graph: &'a Arc<Graph>,
    /// Over which paths fluids go.
    pub(crate) paths: Splitting,
    /// Switches and packets.
    pub(crate) packets: &'a Settings,
    /// Of packets that choose their way.
    pub(crate) seed: u64,
}

impl OnGraph<'_> {
    /// Whether the best splitting of fluids has detours: where minimal paths alone leave most links unused.
    pub(crate) fn detours(&self) -> bool {
        self.paths == Splitting::Ideal && self.topology.takes_detours()
    }
}

/// An empty network.
pub(crate) struct Built {
    pub(crate) network_model: Box<dyn GraphNetwork>,
    /// What its routing says of itself, and the routing's virtual channels; `None` where messages have none.
    pub(crate) routing: Option<(String, u8)>,
}

/// A network model on a graph. Whoever runs collectives, steps or traffic on a graph asks it for an empty network.
pub(crate) trait GraphModel: Sync {
    /// An empty network.
    ///
    /// # Errors
    /// No routing fits, or a setting is out of range: names the field.
    fn build(&self, on: &OnGraph<'_>) -> Result<Built, SimulateError>;

    /// Whether messages are fluids, whose bytes are on all links of their paths at once.
    fn is_fluid(&self) -> bool;

    /// The settings of packets with what nobody says chosen for a training step, and what a result should say of
    /// that.
    fn suited(&self, packets: &Settings, step: &StepGraph) -> (Settings, Option<String>) {
        let _ = step;
        (packets.clone(), None)
    }
}

/// What a network on a graph tells beside its events.
pub(crate) trait GraphNetwork: NetworkModel {
    /// What its packets did.
    fn statistics(&self) -> Option<Statistics> {
        None
    }

    /// Who waits for whom, where nothing moves any more.
    fn stalled(&self) -> Option<String> {
        None
    }

    /// Panics if anything is left in it at the end of a run.
    fn check_empty(&self) {}
}
