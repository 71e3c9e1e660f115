//! STAND-IN for the fluid world, until it is there.
use std::sync::Arc;

use allrail_core::{EventQueue, Time};
use allrail_fabric::graph::{Graph, NodeId};

use super::Splitting;
use crate::{DELIVERED, Event, SENT, Submission, Transfer, TransferId, World};

/// STAND-IN
pub struct Flows {
    graph: Arc<Graph>,
    free: Vec<Time>,
    events: EventQueue<Event>,
    next: u64,
}

#[allow(missing_docs)]
impl Flows {
    pub fn new(graph: Arc<Graph>, _: Splitting) -> Self {
        let free = vec![Time::ZERO; graph.npus() as usize];
        Self { graph, free, events: EventQueue::new(), next: 0 }
    }
}

impl World for Flows {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        let Transfer::Message { source, bytes, .. } = submission.transfer else {
            panic!("flows carry messages")
        };
        let rate = self.graph.injection(NodeId(source.0));
        let free = &mut self.free[source.index()];
        *free = (*free).max(now) + rate.time_for(bytes).unwrap_or(Time::ZERO);
        if let Some(tag) = submission.sent_tag {
            self.events.push(*free, SENT, Event::Sent { tag });
        }
        let arrives = *free + Time::from_ns(40);
        self.events.push(arrives, DELIVERED, Event::Delivered { tag: submission.tag });
        self.next += 1;
        TransferId(self.next)
    }
    fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }
    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        if self.events.next_time()? > until { None } else { self.events.pop() }
    }
    fn cancel(&mut self, _: Time, _: TransferId) -> bool {
        false
    }
    fn busy(&self, _: Time) -> Vec<f64> {
        Vec::new()
    }
}
