//! A world with its settings, before it carries anything.

use std::sync::Arc;

use allrail_core::{Bytes, counted};
use allrail_fabric::Fabric;
use allrail_fabric::graph::Graph;
use allrail_fabric::routing::{Adaptive, Routing};
use allrail_world::flows::{Flows, Splitting};
use allrail_world::packets::{Packets, Settings as PacketSettings};
use allrail_world::{Links, OnePlane, World};

use crate::error::SimulateError;
use crate::lowering::Lowering;
use crate::scenario::{Topology, WorldKind};

/// What carries messages, and how it is handed them.
#[derive(Clone, Debug)]
pub(crate) struct WorldSettings<'a> {
    pub(crate) kind: WorldKind,
    /// The graph that the fabric was read off.
    pub(crate) topology: Option<&'a Topology>,
    pub(crate) packets: PacketSettings,
    /// Of fluids.
    pub(crate) paths: Splitting,
    /// What links may have yet to send when a dimension chooses.
    pub(crate) send_ahead: Bytes,
    /// Of packets that choose their way.
    pub(crate) seed: u64,
}

impl WorldSettings<'_> {
    /// The graph that `flows` and `packets` run on, and how many planes are alike.
    ///
    /// # Errors
    /// The graph is not whole, or too large.
    pub(crate) fn graph(&self, fabric: &Fabric) -> Result<(Graph, u64), SimulateError> {
        match self.topology {
            Some(Topology(topology, _)) => Ok((topology.simulated()?, topology.counts().planes)),
            None => Ok((fabric.graph()?, 1)),
        }
    }

    /// The world that carries the messages of `lowering` on `fabric`, empty.
    ///
    /// # Errors
    /// It would be too large: names the field.
    pub(crate) fn of_messages(
        &self,
        fabric: &Fabric,
        lowering: &Lowering,
    ) -> Result<Box<dyn World>, SimulateError> {
        if self.kind == WorldKind::Links {
            check_links(fabric, lowering)?;
            return Ok(Box::new(Links::new(fabric)));
        }
        let (graph, planes) = self.graph(fabric)?;
        let graph = Arc::new(graph);
        if self.kind == WorldKind::Flows {
            let takes_detours = self.topology.is_some_and(|Topology(one, _)| one.takes_detours());
            let detours = takes_detours && self.paths == Splitting::Ideal;
            let world = Flows::with_detours(&graph, self.paths, detours);
            return Ok(Box::new(OnePlane { world, planes }));
        }
        let routing = match self.topology {
            Some(Topology(topology, _)) => topology.routing(&graph)?,
            None => Box::new(Adaptive::new(&graph)?) as Box<dyn Routing>,
        };
        let world = Packets::new(graph, routing, &self.packets, self.seed)?;
        Ok(Box::new(OnePlane { world, planes }))
    }
}

/// `links` keeps every link and every rank in memory, and its messages must fit the clock.
fn check_links(fabric: &Fabric, lowering: &Lowering) -> Result<(), SimulateError> {
    const MAX_LINKS: u64 = 1 << 25;
    let refuse = |why: String| SimulateError::Field {
        field: "world".to_owned(),
        value: "links".to_owned(),
        why,
        hint: "use `world: dims`".to_owned(),
    };
    let links = Links::link_count(fabric);
    if links > MAX_LINKS {
        return Err(refuse(format!(
            "the fabric has {links}, more than {MAX_LINKS}",
            links = counted(links, "link")
        )));
    }
    for dimension in &fabric.dimensions {
        let link = allrail_fabric::kinds::of(dimension.kind).link_bandwidth(dimension);
        if link.time_for(lowering.largest_message).is_none_or(|time| time.as_ps() > 1 << 60) {
            return Err(refuse("a message takes longer than 13 days".to_owned()));
        }
    }
    Ok(())
}
