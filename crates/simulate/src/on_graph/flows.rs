//! `flows` on a graph; under [`Splitting::Ideal`](allrail_world::flows::Splitting::Ideal) with detours, where the
//! topology takes them.

use allrail_world::Flows;

use super::model::{Built, GraphModel, GraphWorld, OnGraph};
use crate::SimulateError;

pub(crate) struct Model;

impl GraphModel for Model {
    fn build(&self, on: &OnGraph<'_>) -> Result<Built, SimulateError> {
        let world = Flows::with_detours(on.graph, on.paths, on.detours());
        Ok(Built { world: Box::new(world), routing: None })
    }

    fn is_fluid(&self) -> bool {
        true
    }
}

impl GraphWorld for Flows {}
