//! `flows` on a graph; under [`Splitting::Ideal`](allrail_network::flows::Splitting::Ideal) with detours, where the
//! topology takes them.

use allrail_network::Flows;

use super::model::{Built, GraphModel, GraphNetwork, OnGraph};
use crate::SimulateError;

pub(crate) struct Model;

impl GraphModel for Model {
    fn build(&self, on: &OnGraph<'_>) -> Result<Built, SimulateError> {
        let network_model = Flows::with_detours(on.graph, on.paths, on.detours());
        Ok(Built { network_model: Box::new(network_model), routing: None })
    }

    fn is_fluid(&self) -> bool {
        true
    }
}

impl GraphNetwork for Flows {}
