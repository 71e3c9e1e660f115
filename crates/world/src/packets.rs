//! STAND-IN for the packet world.
use std::sync::Arc;

use allrail_core::{Bytes, Time};
use allrail_fabric::FabricError;
use allrail_fabric::graph::Graph;
use allrail_fabric::routing::Routing;
use serde::{Deserialize, Serialize};

use crate::flows::{Flows, Splitting};
use crate::{Event, Submission, TransferId, World};

/// STAND-IN
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Bytes of a packet.
    pub packet: Bytes,
    /// Bytes of a port's buffer.
    pub buffer: Bytes,
}

impl Default for Settings {
    fn default() -> Self {
        Self { packet: Bytes::new(8192), buffer: Bytes::new(32 << 20) }
    }
}

#[allow(missing_docs)]
pub struct Packets(Flows);

#[allow(missing_docs)]
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    pub packets: u64,
    pub packet_hops: u64,
}

#[allow(missing_docs)]
impl Packets {
    pub fn new(
        graph: Arc<Graph>,
        _: Box<dyn Routing>,
        _: &Settings,
        _: u64,
    ) -> Result<Self, FabricError> {
        Ok(Self(Flows::new(graph, Splitting::Single)))
    }
    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }
    pub fn check_empty(&self) {}
    pub fn stalled(&self) -> Option<String> {
        None
    }
}

impl World for Packets {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        self.0.submit(now, submission)
    }
    fn next_time(&self) -> Option<Time> {
        self.0.next_time()
    }
    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        self.0.next_event(until)
    }
    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        self.0.cancel(now, transfer)
    }
    fn busy(&self, span: Time) -> Vec<f64> {
        self.0.busy(span)
    }
}
