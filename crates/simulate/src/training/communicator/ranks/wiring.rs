//! What the network model's ends are to the job's ranks, and what collectives are made of.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::Time;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_schedule::{Algorithms as Named, Request};

use crate::executors;
use crate::scenario::{Algorithms, GroupSchedule};

/// What the network model's ends are to the job's ranks, and what collectives are made of.
pub enum Wiring<'a> {
    /// NPUs of a graph, and one algorithm a collective.
    Graph {
        /// The NPU of each rank.
        places: &'a [NodeId],
        /// What collectives are made of.
        algorithms: &'a Algorithms,
        /// The job's dimensions: where messages count, not where they go.
        sizes: &'a [u32],
        /// The network, if its switches sum what passes through them.
        reducing: Option<&'a Graph>,
    },
    /// NPUs of a graph that has dimensions, and plans on them.
    Planned {
        /// The NPU of each rank.
        places: &'a [NodeId],
        /// Everything of the schedule but what is communicated.
        request: &'a Request,
        /// For groups that are no product of dimensions.
        algorithms: &'a Algorithms,
        /// As of [`Wiring::Graph`].
        reducing: Option<&'a Graph>,
    },
    /// Ranks of a fabric of dimensions, and plans on them.
    Dimensions {
        /// Everything of the schedule but what is communicated.
        request: &'a Request,
        /// Of a kind of collective, where they differ from the request's.
        algorithms: &'a BTreeMap<Operation, Named>,
        /// What groups smaller than the job run, where that is not a plan on their dimensions.
        groups: Option<&'a GroupSchedule>,
    },
}

impl Wiring<'_> {
    pub(super) fn request(&self) -> Option<&Request> {
        match self {
            Wiring::Graph { .. } => None,
            Wiring::Planned { request, .. } | Wiring::Dimensions { request, .. } => Some(request),
        }
    }

    pub(super) fn places(&self) -> Option<&[NodeId]> {
        match self {
            Wiring::Graph { places, .. } | Wiring::Planned { places, .. } => Some(places),
            Wiring::Dimensions { .. } => None,
        }
    }

    /// The network, if its switches sum what passes through them.
    pub(super) fn reducing(&self) -> Option<&Graph> {
        match self {
            Wiring::Graph { reducing, .. } | Wiring::Planned { reducing, .. } => *reducing,
            Wiring::Dimensions { .. } => None,
        }
    }

    /// What is said of the algorithms of a kind of collective on each dimension.
    pub(super) fn algorithms(&self, operation: Operation) -> Option<&Named> {
        let own = match self {
            Wiring::Dimensions { algorithms, .. } => algorithms.get(&operation),
            Wiring::Graph { .. } | Wiring::Planned { .. } => None,
        };
        own.or(self.request()?.algorithms.as_ref())
    }

    /// How executors run.
    pub(super) fn settings(&self) -> executors::Settings {
        self.request().map_or_else(executors::Settings::default, |request| executors::Settings {
            order: request.order,
            active_chunks: request.active_chunks,
            endpoint_delay: request.endpoint_delay,
            ..executors::Settings::default()
        })
    }
}

/// How long a message between two NPUs is under way beside its bytes.
pub type Latency<'a> = Box<dyn FnMut(NodeId, NodeId) -> Time + 'a>;
