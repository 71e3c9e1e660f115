//! Gradients on their way: the tensor schedulers of a step, and what their words mean to the driver.
//!
//! There is one scheduler per process group of a group and kind of collective (and one for the second
//! collectives of compressed gradients, which wait for the first): it stands for the one that
//! every rank of the process group runs, as the events that it is told are agreed. A gradient is ready
//! once all players have come to its collective; with a coordination policy, once that has found
//! out, and what its coordinators launch together is told as one. What a scheduler starts is a collective of the same kind over the bytes of its pieces.
//!
//! With parameter servers every worker has a scheduler of its own: a gradient is ready there once the players
//! on that machine have come to it, and over for a player once all of its machines have pulled it. `made`: how
//! they are made.

mod made;

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time, counted};
use allrail_schedule::tensor::{
    Action, Event, OperationId, Piece, TensorParameters, TensorScheduler,
};
use allrail_workload::NodeId;

use crate::coordination::Counts;
use crate::training::agreements::{Agreements, Together};
use crate::training::apart::{Apart, Worker};
use crate::training::communicator::{Ask, Portion};
use crate::training::driver::record::Ran;
use crate::training::lists::Kind;

/// An operation of one of the schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Index of the scheduler.
    pub scheduler: u32,
    /// Its operation.
    pub operation: OperationId,
}

/// An operation to start.
pub(super) struct Start {
    /// A node whose bytes are in it: the first piece's.
    pub by: Ran,
    /// What to carry.
    pub ask: Ask,
    /// The scheduler's word: higher goes first.
    pub priority: i64,
    /// For how long it occupies its first server before its bytes do.
    pub overhead: Time,
    /// Which operation it is.
    pub step: Step,
    /// With parameter servers: which part of a gradient, whose, and which way.
    pub portion: Option<Portion>,
}

/// What the schedulers want.
#[derive(Default)]
pub(super) struct Wanted {
    /// Operations to start.
    pub starts: Vec<Start>,
    /// Nodes whose gradient has been exchanged.
    pub over: Vec<Ran>,
    /// (scheduler, timer, when).
    pub timers: Vec<(u32, u64, Time)>,
}

struct Scheduled {
    scheduler: Box<dyn TensorScheduler>,
    process_group: u32,
    operation: Operation,
    /// Who came to each tensor's collective, until it is done.
    came: Vec<Vec<Ran>>,
    /// How many come; of one of several workers, those on its machine.
    expected: usize,
    /// Of parameter servers.
    worker: Option<Worker>,
    /// How ranks find out what is ready, if they have to: index in the agreements.
    agreement: Option<usize>,
}

/// The schedulers of a step.
pub(super) struct Tensors {
    schedulers: Vec<Scheduled>,
    /// The scheduler of a process group's collectives of one kind: the first of several, all workers' of one
    /// iteration under way, then the next one's.
    of: BTreeMap<(u32, Kind), u32>,
    /// Where workers exchange with servers.
    apart: Vec<Apart>,
    agreements: Agreements,
    /// By which kind of collective a node exchanges which tensor of its scheduler.
    tensor_of: BTreeMap<NodeId, (Kind, u32)>,
    ready: Vec<(u32, u32)>,
    /// What coordinators launched together, in the order of the buffer.
    agreed: Vec<(u32, Vec<u32>)>,
    arrived: Vec<Step>,
    finished: Vec<Step>,
    timers: Vec<(u32, u64)>,
    parameters: TensorParameters,
    /// How many iterations' gradients may be under way; each has a scheduler of its own.
    iterations: u32,
    started: u64,
    /// Of an operation over servers, the pieces that are under way.
    parts: BTreeMap<(u32, OperationId), usize>,
}

impl Tensors {
    /// Whether a node's collective is a scheduler's.
    #[must_use]
    pub(super) fn takes(&self, node: NodeId) -> bool {
        self.tensor_of.contains_key(&node)
    }

