//! A world with its settings, before it carries anything.

use std::sync::Arc;

use allrail_core::{Bytes, counted};
use allrail_fabric::Fabric;
use allrail_world::flows::Splitting;
use allrail_world::packets::Settings as PacketSettings;
use allrail_world::{Links, OnePlane, World};

use crate::error::SimulateError;
use crate::lowering::Lowering;
use crate::on_graph::OnGraph;
use crate::scenario::{Network, Topology, WorldKind};

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
    /// The network that carries the messages of `lowering` on `fabric`, empty.
    ///
    /// # Errors
    /// The graph is not whole, or the network would be too large: names the field.
    pub(crate) fn of_messages(
        &self,
        fabric: &Fabric,
        lowering: &Lowering,
    ) -> Result<Box<dyn World>, SimulateError> {
        let model = match self.kind.network() {
            Network::Dimensions => unreachable!("messages are planned where they are carried"),
            Network::Links => {
                check_links(fabric, lowering)?;
                return Ok(Box::new(Links::new(fabric)));
            }
            Network::Graph(model) => model,
        };
        let dimensions = || Topology::of_dimensions(fabric);
        let Topology(topology, _) = self.topology.cloned().unwrap_or_else(dimensions);
        let graph = Arc::new(topology.simulated()?);
        let on = OnGraph {
            topology: &*topology,
            graph: &graph,
            paths: self.paths,
            packets: &self.packets,
            seed: self.seed,
        };
        let world = model.build(&on)?.world;
        Ok(Box::new(OnePlane { world, planes: topology.counts().planes }))
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
