//! Tokens on their way to experts and back.
//!
//! Routers are taken as balanced: every expert is visited as often. A layer has an all-to-all out and one home
//! in either pass, over the ranks of `ep`, of every token's visits.
//!
//! - `capacity_factor: c`: an expert has room for c times its even share of visits and computes, and receives, as
//!   much: what is free is padding, and with c < 1 tokens are dropped (GShard, Lepikhin et al., 2021; Switch
//!   Transformer). Left out, none is dropped and nothing padded (dropless, as `MegaBlocks`). Padding is computed
//!   and counts to HFU, not to MFU.
//! - `expert_nodes: M`: a token visits experts on at most M nodes (node-limited routing, DeepSeek-V3, 2412.19437,
//!   §3.1, §3.2.2). It travels once to each of these, M times its width in place of `top_k` times, and
//!   from there to each of its experts within the node; home the sums are made within the node first. A node is
//!   the innermost dimension.

use allrail_collective::Operation::AllToAll;
use allrail_core::{FieldError, counted};

use super::emit::{Emitter, Span};
use super::plan::Plan;
use crate::error::wrong;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::Layer;
use crate::spec::Axis;

/// Which way tokens travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Journey {
    /// To experts.
    Out,
    /// And back.
    Home,
}

impl Plan<'_> {
    /// Whether what is said of experts goes together.
    pub(super) fn experts_go_together(&self) -> Result<(), FieldError> {
        let parallelism = &self.workload.parallelism;
        let experts = self.model.layers.iter().any(|layer| layer.experts.is_some());
        if let Some(factor) = parallelism.capacity_factor.filter(|_| !experts) {
            let hint = "leave it out";
            return Err(wrong(
                "parallelism.capacity_factor",
                factor,
                "the model has no experts",
                hint,
            ));
        }
        let Some(limit) = parallelism.expert_nodes else { return Ok(()) };
        let far = self.layout.parts(Axis::Ep).iter().filter(|part| part.dimension.0 > 0);
        let nodes: u32 = far.map(|part| part.size).product();
        if limit == 0 || nodes == 1 || limit > nodes {
            let why =
                format!("`ep` lies on {} (places of the first dimension)", counted(nodes, "node"));
            let hint = "at most as many, or leave it out";
            return Err(wrong("parallelism.expert_nodes", limit, &why, hint));
        }
        Ok(())
    }
}

impl Emitter<'_> {
    /// Tokens to their experts, or back.
    pub(super) fn exchange_tokens(
        &mut self,
        position: usize,
        (layer, journey): (&Layer, Journey),
        name: &str,
        pass: Pass,
        data: Vec<NodeId>,
    ) -> Vec<NodeId> {
        let Some(experts) = layer.experts else { return data };
        let whole = self.plan.shares(layer).whole;
        let visits = u64::from(experts.top_k);
        let mut legs = match self.plan.workload.parallelism.expert_nodes {
            None => vec![(experts.dispatched, Span::Experts)],
            Some(limit) => {
                let once = experts.dispatched / visits * visits.min(limit.into());
                vec![(once, Span::ExpertsFar), (experts.dispatched, Span::ExpertsNear)]
            }
        };
        if journey == Journey::Home {
            legs.reverse();
        }
        let mut data = data;
        for (elements, span) in legs {
            let what = (AllToAll, self.bytes(elements, whole), span);
            let after = self.after(position, &data);
            let kind = (Purpose::Expert, None, pass);
            let arrived = self.collective(position, name, what, kind, &after);
            data = arrived.map_or(data, |id| vec![id]);
        }
        data
    }
}