    /// Whether each player's gradients are exchanged by themselves, whoever else has come.
    #[must_use]
    pub(crate) fn are_apart(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whether ranks have to agree on a node's collective, which is no gradient's.
    #[must_use]
    pub(super) fn holds(&self, process_group: u32, node: NodeId) -> bool {
        self.agreements.holds(process_group, node)
    }

    /// All players have come to such a collective: it starts when ranks have agreed on it.
    pub(super) fn hold(&mut self, process_group: u32, came: Vec<Ran>) {
        self.agreements.hold(process_group, came);
    }

    /// Collectives that ranks have agreed on, with their process groups and who came.
    pub(crate) fn take_released(&mut self) -> Vec<(u32, Vec<Ran>)> {
        self.agreements.take_released()
    }

    /// A player has come to a gradient's collective, or to one that ranks have to agree on; `position` is its
    /// place in the process group.
    pub(super) fn come(&mut self, now: Time, process_group: u32, ran: Ran, position: usize) {
        let position = u32::try_from(position).expect("few players");
        if !self.takes(ran.node) {
            self.agreements.come(now, process_group, ran, position);
            return;
        }
        let (first, turn, tensor) = self.place(process_group, ran);
        if let Some(agreement) = self.schedulers[first as usize].agreement {
            self.agreements.submit(now, agreement, turn, tensor, position);
        }
    }

    /// All players have come to a gradient's collective; where they are apart, this one has.
    pub(super) fn ready(&mut self, process_group: u32, came: Vec<Ran>) {
        let (first, turn, tensor) = self.place(process_group, came[0]);
        let Some(Worker { group, .. }) = self.schedulers[first as usize].worker else {
            let scheduled = &mut self.schedulers[(first + turn) as usize];
            scheduled.came[tensor as usize] = came;
            if scheduled.agreement.is_none() {
                self.ready.push((first + turn, tensor));
            }
            return;
        };
        let count = self.apart[group].workers;
        for ran in came {
            for worker in &self.apart[group].workers_of[&ran.player] {
                let index = first + turn * count + worker;
                let scheduled = &mut self.schedulers[index as usize];
                let there = &mut scheduled.came[tensor as usize];
                there.push(ran);
                if there.len() == scheduled.expected && scheduled.agreement.is_none() {
                    self.ready.push((index, tensor));
                }
            }
        }
    }

    /// The first scheduler of a gradient's kind, which of the iterations under way it is of, and its number.
    fn place(&self, process_group: u32, ran: Ran) -> (u32, u32, u32) {
        let (kind, tensor) = self.tensor_of[&ran.node];
        (self.of[&(process_group, kind)], ran.iteration % self.iterations, tensor)
    }

    /// A push has arrived at its servers.
    pub(super) fn arrived(&mut self, step: Step) {
        self.arrived.push(step);
    }

    /// An operation is over.
    pub(super) fn finished(&mut self, step: Step) {
        self.finished.push(step);
    }

    /// A timer that a scheduler set.
    pub(super) fn timer(&mut self, scheduler: u32, id: u64) {
        self.timers.push((scheduler, id));
    }

    /// Whether ranks have to find out what is ready.
    #[must_use]
    pub(crate) fn are_coordinated(&self) -> bool {
        self.agreements.any()
    }

    /// When a coordination finds out something next, if that is by `until`; until then nothing may be
    /// ready.
    #[must_use]
    pub(super) fn next_time(&mut self, until: Time) -> Option<Time> {
        self.agreements.next_time(until)
    }

    /// Takes what coordinations find out now.
    pub(crate) fn take_agreed(&mut self, now: Time) {
        for Together { scheduler, turn, tensors } in self.agreements.take(now) {
            let worker = self.schedulers[scheduler as usize].worker;
            let workers = worker.map_or(1, |worker| self.apart[worker.group].workers);
            let first = scheduler + turn * workers;
            let each = (first..first + workers).map(|worker| (worker, tensors.clone()));
            self.agreed.extend(each);
        }
    }

    /// The process group of a scheduler.
    #[must_use]
    pub(super) fn process_group(&self, scheduler: u32) -> u32 {
        self.schedulers[scheduler as usize].process_group
    }

    /// How many operations the schedulers have started so far.
    #[must_use]
    pub(super) fn started(&self) -> u64 {
        self.started
    }

    /// What coordinators said in all; `None` without any.
    #[must_use]
    pub(super) fn counts(&self) -> Option<Counts> {
        self.agreements.counts()
    }

    /// Tells the schedulers what has come, and what they want; `None` if nothing has come.
    pub(crate) fn act(&mut self, now: Time) -> Option<Wanted> {
        let ready = self.ready.len() + self.agreed.len();
        if ready + self.arrived.len() + self.finished.len() + self.timers.len() == 0 {
            return None;
        }
        let mut wanted = Wanted::default();
        self.ready.sort_unstable();
        for (scheduler, tensor) in std::mem::take(&mut self.ready) {
            self.tell(now, scheduler, Event::Ready { tensor }, &mut wanted);
        }
        for (scheduler, tensors) in std::mem::take(&mut self.agreed) {
            self.tell(now, scheduler, Event::Together { tensors: &tensors }, &mut wanted);
        }
        for step in std::mem::take(&mut self.arrived) {
            // Who starts several portions as one counts no credit.
            if self.parts.contains_key(&(step.scheduler, step.operation)) {
                continue;
            }
            let event = Event::Arrived { operation: step.operation };
            self.tell(now, step.scheduler, event, &mut wanted);
        }
        for step in std::mem::take(&mut self.finished) {
            if let Some(left) = self.parts.get_mut(&(step.scheduler, step.operation)) {
                *left -= 1;
                if *left > 0 {
                    continue;
                }
                self.parts.remove(&(step.scheduler, step.operation));
            }
            let event = Event::Finished { operation: step.operation };
            self.tell(now, step.scheduler, event, &mut wanted);
        }
        for (scheduler, id) in std::mem::take(&mut self.timers) {
            self.tell(now, scheduler, Event::Timer { id }, &mut wanted);
        }
        Some(wanted)
    }

    fn tell(&mut self, now: Time, index: u32, event: Event<'_>, wanted: &mut Wanted) {
        let scheduled = &mut self.schedulers[index as usize];
        let mut actions = Vec::new();
        scheduled.scheduler.on(now, event, &mut actions);
        for action in actions {
            match action {
                Action::Start { operation, leg, pieces, priority } => {
                    // What one worker of several starts is counted, as all start the same.
                    let counted = scheduled.worker.is_none_or(|worker| worker.number == 0);
                    self.started += u64::from(counted);
                    let overhead = self.parameters.overhead(pieces.len());
                    let step = Step { scheduler: index, operation };
                    let start = |bytes: u64, piece: &Piece| Start {
                        by: scheduled.came[piece.tensor as usize][0],
                        ask: Ask::Collective {
                            operation: scheduled.operation,
                            bytes: Bytes::new(bytes),
                            process_group: scheduled.process_group,
                        },
                        priority,
                        overhead,
                        step,
                        portion: None,
                    };
                    let Some(Worker { number, group, .. }) = scheduled.worker else {
                        let bytes = pieces.iter().map(|piece| piece.bytes.count()).sum();
                        wanted.starts.push(start(bytes, &pieces[0]));
                        continue;
                    };
                    // Each piece goes to its server; the overhead of all comes before the first.
                    if pieces.len() > 1 {
                        self.parts.insert((index, operation), pieces.len());
                    }
                    let apart = &self.apart[group];
                    wanted.starts.extend(pieces.iter().enumerate().map(|(i, piece)| {
                        let started = start(piece.bytes.count(), piece);
                        Start {
                            portion: Some(Portion {
                                leg,
                                worker: number,
                                partition: apart.number(piece),
                                round: started.by.iteration,
                            }),
                            overhead: if i == 0 { overhead } else { Time::ZERO },
                            ..started
                        }
                    }));
                }
                Action::Done { tensor } => {
                    let came = std::mem::take(&mut scheduled.came[tensor as usize]);
                    let Some(Worker { turn, group, .. }) = scheduled.worker else {
                        wanted.over.extend(came);
                        continue;
                    };
                    // A player goes on once all of its machines have the result.
                    let apart = &mut self.apart[group];
                    let over =
                        came.into_iter().filter(|ran| apart.pulled(turn, ran.player, tensor));
                    wanted.over.extend(over);
                }
                Action::SetTimer { id, at } => wanted.timers.push((index, id, at)),
            }
        }
    }

    /// Nothing will happen any more: schedulers that choose as they go tell why.
    pub(super) fn stalled(&mut self) {
        self.schedulers.iter_mut().for_each(|scheduled| scheduled.scheduler.stalled());
    }

    /// Which gradients wait, for the report of a stall.
    #[must_use]
    pub(super) fn waits(&self) -> Vec<String> {
        let waiting = |scheduled: &Scheduled| {
            let count = scheduled.came.iter().filter(|came| !came.is_empty()).count();
            (count > 0).then(|| {
                format!(
                    "  the tensor scheduler of {} holds {count}",
                    scheduled.operation,
                    count = counted(count, "gradient")
                )
            })
        };
        self.schedulers.iter().filter_map(waiting).chain(self.agreements.waits()).collect()
    }
}
