//! What each port has to do: messages that may leave, frames that may be combined, and the stage that has it.

use std::collections::{BTreeMap, VecDeque};

use allrail_collective::StageRef;
use allrail_schedule::OperationName;

use super::outgoing::{Heap, Sending};

/// A stage that was launched.
pub(super) type Launch = (OperationName, StageRef);

#[derive(Default)]
struct Port {
    /// By peer: what is to be sent.
    heaps: BTreeMap<u32, Heap>,
    /// Peers for which something has come into an empty heap.
    fresh: Vec<u32>,
    /// Frames that have come whole and may be combined now.
    combines: VecDeque<usize>,
    /// The stage that has it.
    taken: Option<Launch>,
    /// Whether its thread may still touch memory.
    running: bool,
}

/// The ports of a node, by dimension.
pub(crate) struct Ports {
    all: Vec<Port>,
    /// How many messages could leave so far.
    sequence: u64,
}

impl Ports {
    /// Of a node that has these peers on each dimension.
    pub(super) fn new(lines: &[Vec<u32>]) -> Self {
        let port = |line: &Vec<u32>| Port {
            heaps: line.iter().map(|peer| (*peer, Heap::default())).collect(),
            ..Port::default()
        };
        Self { all: lines.iter().map(port).collect(), sequence: 0 }
    }

    /// Adds a message that may leave; whether it is for a peer of that port.
    pub(super) fn push(&mut self, (port, peer): (u32, u32), priority: i64, what: Sending) -> bool {
        let port = &mut self.all[port as usize];
        let Some(heap) = port.heaps.get_mut(&peer) else { return false };
        if heap.push(priority, self.sequence, what) {
            port.fresh.push(peer);
        }
        self.sequence += 1;
        true
    }

    /// Peers for which there is something again.
    pub(crate) fn take_fresh(&mut self, port: u32, out: &mut Vec<u32>) {
        out.append(&mut self.all[port as usize].fresh);
    }

    /// The message that goes next to a peer.
    pub(super) fn next_send(&mut self, port: u32, peer: u32) -> Option<Sending> {
        self.all[port as usize].heaps.get_mut(&peer)?.pop()
    }

    /// A frame has come whole and may be combined.
    pub(super) fn push_combine(&mut self, port: u32, number: usize) {
        self.all[port as usize].combines.push_back(number);
    }

    pub(super) fn next_combine(&mut self, port: u32) -> Option<usize> {
        self.all[port as usize].combines.pop_front()
    }

    /// A stage has the port from now on.
    pub(super) fn take(&mut self, port: u32, launch: Launch) {
        self.all[port as usize].taken = Some(launch);
    }

    /// A stage does not need the port any more; whether it has had it.
    pub(super) fn free(&mut self, port: u32, launch: Launch) -> bool {
        self.all[port as usize].taken.take_if(|taken| *taken == launch).is_some()
    }

    pub(super) fn set_running(&mut self, port: u32, runs: bool) {
        self.all[port as usize].running = runs;
    }

    /// Whether no thread touches a tensor's memory any more, now that the job is over.
    pub(super) fn is_quiet(&self) -> bool {
        !self.all.iter().any(|port| port.running)
    }

    /// Nothing is to be done any more: the numbers of the ports.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = u32> + use<> {
        for port in &mut self.all {
            port.heaps.values_mut().for_each(Heap::clear);
            port.combines.clear();
        }
        0..self.all.len() as u32
    }
}
