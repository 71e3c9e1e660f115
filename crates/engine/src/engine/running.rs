//! An engine whose job has begun: the deciders, and what goes from one to the next.
//!
//! ```text
//! submitted ─► coordinator ─► ready ─► tensor scheduler ─► operation ─► executor ─► stage
//!                  ▲    └──► finished ──────►┘                              │
//!                  └─────────── finished on this rank ◄─────────────────────┘
//! ```
//!
//! With a tagged transport *ready* and *finished* do not pass the coordinator.

use std::collections::VecDeque;
use std::sync::Arc;

use allrail_coordinate::{self as coordinate, CoordinationSpec, Coordinator, Payload, Reason};
use allrail_core::{FieldError, Time};
use allrail_schedule::tensor::{self, OperationId, TensorPolicy, TensorScheduler, Tuning};
use allrail_schedule::{Key, OperationName};

use super::calls::Calls;
use super::event::{Action, Home, Registration};
use super::forget::Forgetting;
use super::named::NamedCalls;
use super::operations::Operations;
use super::parts::Parts;
use super::rounds::Rounds;
use super::settings::{Ordering, Settings};
use super::tensors::{TensorState, Tensors};
use super::timers::{Owner, Timers};
use super::tuning::{MOST_CHANGES, Tunings};
use crate::{Broken, CollectiveId, Executor, Progress};

/// Something that the coordinator or the scheduler has to hear of, in its turn.
pub(super) enum Told {
    Coordinator(coordinate::Event),
    Finished(OperationId),
    /// As [`Self::Finished`], of a frozen order, which no scheduler has started.
    Replayed(OperationId),
}

/// See the module.
pub(super) struct Running {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) epoch: u32,
    pub(super) group: u32,
    pub(super) common: bool,
    /// Whether the job has stopped: nothing more is told to anyone.
    pub(super) stopped: bool,
    pub(super) tensors: Tensors,
    pub(super) calls: Calls,
    /// Where calls may have names.
    pub(super) named: Option<NamedCalls>,
    pub(super) forgetting: Forgetting,
    pub(super) forget_after: u64,
    pub(super) ask_after: Time,
    pub(super) policy: &'static dyn TensorPolicy,
    pub(super) scheduler: Box<dyn TensorScheduler>,
    pub(super) tunings: Tunings,
    pub(super) coordinator: Option<Box<dyn Coordinator>>,
    pub(super) executor: Executor,
    pub(super) operations: Operations,
    pub(super) timers: Timers,
    /// Where the order of launches may freeze.
    pub(super) rounds: Option<Rounds>,
    pub(super) told: VecDeque<Told>,
    /// What deciders want; kept for their memory.
    pub(super) wanted: Vec<tensor::Action>,
    pub(super) said: Vec<coordinate::Action>,
}

impl Running {
    pub(super) fn new(settings: &Settings, registered: &[Registration]) -> Result<Self, Broken> {
        let (policy, parameters) = settings.check()?;
        let tensors = Tensors::new(registered, settings.operation, settings.granule)?;
        let scheduler = parameters.scheduler(&tensors.for_scheduler())?;
        let coordinator = match &settings.coordination {
            None => None,
            Some(coordination) => {
                let (policy, how) = (coordination.policy, &coordination.settings);
                let job = CoordinationSpec::new(policy, how, settings.ranks, &tensors.groups())?;
                let job = job.over(Arc::clone(&tensors.registry));
                Some(policy.coordinator(&job, settings.rank))
            }
        };
        let tuning =
            Tuning { partition: policy.partition(&parameters), credit: policy.credit(&parameters) };
        let rounds = settings.freeze.map(|after| Rounds::new(after, tensors.all.len()));
        Ok(Self {
            rank: settings.rank,
            ranks: settings.ranks,
            epoch: settings.epoch,
            group: settings.group,
            common: settings.ordering == Ordering::Common,
            stopped: false,
            tensors,
            calls: Calls::default(),
            named: settings.named_calls.then(NamedCalls::default),
            forgetting: Forgetting::default(),
            forget_after: settings.forget_after,
            ask_after: settings.ask_after,
            policy,
            scheduler,
            tunings: Tunings::new(tuning),
            coordinator,
            executor: Executor::new(
                settings.order,
                settings.ports,
                settings.active_chunks.map(Into::into),
            ),
            operations: Operations::default(),
            timers: Timers::default(),
            rounds,
            told: VecDeque::new(),
            wanted: Vec::new(),
            said: Vec::new(),
        })
    }

