//! `packets` on a graph, by the routing of its topology.

use std::sync::Arc;

use allrail_fabric::FabricError;
use allrail_workload::StepGraph;
use allrail_world::Packets;
use allrail_world::packets::{Settings, Statistics};

use super::model::{Built, GraphModel, GraphWorld, OnGraph};
use super::packet_size;
use crate::SimulateError;

pub(crate) struct Model;

impl GraphModel for Model {
    fn build(&self, on: &OnGraph<'_>) -> Result<Built, SimulateError> {
        let routing = on.topology.routing(on.graph)?;
        let told = (routing.about(), routing.channels());
        let world =
            Packets::new(Arc::clone(on.graph), routing, on.packets, on.seed).map_err(in_packets)?;
        Ok(Built { world: Box::new(world), routing: Some(told) })
    }

    fn is_fluid(&self) -> bool {
        false
    }

    fn suited(&self, packets: &Settings, step: &StepGraph) -> (Settings, Option<String>) {
        packet_size::suited(packets, step)
    }
}

impl GraphWorld for Packets {
    fn statistics(&self) -> Option<Statistics> {
        Some(Packets::statistics(self))
    }

    fn stalled(&self) -> Option<String> {
        Packets::stalled(self)
    }

    fn check_empty(&self) {
        Packets::check_empty(self);
    }
}

/// The network does not know under which key its settings stand.
fn in_packets(mut error: FabricError) -> FabricError {
    if let Some(key) = error.field.strip_prefix("world.") {
        error.field = format!("packets.{key}");
    }
    error
}
