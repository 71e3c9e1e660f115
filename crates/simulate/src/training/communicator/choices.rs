//! Which algorithm a collective of a step runs on each dimension: as the schedule says, or chosen.
//!
//! A choice depends on what is done, on how many bytes, and on the parts of dimensions that a group has; never
//! on what carries it, so it is the same in every world.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Fabric, Wiring};
use allrail_schedule::{Algorithms, Request};
use allrail_workload::{Group, GroupId, Part};

use crate::SimulateError;

/// What has been chosen so far.
#[derive(Default)]
pub(super) struct Choices {
    known: BTreeMap<(Operation, Bytes, GroupId), Vec<String>>,
    /// By dimension, in the order in which they were chosen first.
    ran: Vec<Vec<String>>,
}

impl Choices {
    /// The algorithm on each dimension of the fabric; `None` for the usual ones.
    ///
    /// # Errors
    /// The list is not as long as the fabric's; nothing fits what is left open.
    pub(super) fn names(
        &mut self,
        request: &Request,
        said: Option<&Algorithms>,
        (operation, bytes): (Operation, Bytes),
        (id, group): (GroupId, &Group),
    ) -> Result<Option<Vec<String>>, SimulateError> {
        let Some(said) = said else { return Ok(None) };
        if let Some(known) = self.known.get(&(operation, bytes, id)) {
            return Ok(Some(known.clone()));
        }
        let (fabric, dimensions) = network(&request.fabric, &group.parts);
        let asked = Request {
            fabric,
            operation,
            size: bytes,
            dimensions: dimensions.clone(),
            chunks: request.chunks_of(bytes),
            algorithms: Some(said.clone()),
            ..request.clone()
        };
        let names = asked.decided()?.algorithm_names()?;
        if said.is_open() {
            self.ran.resize(names.len(), Vec::new());
            for id in dimensions {
                let (ran, name) = (&mut self.ran[id.index()], &names[id.index()]);
                if !ran.contains(name) {
                    ran.push(name.clone());
                }
            }
        }
        self.known.insert((operation, bytes, id), names.clone());
        Ok(Some(names))
    }

    /// What was chosen for a dimension.
    pub(super) fn ran(&self, dimension: DimensionId) -> &[String] {
        self.ran.get(dimension.index()).map_or(&[], Vec::as_slice)
    }
}

/// The fabric as a group with these parts sees it, and the dimensions that it is on.
pub(super) fn network(fabric: &Fabric, parts: &[Part]) -> (Fabric, Vec<DimensionId>) {
    let mut fabric = fabric.clone();
    let mut dimensions: Vec<DimensionId> = Vec::new();
    let mut sizes: BTreeMap<DimensionId, u32> = BTreeMap::new();
    for Part { dimension, size, .. } in parts {
        *sizes.entry(*dimension).or_insert(1) *= size;
    }
    for (dimension, size) in sizes {
        if size < 2 {
            continue;
        }
        let whole = &mut fabric.dimensions[dimension.index()];
        if kinds::of(whole.kind).reach() == Reach::Peers && size < whole.size {
            // Only the links to the part's own NPUs carry its messages.
            whole.links = (whole.links * (size - 1) / (whole.size - 1)).max(1);
        }
        whole.size = size;
        let own = || parts.iter().filter(|part| part.dimension == dimension);
        let among = |wiring: Wiring| wiring.among(own().map(|part| (part.size, part.stride)));
        whole.wiring = whole.wiring.take().map(among);
        dimensions.push(dimension);
    }
    (fabric, dimensions)
}