    pub(super) fn start(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        self.tell(coordinate::Event::Start);
        self.carry_on(now, parts, out);
    }

    /// This rank has the next generation of a tensor, or nothing for it.
    pub(super) fn submit(
        &mut self,
        now: Time,
        (key, unused): (Key, bool),
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let number = self.tensors.number(key)?;
        let tensor = &mut self.tensors.all[number as usize];
        if !tensor.is_done() {
            let (name, generation) = (tensor.name.clone(), tensor.generation());
            return Err(Broken::NotDone { name, generation });
        }
        let generation = tensor.submitted;
        if self.rounds.as_ref().is_some_and(|rounds| !rounds.takes(generation)) {
            let name = tensor.name.clone();
            let mut others = self.tensors.all.iter();
            let other = others.find(|one| one.submitted < generation);
            let other = other.map_or_else(String::new, |one| one.name.clone());
            return Err(Broken::NotInRound { name, other });
        }
        self.tensors.all[number as usize].submit(unused);
        self.submitted(number, out);
        if self.is_frozen() {
            if let Err(error) = self.end_round(parts, out).and_then(|()| self.replay(parts, out)) {
                self.fail(error, out);
            }
        } else {
            self.request(number);
        }
        if !self.common {
            self.ready(now, &[number]);
            if let Err(error) = self.start_wanted(parts, out) {
                self.fail(error, out);
            }
        }
        self.carry_on(now, parts, out);
        Ok(())
    }

    /// A peer has spoken: of the end, or its coordinator.
    pub(super) fn heard(
        &mut self,
        now: Time,
        (from, payload): (u32, Payload),
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if let Payload::Stop(reason) = payload {
            self.end(&reason, true, out);
            return Ok(());
        }
        if let Payload::Waits(waits) = payload {
            self.asked(from, *waits, out);
            return Ok(());
        }
        if let Payload::Idle(said) = payload {
            self.heard_of_idle(from, &said, out);
            return Ok(());
        }
        if let Payload::Thaw(thaw) = payload {
            let heard = self.heard_of_thaw(from, *thaw, out);
            if let Err(error) = heard.and_then(|()| self.replay(parts, out)) {
                self.fail(error, out);
            }
            self.carry_on(now, parts, out);
            return Ok(());
        }
        if self.coordinator.is_none() {
            return Err(Broken::NoCoordination { from });
        }
        self.tell(coordinate::Event::Message { from, payload });
        self.carry_on(now, parts, out);
        Ok(())
    }

    /// A stage is over on this rank.
    pub(super) fn stage_over(
        &mut self,
        now: Time,
        (id, at): (CollectiveId, allrail_collective::StageRef),
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if self.executor.stage_over(id, at)? == Progress::Running {
            return Ok(());
        }
        self.collective_over(id, out);
        self.carry_on(now, parts, out);
        Ok(())
    }

    /// A collective is over on this rank.
    pub(super) fn collective_over(&mut self, id: CollectiveId, out: &mut Vec<Action>) {
        for (slice, part) in self.operations.shares(id) {
            let elements = slice.elements.end - slice.elements.start;
            self.tensors.all[slice.tensor as usize].over(part, elements);
        }
        let Some((operation, last)) = self.operations.end(id) else { return };
        out.push(Action::Over { id, operation });
        last.into_iter().for_each(|of| self.finished_here(of));
        if let Some(number) = operation.key.number_of_call() {
            self.calls.over(number);
            out.push(Action::Done { key: operation.key, generation: 0 });
        } else if self.named.as_mut().is_some_and(|named| named.over(operation.key)) {
            out.push(Action::Done { key: operation.key, generation: operation.generation });
        }
    }

