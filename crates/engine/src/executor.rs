//! The executor: the chunks of collectives on the ports of one rank.
//!
//! A port is what the rank has on one dimension; a class of ranks that are alike has one executor for
//! all. On each port every communicator has a dimension queue (a decider), and [`Shared`] says whose turn it is. A chunk waits in the queue of the port of its
//! stage; a port that is free, and on which `active_chunks` leaves room for another stage, lets its
//! queue choose. The stage that is chosen keeps the port until the driver says that it is free again,
//! and is under way until the driver says that it is over; then its chunk goes on to the queue of its
//! next stage.
//!
//! At one time, everything that happens is taken in before any port chooses. The exception are *eager*
//! queues, which choose after every single event: with these the driver settles after each.
//!
//! Calls, by kind:
//!
//! - commands of the application: [`Executor::issue`], [`Executor::cancel`];
//! - what has happened: [`Executor::port_free`], [`Executor::port_taken`], [`Executor::stage_over`];
//! - what is to be done: [`Executor::choose`] until it returns `None`, and again while
//!   [`Executor::is_unsettled`]; every [`Run`] is carried out before the next call;
//! - who is waited for: [`Executor::awaited`], where nobody says by himself when a port is free;
//! - getters: [`Executor::is_eager`], [`Executor::under_way`].
//!
//! A round lets every port choose that has a reason to, the lowest first; what is told meanwhile is for
//! the next round. So what is chosen does not depend on the order of events of one time.
//!
//! ```
//! use std::sync::Arc;
//! use allrail_collective::Operation;
//! use allrail_core::Bytes;
//! use allrail_engine::{Executor, Progress, StageTask, Stages};
//! use allrail_schedule::Order;
//! use allrail_schedule::room::Share;
//!
//! let mut executor = Executor::new(Order::FIFO, 1, None);
//! let (operation, buffer) = (Operation::AllReduce, Bytes::new(64));
//! let (share, load) = (Share::default(), 64);
//! let task =
//!     StageTask { stage: 0, port: 0, operation, buffer, brought: buffer, load, share };
//! let mut stages = Stages::new(Vec::new());
//! stages.push([task]);
//! let (id, _) = executor.issue(Arc::new(stages), 0, 0)?;
//! let run = executor.choose().expect("a free port and a stage for it");
//! assert_eq!((run.collective, executor.choose()), (id, None));
//! assert_eq!(executor.stage_over(id, run.at)?, Progress::Over);
//! # Ok::<(), allrail_engine::Broken>(())
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use allrail_collective::StageRef;
use allrail_schedule::Order;
use allrail_schedule::queue::{Shared, Waiting};
use allrail_schedule::room::{ActiveChunks, Room};

use crate::error::Broken;
use crate::progress::{CollectiveId, Progress, Run, UnderWay};
use crate::stages::{StageTask, Stages};

struct Port {
    queue: Shared,
    free: bool,
    /// How many stages are in the queue.
    waiting: u32,
    /// What stages under way leave.
    room: Room,
    /// Whether it is in the next round.
    choosing: bool,
    /// Whether it is taken and a stage waits that could run.
    awaited: bool,
}

/// Where a chunk is: its task, and whether that runs.
#[derive(Clone, Copy)]
struct Chunk {
    task: u32,
    running: bool,
}

struct Flight {
    stages: Arc<Stages>,
    communicator: u32,
    priority: i64,
    chunks: Vec<Chunk>,
    chunks_left: u32,
    generation: u32,
    open: bool,
}

/// See the module.
pub struct Executor {
    ports: Vec<Port>,
    eager: bool,
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// Ports that choose in this round, the lowest last.
    round: Vec<u32>,
    next_round: Vec<u32>,
    /// Ports that are awaited and have not been told.
    awaited: Vec<u32>,
    /// With eager queues: chunks that are issued and not in a queue yet.
    unissued: VecDeque<(CollectiveId, u32)>,
}

