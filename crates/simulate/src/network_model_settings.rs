//! A network model with its settings, before it carries anything.

use std::sync::Arc;

use allrail_core::{Bytes, FieldError, counted};
use allrail_fabric::Fabric;
use allrail_network::flows::Splitting;
use allrail_network::packets::Settings as PacketSettings;
use allrail_network::{Links, NetworkModel, OnePlane};

use crate::error::SimulateError;
use crate::lowering::Lowering;
use crate::on_graph::OnGraph;
use crate::scenario::{Network, NetworkModelKind, Topology};

/// What carries messages, and how it is handed them.
#[derive(Clone, Debug)]
pub(crate) struct NetworkModelSettings<'a> {
    pub(crate) kind: NetworkModelKind,
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

impl NetworkModelSettings<'_> {
    /// The network that carries the messages of `lowering` on `fabric`, empty.
    ///
    /// # Errors
    /// The graph is not whole, or the network would be too large: names the field.
    pub(crate) fn of_messages(
        &self,
        fabric: &Fabric,
        lowering: &Lowering,
    ) -> Result<Box<dyn NetworkModel>, SimulateError> {
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
        let network_model = model.build(&on)?.network_model;
        Ok(Box::new(OnePlane { network_model, planes: topology.counts().planes }))
    }
}

/// `links` keeps every link and every rank in memory, and its messages must fit the clock.
fn check_links(fabric: &Fabric, lowering: &Lowering) -> Result<(), SimulateError> {
    const MAX_LINKS: u64 = 1 << 25;
    let refuse = |why: String| {
        SimulateError::Field(FieldError::new(
            "network_model",
            "links",
            why,
            "use `network_model: dims`",
        ))
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
