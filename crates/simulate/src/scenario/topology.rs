//! A graph fabric as scenarios see it.

use std::sync::Arc;

use allrail_fabric::topologies::product::Product;
use allrail_fabric::topologies::{self, GraphTopology, Planned};
use allrail_fabric::{Dimension, Fabric, Wiring};
use serde_json::Value;

use crate::SimulateError;
use crate::scenario::field;

/// A graph fabric of which a scenario's dimensions were read off, and the keys that it was read from.
#[derive(Clone)]
pub struct Topology(pub Arc<dyn GraphTopology>, pub Value);

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.tag())
    }
}

impl Topology {
    /// From `topology` and its keys.
    ///
    /// # Errors
    /// There is no such topology, or a key is wrong.
    pub fn read(keys: Value) -> Result<Self, SimulateError> {
        Ok(Self(topologies::read(keys.clone())?.into(), keys))
    }

    /// A fabric of dimensions, in cables.
    pub(crate) fn of_dimensions(fabric: &Fabric) -> Self {
        Self(Arc::new(Product(fabric.clone())), Value::Null)
    }

    /// What planners see.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn fabric(&self) -> Result<Fabric, SimulateError> {
        Ok(self.named(Planned::of(&*self.0)?.dimensions))
    }

    /// Its dimensions, of whoever asks for bandwidths alone.
    ///
    /// # Errors
    /// It is no product of dimensions.
    pub fn product(&self) -> Result<Fabric, SimulateError> {
        let dimensions = self.0.dimensions().map_err(|why| {
            let hint = "scenarios run on it, counted over its cables; here, take one that is";
            field("fabric.topology", self.0.tag(), &why, hint)
        })?;
        Ok(self.named(dimensions))
    }

    /// Its first NPUs, so many, as one dimension that counts over the cables.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn first_npus(&self, npus: u32) -> Result<Fabric, SimulateError> {
        let cables = Wiring::of_npus(self.0.simulated()?, self.0.counts().planes);
        let mut all = Dimension::over_cables(cables);
        all.size = npus;
        all.wiring = all.wiring.map(|wiring| wiring.of_job(1, npus));
        Ok(self.named(vec![all]))
    }

    /// These dimensions as its fabric.
    pub(crate) fn named(&self, dimensions: Vec<Dimension>) -> Fabric {
        let name = self.0.tag().to_owned();
        Fabric { memory_bandwidth: None, window: None, name, dimensions }
    }

    /// What a result should say where it is no product of dimensions.
    pub(crate) fn counted(&self) -> Option<String> {
        let why = self.0.dimensions().err()?;
        Some(self.over_cables(&why))
    }

    /// The same for another reason.
    pub(crate) fn over_cables(&self, why: &str) -> String {
        let detours = if self.0.takes_detours() {
            "; routing that takes detours may carry more than that"
        } else {
            ""
        };
        format!(
            "plans count messages over cables, split evenly over shortest paths{detours}; without \
             `schedule.algorithms` they take what is counted to be the fastest: {why}"
        )
    }
}
