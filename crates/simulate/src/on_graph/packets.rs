//! `packets` on a graph, by the routing of its topology.

use std::sync::Arc;

use allrail_core::FieldError;
use allrail_network::Packets;
use allrail_network::packets::{Settings, Statistics};
use allrail_workload::StepGraph;

use super::model::{Built, GraphModel, GraphNetwork, OnGraph};
use super::packet_size;
use crate::SimulateError;

pub(crate) struct Model;

impl GraphModel for Model {
    fn build(&self, on: &OnGraph<'_>) -> Result<Built, SimulateError> {
        let routing = on.topology.routing(on.graph)?;
        let told = (routing.about(), routing.channels());
        let network_model =
            Packets::new(Arc::clone(on.graph), routing, on.packets, on.seed).map_err(in_packets)?;
        Ok(Built { network_model: Box::new(network_model), routing: Some(told) })
    }

    fn is_fluid(&self) -> bool {
        false
    }

    fn suited(&self, packets: &Settings, step: &StepGraph) -> (Settings, Option<String>) {
        packet_size::suited(packets, step)
    }
}

impl GraphNetwork for Packets {
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
fn in_packets(mut error: FieldError) -> FieldError {
    if let Some(key) = error.field.strip_prefix("network_model.") {
        error.field = format!("packets.{key}");
    }
    error
}
