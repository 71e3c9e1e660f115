//! Which algorithm a collective of a step runs on each dimension: as the schedule says, or chosen.
//!
//! A choice depends on what is done, on how many bytes, and on the parts of dimensions that a group has; never
//! on what carries it, so it is the same in every network model.

use std::cell::RefCell;
use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Contention, Fabric, Kind, Wiring};
use allrail_schedule::{Algorithms, Request};
use allrail_workload::{Group, GroupId, Part};

use crate::SimulateError;

/// Rings of whose parts groups are. A part of a ring is a line: what its ends send each other goes back along it, or round
/// over the rest, and where members are not neighbours the groups between them have the same cables. So it is counted
/// over the ring's cables, as networks without dimensions are.
///
/// Lines of boards that switches join are rings of any of their boards, and are not counted so.
#[derive(Default)]
pub(super) struct Rings {
    /// Whether parts are lines.
    pub(super) are_cut: bool,
    known: RefCell<BTreeMap<DimensionId, Option<Wiring>>>,
}

impl Rings {
    /// The cables of a dimension's ring, where `size` of its NPUs are a part of it.
    fn cables(&self, fabric: &Fabric, id: DimensionId, size: u32) -> Option<Wiring> {
        let whole = fabric.dimension(id);
        let shared = whole.contention == Contention::Shared && whole.wiring.is_none();
        if !self.are_cut || whole.kind != Kind::Ring || !shared || size >= whole.size {
            return None;
        }
        let cables = || {
            let alone = Fabric { dimensions: vec![whole.clone()], ..fabric.clone() };
            Some(Wiring::of_npus(alone.graph().ok()?, 1))
        };
        self.known.borrow_mut().entry(id).or_insert_with(cables).clone()
    }

    /// The same among the parts of a group.
    pub(super) fn among(&self, fabric: &Fabric, id: DimensionId, parts: &[Part]) -> Option<Wiring> {
        let own = || parts.iter().filter(|part| part.dimension == id);
        // Of a group that is no product of parts, nothing is known here.
        own().next()?;
        let cables = self.cables(fabric, id, own().map(|part| part.size).product())?;
        Some(cables.among(own().map(|part| (part.size, part.stride))))
    }
}

/// What has been chosen so far.
#[derive(Default)]
pub(super) struct Choices {
    pub(super) rings: Rings,
    known: BTreeMap<(Operation, Bytes, GroupId), Vec<String>>,
    /// By dimension, in the order in which they were chosen first.
    ran: Vec<Vec<String>>,
}

impl Choices {
    /// The algorithm on each dimension of the fabric; `None` where all are the usual ones.
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
        if said.is_none() && request.fabric.dimensions.iter().all(|one| one.wiring.is_none()) {
            return Ok(None);
        }
        if let Some(known) = self.known.get(&(operation, bytes, id)) {
            return Ok(Some(known.clone()));
        }
        let (fabric, dimensions) = self.network(&request.fabric, &group.parts);
        let asked = Request {
            fabric,
            operation,
            size: bytes,
            dimensions: dimensions.clone(),
            chunks: request.chunks_of(bytes),
            algorithms: said.cloned(),
            ..request.clone()
        };
        let said = asked.said();
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

impl Choices {
    /// The fabric as a group with these parts sees it, and the dimensions that it is on.
    pub(super) fn network(&self, whole: &Fabric, parts: &[Part]) -> (Fabric, Vec<DimensionId>) {
        let rings = |id| self.rings.among(whole, id, parts);
        network(whole, parts, rings)
    }
}

fn network(
    fabric: &Fabric,
    parts: &[Part],
    ring: impl Fn(DimensionId) -> Option<Wiring>,
) -> (Fabric, Vec<DimensionId>) {
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
        whole.wiring = whole.wiring.take().map(among).or_else(|| ring(dimension));
        dimensions.push(dimension);
    }
    (fabric, dimensions)
}