impl Executor {
    /// Of a rank with so many ports, all free; a port runs at most `active_chunks` stages at once.
    #[must_use]
    pub fn new(order: Order, ports: usize, active_chunks: Option<ActiveChunks>) -> Self {
        let port = |_| Port {
            queue: Shared::new(order),
            free: true,
            waiting: 0,
            room: Room::new(active_chunks),
            choosing: false,
            awaited: false,
        };
        let ports: Vec<Port> = (0..ports).map(port).collect();
        Self {
            eager: ports.first().is_some_and(|port| port.queue.is_eager()),
            ports,
            flights: Vec::new(),
            free: Vec::new(),
            round: Vec::new(),
            next_round: Vec::new(),
            awaited: Vec::new(),
            unissued: VecDeque::new(),
        }
    }

    /// Whether its queues choose after every single event.
    #[must_use]
    pub fn is_eager(&self) -> bool {
        self.eager
    }

    /// A collective begins on this rank. Of a communicator's, higher priorities go first; between
    /// communicators nobody does. One without a stage is over.
    ///
    /// # Errors
    /// [`Broken::UnknownPort`].
    pub fn issue(
        &mut self,
        stages: Arc<Stages>,
        communicator: u32,
        priority: i64,
    ) -> Result<(CollectiveId, Progress), Broken> {
        if stages.ports() as usize > self.ports.len() {
            return Err(self.unknown_port(&stages));
        }
        let id = self.open(stages, communicator, priority);
        let flight = &self.flights[id.slot as usize];
        for (port, order) in self.ports.iter_mut().zip(flight.stages.planned()) {
            port.queue.begin(communicator, id.slot, order);
        }
        if flight.chunks_left == 0 {
            self.close(id.slot);
            return Ok((id, Progress::Over));
        }
        for chunk in 0..flight.stages.chunks() {
            if self.flights[id.slot as usize].stages.chunk(chunk).is_empty() {
                continue;
            }
            if self.eager {
                self.unissued.push_back((id, chunk));
            } else {
                self.enqueue(id.slot, chunk);
            }
        }
        Ok((id, Progress::Running))
    }

    /// The first stage on a port that there is not.
    fn unknown_port(&self, stages: &Stages) -> Broken {
        let ports = u32::try_from(self.ports.len()).unwrap_or(u32::MAX);
        let unknown = (0..stages.chunks()).find_map(|chunk| {
            let tasks = &stages.tasks()[range(stages.chunk(chunk))];
            let task = tasks.iter().find(|task| task.port >= ports)?;
            Some((StageRef { chunk, stage: task.stage }, task.port))
        });
        let (at, port) = unknown.unwrap_or((StageRef { chunk: 0, stage: 0 }, ports));
        Broken::UnknownPort { at, port, ports }
    }

