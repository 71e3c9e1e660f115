//! What the communicators of a rank share: one port, and on it a queue for each of them.
//!
//! A communicator is what collective libraries call one: a process group whose collectives follow one
//! another. Those of different groups know nothing of each other and share the network interface. So
//! within a communicator its queue decides, by priority and policy; between communicators nobody goes
//! first, and each has an equal part of the port for as long as something of it waits.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM'96), with stages for packets: a stage *starts*
//! at the finish of its communicator's last one, or at the port's virtual time if that is later, and
//! *finishes* its load later. The communicator whose next stage starts first goes next, of equal ones the
//! one that has waited longest for its turn, and the virtual time is the start of what goes. So what comes
//! to a communicator that had nothing to do waits for the stage in service alone, and at most for one
//! of every other communicator that came as it did.
//!
//! While two communicators both wait, what they have been given differs by the load of one
//! stage of each at most.
//!
//! With one communicator, what its queue says is what goes. One that waits for its plan's turn is passed by.

use allrail_collective::StageRef;

use super::{DimensionQueue, Order, Waiting};

/// One communicator's queue on a port.
struct Lane {
    communicator: u32,
    queue: Box<dyn DimensionQueue>,
    waiting: u32,
    /// Where its next stage starts.
    start: u64,
    /// Which turn was its last.
    turn: u64,
}

/// See the module.
pub struct Shared {
    order: Order,
    lanes: Vec<Lane>,
    /// The start of what went last.
    virtual_time: u64,
    turns: u64,
}

impl Shared {
    /// Nobody's yet.
    #[must_use]
    pub fn new(order: Order) -> Self {
        Self { order, lanes: Vec::new(), virtual_time: 0, turns: 0 }
    }

    /// Whether its queues choose after every single event.
    #[must_use]
    pub fn is_eager(&self) -> bool {
        self.order.queue(Vec::new()).is_eager()
    }

    fn lane(&mut self, communicator: u32) -> &mut Lane {
        let known = self.lanes.iter().position(|lane| lane.communicator == communicator);
        let place = known.unwrap_or_else(|| {
            let queue = self.order.queue(Vec::new());
            self.lanes.push(Lane { communicator, queue, waiting: 0, start: 0, turn: 0 });
            self.lanes.len() - 1
        });
        &mut self.lanes[place]
    }

    /// A collective of a communicator is issued; see [`DimensionQueue::begin`].
    pub fn begin(&mut self, communicator: u32, collective: u32, order: &[StageRef]) {
        self.lane(communicator).queue.begin(collective, order);
    }

    /// A stage of a communicator has become ready.
    #[inline]
    pub fn push(&mut self, communicator: u32, stage: Waiting) {
        let now = self.virtual_time;
        let lane = self.lane(communicator);
        if lane.waiting == 0 {
            lane.start = lane.start.max(now);
        }
        lane.waiting += 1;
        lane.queue.push(stage);
    }

    /// The stage to serve now, if any may go; `load` says how much of the port a stage takes.
    #[inline]
    pub fn pop(&mut self, load: impl Fn(&Waiting) -> u64) -> Option<Waiting> {
        // One that keeps to a plan may have nothing that can go.
        let mut passed: Vec<usize> = Vec::new();
        loop {
            let lanes = self.lanes.iter().enumerate();
            let waits = lanes.filter(|(place, lane)| lane.waiting > 0 && !passed.contains(place));
            let (place, _) = waits.min_by_key(|(_, lane)| (lane.start, lane.turn))?;
            let lane = &mut self.lanes[place];
            let Some(stage) = lane.queue.pop() else {
                passed.push(place);
                continue;
            };
            lane.waiting -= 1;
            self.virtual_time = self.virtual_time.max(lane.start);
            lane.start = self.virtual_time.saturating_add(load(&stage));
            self.turns += 1;
            lane.turn = self.turns;
            return Some(stage);
        }
    }

    /// Drops what waits of a collective, and says how many stages that were.
    pub fn withdraw(&mut self, communicator: u32, collective: u32) -> u32 {
        let lane = self.lane(communicator);
        let withdrawn = lane.queue.withdraw(collective);
        lane.waiting -= withdrawn;
        withdrawn
    }
}
