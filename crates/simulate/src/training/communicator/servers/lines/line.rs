//! What waits for a line, and what of it is served next.
//!
//! Each *flow* of a line has a queue, and the flows take turns, one message each:
//!
//! | line | flows | why |
//! |---|---|---|
//! | link up | the machine's worker; its server | two processes share a link |
//! | link down | a connection each: pushes of one worker, pulls from one server | a receiver does not choose who sends: ZeroMQ's ROUTER, the socket that ps-lite receives with (`src/zmq_van.h`), takes its peers in turn, and TCP shares a link among connections |
//! | within a machine | one | |
//! | a server's thread | one | ps-lite queues requests of all workers by priority (`include/ps/internal/customer.h`) |
//!
//! In the queue of a flow the highest priority goes first: a message that waits for a link down is held back at
//! its sender, which chooses (ps-lite's `src/p3_van.h` sends by priority). If a link down took the most urgent
//! message of all workers, those whose credit comes back first would push on while the others starve, and no
//! partition would be complete.
//!
//! *In order*, a line has one flow, and first comes first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use allrail_core::Time;

/// Smaller goes first: by priority, or in order by when it came to the line; then as its worker submitted it; then
/// by turns; then as it was submitted among all, and part by part.
pub(super) type Rank = (Reverse<i64>, Time, u64, u32, u64, u32);

/// What a line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Of an operation, within its machine.
    Local(u32),
    /// Of a message.
    Send(u32),
    Receive(u32),
    Sum(u32),
    Copy(u32),
    Request(u32),
    Word(u32),
}

/// What waits for a line, in the order in which it goes.
type Queue = BinaryHeap<Reverse<(Rank, Work, Time)>>;

/// A resource that serves one message at a time.
#[derive(Default)]
pub(super) struct Line {
    /// By flow; none is empty.
    waiting: BTreeMap<u32, Queue>,
    /// The flow whose turn it is.
    turn: u32,
    /// What is served.
    pub(super) serving: Option<Work>,
    /// For how long it has served.
    pub(super) busy: Time,
}

impl Line {
    /// An idle line that begins with this flow.
    pub(super) fn beginning_with(flow: u32) -> Self {
        Self { turn: flow, ..Self::default() }
    }

    /// Queues what occupies the line for `time`.
    pub(super) fn push(&mut self, flow: u32, rank: Rank, work: Work, time: Time) {
        self.waiting.entry(flow).or_default().push(Reverse((rank, work, time)));
    }

    /// Takes what goes first, of the next flow that has something.
    pub(super) fn pop(&mut self) -> Option<(Work, Time)> {
        let next = self.waiting.range(self.turn..).next().or_else(|| self.waiting.iter().next());
        let flow = *next?.0;
        let queue = self.waiting.get_mut(&flow)?;
        let Reverse((_, work, time)) = queue.pop()?;
        if queue.is_empty() {
            self.waiting.remove(&flow);
        }
        self.turn = flow + 1;
        Some((work, time))
    }
}