    /// A place for a collective, used again where there is one.
    fn open(&mut self, stages: Arc<Stages>, communicator: u32, priority: i64) -> CollectiveId {
        let chunks = stages.chunks();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flights.push(Flight {
                stages: Arc::clone(&stages),
                communicator,
                priority,
                chunks: Vec::new(),
                chunks_left: 0,
                generation: 0,
                open: false,
            });
            u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 at once")
        });
        let flight = &mut self.flights[slot as usize];
        flight.chunks.clear();
        let first = |chunk| Chunk { task: stages.chunk(chunk).start, running: false };
        flight.chunks.extend((0..chunks).map(first));
        flight.chunks_left = stages.with_stages();
        flight.stages = stages;
        (flight.communicator, flight.priority) = (communicator, priority);
        flight.open = true;
        CollectiveId { slot, generation: flight.generation }
    }

    fn close(&mut self, slot: u32) {
        let flight = &mut self.flights[slot as usize];
        flight.open = false;
        flight.generation = flight.generation.wrapping_add(1);
        self.free.push(slot);
    }

    #[inline]
    fn flight(&mut self, id: CollectiveId) -> Result<&mut Flight, Broken> {
        self.flights
            .get_mut(id.slot as usize)
            .filter(|flight| flight.open && flight.generation == id.generation)
            .ok_or(Broken::UnknownCollective(id))
    }

    /// Puts a chunk's stage into its queue; without one, the chunk is over.
    #[inline]
    fn enqueue(&mut self, slot: u32, chunk: u32) -> Progress {
        let flight = &mut self.flights[slot as usize];
        let place = flight.chunks[chunk as usize].task;
        if place == flight.stages.chunk(chunk).end {
            flight.chunks_left -= 1;
            return if flight.chunks_left == 0 { Progress::Over } else { Progress::Running };
        }
        let task = flight.stages.tasks()[place as usize];
        let port = &mut self.ports[task.port as usize];
        let stage = Waiting {
            collective: slot,
            at: StageRef { chunk, stage: task.stage },
            priority: flight.priority,
            operation: task.operation,
            buffer: task.buffer,
            brought: task.brought,
        };
        port.queue.push(flight.communicator, stage);
        port.waiting += 1;
        self.attend(task.port);
        Progress::Running
    }

    /// Lets a port choose in the next round, if it can; it is awaited if only that it is taken keeps it.
    #[inline]
    fn attend(&mut self, index: u32) {
        let port = &mut self.ports[index as usize];
        if port.waiting == 0 || !port.room.is_left() {
            return;
        }
        let (told, list) = if port.free {
            (&mut port.choosing, &mut self.next_round)
        } else {
            (&mut port.awaited, &mut self.awaited)
        };
        if !*told {
            *told = true;
            list.push(index);
        }
    }

    /// The port can serve another stage: everything that was sent on it has left.
    ///
    /// # Errors
    /// [`Broken::UnknownPort`].
    #[inline]
    pub fn port_free(&mut self, port: u32) -> Result<(), Broken> {
        let ports = self.ports.len();
        let state = self.ports.get_mut(port as usize).ok_or_else(|| no_port(port, ports))?;
        state.free = true;
        if std::mem::take(&mut state.awaited) && !self.awaited.is_empty() {
            self.awaited.retain(|other| *other != port);
        }
        // The port whose turn it is goes on in this round.
        if self.round.last() != Some(&port) {
            self.attend(port);
        }
        Ok(())
    }

    /// The port is busy again: a stage under way has sent its next messages on it.
    ///
    /// # Errors
    /// [`Broken::UnknownPort`].
    #[inline]
    pub fn port_taken(&mut self, port: u32) -> Result<(), Broken> {
        let ports = self.ports.len();
        self.ports.get_mut(port as usize).ok_or_else(|| no_port(port, ports))?.free = false;
        Ok(())
    }

    /// A running stage is over; its chunk goes on.
    ///
    /// # Errors
    /// [`Broken::UnknownCollective`], [`Broken::NotRunning`].
    #[inline]
    pub fn stage_over(&mut self, id: CollectiveId, at: StageRef) -> Result<Progress, Broken> {
        let flight = self.flight(id)?;
        let wrong = || Broken::NotRunning { collective: id, at };
        let chunk = flight.chunks.get_mut(at.chunk as usize).ok_or_else(wrong)?;
        let task = flight.stages.tasks().get(chunk.task as usize).ok_or_else(wrong)?;
        if !chunk.running || task.stage != at.stage {
            return Err(wrong());
        }
        let StageTask { port, share, .. } = *task;
        chunk.running = false;
        chunk.task += 1;
        self.ports[port as usize].room.give_back(share);
        let progress = self.enqueue(id.slot, at.chunk);
        self.attend(port);
        if progress == Progress::Over {
            self.close(id.slot);
        }
        Ok(progress)
    }

    /// Withdraws a collective: what waits will not run. Returns what is under way: its driver stops it,
    /// and says when the ports are free.
    ///
    /// # Errors
    /// [`Broken::UnknownCollective`].
    pub fn cancel(&mut self, id: CollectiveId) -> Result<Vec<Run>, Broken> {
        self.flight(id)?;
        let mut running = Vec::new();
        let flight = &self.flights[id.slot as usize];
        for (chunk, state) in (0u32..).zip(&flight.chunks) {
            if state.running {
                let task = flight.stages.tasks()[state.task as usize];
                let at = StageRef { chunk, stage: task.stage };
                running.push(Run { collective: id, at, task: state.task, port: task.port });
            }
        }
        for run in &running {
            let share = flight.stages.tasks()[run.task as usize].share;
            self.ports[run.port as usize].room.give_back(share);
        }
        self.unissued.retain(|(other, _)| *other != id);
        let communicator = flight.communicator;
        for index in 0..self.ports.len() {
            let port = &mut self.ports[index];
            port.waiting -= port.queue.withdraw(communicator, id.slot);
            self.attend(u32::try_from(index).expect("few ports"));
        }
        self.close(id.slot);
        Ok(running)
    }

    /// A port that is taken and that a stage waits for; named once until it is free. A driver whose
    /// ports become free unheard says so of these alone.
    #[inline]
    pub fn awaited(&mut self) -> Option<u32> {
        self.awaited.pop()
    }

    /// Whether there is anything for [`Executor::choose`] to do.
    #[must_use]
    #[inline]
    pub fn is_unsettled(&self) -> bool {
        !self.round.is_empty() || !self.next_round.is_empty() || !self.unissued.is_empty()
    }

    /// The next stage to run; `None` at the end of a round.
    #[inline]
    pub fn choose(&mut self) -> Option<Run> {
        if self.round.is_empty() {
            self.begin_round();
        }
        while let Some(index) = self.round.last().copied() {
            let port = &mut self.ports[index as usize];
            port.choosing = false;
            let flights = &self.flights;
            let load = |stage: &Waiting| {
                let flight = &flights[stage.collective as usize];
                let task = flight.chunks[stage.at.chunk as usize].task;
                flight.stages.tasks()[task as usize].load
            };
            if port.free
                && port.room.is_left()
                && let Some(Waiting { collective: slot, at, .. }) = port.queue.pop(load)
            {
                port.waiting -= 1;
                port.free = false;
                let flight = &mut self.flights[slot as usize];
                let chunk = &mut flight.chunks[at.chunk as usize];
                chunk.running = true;
                port.room.take(flight.stages.tasks()[chunk.task as usize].share);
                let collective = CollectiveId { slot, generation: flight.generation };
                return Some(Run { collective, at, task: chunk.task, port: index });
            }
            let is_taken = !port.free;
            self.round.pop();
            if is_taken {
                self.attend(index);
            }
        }
        None
    }

    fn begin_round(&mut self) {
        if self.next_round.is_empty()
            && let Some((id, chunk)) = self.unissued.pop_front()
        {
            // Eager queues see one chunk, and choose, before the next.
            self.enqueue(id.slot, chunk);
        }
        std::mem::swap(&mut self.round, &mut self.next_round);
        self.round.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Every chunk that is not over, for the report of a stall.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay> + '_ {
        let open = (0u32..).zip(&self.flights).filter(|(_, flight)| flight.open);
        open.flat_map(|(slot, flight)| {
            let collective = CollectiveId { slot, generation: flight.generation };
            let left = (0u32..).zip(&flight.chunks);
            let left = left.filter(|(chunk, at)| at.task < flight.stages.chunk(*chunk).end);
            left.map(move |(chunk, at)| {
                let Chunk { task, running } = *at;
                let stage = flight.stages.tasks()[task as usize].stage;
                UnderWay { collective, at: StageRef { chunk, stage }, task, running }
            })
        })
    }
}

fn no_port(port: u32, ports: usize) -> Broken {
    let ports = u32::try_from(ports).unwrap_or(u32::MAX);
    Broken::UnknownPort { at: StageRef { chunk: 0, stage: 0 }, port, ports }
}

fn range(range: std::ops::Range<u32>) -> std::ops::Range<usize> {
    range.start as usize..range.end as usize
}
