//! What a [`Transport`](super::transport::Transport) with pulls keeps of messages, headers and pulls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_core::Time;
use allrail_fabric::graph::{Graph, NodeId};

use super::Settings;

/// Of a packet without payload, and of a pull.
pub(super) const HEADER: u32 = 64;

/// What of a message may leave.
#[derive(Clone, Copy, Default)]
pub(super) struct Grant {
    /// Packets that may have been made.
    pub(super) allowed: u32,
    /// And those for which a pull is under way.
    pub(super) promised: u32,
    /// All that it takes, those that were cut counted again.
    pub(super) total: u32,
    /// From its receiver to its sender.
    pub(super) back: u64,
}

/// Where a header or a pull is going.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Goal {
    Receiver,
    Sender,
}

/// On its way: when it is there, the order of sending, its message, that one's generation, and how many
/// bytes were cut.
pub(super) type Small = (u64, u64, u32, u32, u32, Goal);

/// See the module.
pub(super) struct Control {
    pub(super) pulls: bool,
    pub(super) first_window: u32,
    pub(super) cut_above: f64,
    pub(super) grants: Vec<Grant>,
    /// For each NPU: when it may send another pull, and how long after the last.
    pub(super) receivers: Vec<(u64, u64)>,
    pub(super) under_way: BinaryHeap<Reverse<Small>>,
    pub(super) sent: u64,
}

impl Control {
    pub(super) fn new(settings: &Settings, graph: &Graph) -> Self {
        let rules = settings.transport.rules();
        let interval = |npu| {
            let time = graph.injection(NodeId(npu)).time_for(settings.packet());
            (0, time.map_or(u64::MAX, Time::as_ps))
        };
        Self {
            pulls: rules.pulls,
            first_window: settings.first_window_packets(),
            cut_above: if rules.cuts { settings.cut_above() as f64 } else { f64::INFINITY },
            grants: Vec::new(),
            receivers: (0..if rules.pulls { graph.npus() } else { 0 }).map(interval).collect(),
            under_way: BinaryHeap::new(),
            sent: 0,
        }
    }

    /// When the next header or pull is there; the end of time if none is under way.
    pub(super) fn next_time(&self) -> u64 {
        self.under_way.peek().map_or(u64::MAX, |Reverse((time, ..))| *time)
    }

    /// Whether message `id`, of which `made` packets were made, may give another.
    pub(super) fn allows(&self, id: u32, made: u32) -> bool {
        !self.pulls || self.grants[id as usize].allowed > made
    }

    pub(super) fn send(&mut self, time: u64, id: u32, generation: u32, cut: u32, goal: Goal) {
        self.under_way.push(Reverse((time, self.sent, id, generation, cut, goal)));
        self.sent += 1;
    }
}