    /// Where frames of an operation belong.
    pub(super) fn home(
        &self,
        settings: &Settings,
        operation: &OperationName,
    ) -> Result<Home, Broken> {
        if operation.epoch != settings.epoch {
            return Err(Broken::Epoch { epoch: operation.epoch, now: settings.epoch });
        }
        if operation.group != settings.group {
            return Err(Broken::UnknownOperation(*operation));
        }
        match operation.key.number_of_call() {
            Some(number) => self.calls.home(number, operation),
            None => match (self.tensors.of_key(operation.key), &self.named) {
                (Err(_), Some(named)) => named.home(operation),
                (tensor, _) => tensor?.home(operation),
            },
        }
    }

    /// This rank wants all to stop: at once where nobody has to agree.
    pub(super) fn shut_down(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        if self.coordinator.is_none() {
            self.end(&Arc::new(Reason::Asked), true, out);
        }
        self.tell(coordinate::Event::Shutdown);
        self.carry_on(now, parts, out);
    }

    /// Lets ports choose.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        while !self.stopped && self.executor.is_unsettled() {
            while let Some(run) = self.executor.choose() {
                out.push(Action::Run(run));
            }
        }
    }

    /// Partition and credit change.
    pub(super) fn retune(&mut self, at: u64, tuning: Tuning) -> Result<(), Broken> {
        if let Some(tensor) = self.tensors.all.iter().find(|tensor| tensor.submitted > at) {
            let (name, submitted) = (tensor.name.clone(), tensor.submitted);
            return Err(Broken::TooLate { at, name, submitted });
        }
        let next = |tensor: &TensorState| tensor.submitted - u64::from(!tensor.is_done());
        let oldest = self.tensors.all.iter().map(next).min().unwrap_or(0);
        self.tunings.forget_before(oldest);
        if self.tunings.waiting() >= MOST_CHANGES {
            return Err(FieldError::new(
                "retune",
                at,
                format!("{MOST_CHANGES} changes wait for tensors to come to them"),
                "change less often",
            )
            .into());
        }
        self.tunings.change(at, tuning);
        self.thaw_before(at);
        Ok(())
    }

    /// Time has passed.
    pub(super) fn time(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer.owner {
                Owner::Calls => self.ask(now, out),
                Owner::Coordinator => self.tell(coordinate::Event::Timer { id: timer.id }),
                Owner::Scheduler { number, .. } if self.common => {
                    self.timers.wait_for_cut(timer, number);
                    self.tell(coordinate::Event::Cut { number });
                }
                Owner::Scheduler { .. } => {
                    self.scheduler.on(now, tensor::Event::Timer { id: timer.id }, &mut self.wanted);
                    if let Err(error) = self.start_wanted(parts, out) {
                        self.fail(error, out);
                    }
                }
            }
            self.carry_on(now, parts, out);
        }
    }

    fn is_frozen(&self) -> bool {
        self.rounds.as_ref().is_some_and(Rounds::is_frozen)
    }

    /// An operation is over on this rank.
    pub(super) fn finished_here(&mut self, operation: OperationId) {
        if self.is_frozen() {
            self.told.push_back(Told::Replayed(operation));
        } else if self.common {
            self.tell(coordinate::Event::Finished { operation: operation.0 });
        } else {
            self.told.push_back(Told::Finished(operation));
        }
    }

    /// Tells deciders what they have to hear of, until there is nothing more.
    fn carry_on(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        while let Some(told) = self.told.pop_front() {
            let done = match told {
                _ if self.stopped => Ok(()),
                Told::Coordinator(event) => self.coordinate(now, event, parts, out),
                Told::Replayed(operation) => self.replayed(operation, parts, out),
                Told::Finished(operation) => {
                    let event = tensor::Event::Finished { operation };
                    self.scheduler.on(now, event, &mut self.wanted);
                    self.start_wanted(parts, out)
                }
            };
            if let Err(error) = done {
                self.fail(error, out);
            }
        }
    }
}
