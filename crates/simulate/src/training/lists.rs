//! The gradients of a step graph, as tensor schedulers are given them.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_fabric::Fabric;
use allrail_schedule::tensor::{Outlook, StepFacts, Tensor, TensorParameters};
use allrail_workload::{NodeId, StepGraph, Work};

use crate::SimulateError;
use crate::training::facts::facts;

/// What a collective does, and whether it waits for another one of the same gradient.
pub(super) type Kind = (Operation, bool);

/// The gradients of a graph.
pub(super) struct Lists {
    /// Of every group and kind, the first actor's; other actors' meet these in order.
    pub(super) lists: BTreeMap<(u32, Kind), Vec<(Tensor, NodeId)>>,
    /// By which kind of collective a node exchanges which tensor of its list.
    pub(super) tensor_of: BTreeMap<NodeId, (Kind, u32)>,
}

impl Lists {
    pub(super) fn new(graph: &StepGraph) -> Self {
        let mut found = Self { lists: BTreeMap::new(), tensor_of: BTreeMap::new() };
        let mut counts: BTreeMap<(u32, u32, Kind), u32> = BTreeMap::new();
        for id in graph.ids() {
            let node = graph.node(id);
            let (Some(place), Work::Collective { operation, bytes, group, .. }) =
                (node.tensor, node.work)
            else {
                continue;
            };
            if bytes == Bytes::default() {
                continue;
            }
            let kind = (operation, graph.is_second(id));
            let count = counts.entry((group.0, node.actor.0, kind)).or_default();
            found.tensor_of.insert(id, (kind, *count));
            *count += 1;
            if graph.groups()[group.index()].actors[0] == node.actor {
                let tensor = Tensor { bytes, place, group: None };
                found.lists.entry((group.0, kind)).or_default().push((tensor, id));
            }
        }
        found
    }
}

/// What the policy looks at of the step, if it does.
pub(super) fn known(
    graph: &StepGraph,
    fabric: &Fabric,
    parameters: &TensorParameters,
    gradients: &[NodeId],
) -> Result<Option<StepFacts>, SimulateError> {
    let outlook = parameters.policy()?.outlook();
    let looks = outlook != Outlook::Nothing;
    Ok(looks.then(|| facts(graph, fabric, parameters.exchange, gradients, outlook)))
}
