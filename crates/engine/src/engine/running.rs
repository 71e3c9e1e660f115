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

use allrail_core::Time;
use allrail_schedule::coordinate::{self, Coordinator, Job, Launch, Reason, Response, Step};
use allrail_schedule::tensor::{self, OperationId, Pieces, TensorPolicy, TensorScheduler, Tuning};
use allrail_schedule::{Key, OperationName};

use super::event::{Action, Home, Registration, Slice, Stopped};
use super::operations::{Operations, Share};
use super::parts::Parts;
use super::settings::{Ordering, Settings};
use super::tensors::{TensorState, Tensors};
use super::timers::{Owner, Timers};
use super::tuning::{MOST_CHANGES, Tunings};
use crate::{Broken, CollectiveId, Executor, Progress};

/// Something that the coordinator or the scheduler has to hear of, in its turn.
enum Told {
    Coordinator(coordinate::Event),
    Finished(OperationId),
}

/// See the module.
pub(super) struct Running {
    epoch: u32,
    group: u32,
    common: bool,
    /// Whether the job has stopped: the coordinator still tells the others.
    pub(super) stopped: bool,
    pub(super) tensors: Tensors,
    policy: &'static dyn TensorPolicy,
    scheduler: Box<dyn TensorScheduler>,
    tunings: Tunings,
    coordinator: Option<Box<dyn Coordinator>>,
    pub(super) executor: Executor,
    pub(super) operations: Operations,
    pub(super) timers: Timers,
    told: VecDeque<Told>,
    /// What deciders want; kept for their memory.
    wanted: Vec<tensor::Action>,
    said: Vec<coordinate::Action>,
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
                let job = Job::new(policy, how, settings.ranks, &tensors.groups())?;
                let job = job.over(Arc::clone(&tensors.registry));
                Some(policy.coordinator(&job, settings.rank))
            }
        };
        let tuning =
            Tuning { partition: policy.partition(&parameters), credit: policy.credit(&parameters) };
        Ok(Self {
            epoch: settings.epoch,
            group: settings.group,
            common: settings.ordering == Ordering::Common,
            stopped: false,
            tensors,
            policy,
            scheduler,
            tunings: Tunings::new(tuning),
            coordinator,
            executor: Executor::new(settings.order, settings.ports, settings.active_chunks),
            operations: Operations::default(),
            timers: Timers::default(),
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
        tensor.submit(unused);
        self.request(number);
        if !self.common {
            self.ready(now, &[number]);
            if let Err(error) = self.start_wanted(parts, out) {
                self.fail(now, error, out);
            }
        }
        self.carry_on(now, parts, out);
        Ok(())
    }

    /// A peer's coordinator has spoken.
    pub(super) fn heard(
        &mut self,
        now: Time,
        (from, payload): (u32, coordinate::Payload),
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) {
        self.tell(coordinate::Event::Message { from, payload });
        self.carry_on(now, parts, out);
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
        for (slice, part) in self.operations.shares(id) {
            let elements = slice.elements.end - slice.elements.start;
            self.tensors.all[slice.tensor as usize].over(part, elements);
        }
        if let Some((operation, last)) = self.operations.end(id) {
            out.push(Action::Over { id, operation });
            last.into_iter().for_each(|of| self.finished_here(of));
        }
        self.carry_on(now, parts, out);
        Ok(())
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
        self.tensors.of_key(operation.key)?.home(operation)
    }

    /// This rank wants all to stop: at once where nobody has to agree.
    pub(super) fn shut_down(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        if self.coordinator.is_none() {
            self.stop(Broken::Stopping("this rank asked for it".to_owned()), out);
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
            return Err(Broken::Setting {
                field: "retune",
                value: at.to_string(),
                why: format!("{MOST_CHANGES} changes wait for tensors to come to them"),
                hint: "change less often".to_owned(),
            });
        }
        self.tunings.change(at, tuning);
        Ok(())
    }

    /// Time has passed.
    pub(super) fn time(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer.owner {
                Owner::Coordinator => self.tell(coordinate::Event::Timer { id: timer.id }),
                Owner::Scheduler { number, .. } if self.common => {
                    self.timers.wait_for_cut(timer, number);
                    self.tell(coordinate::Event::Cut { number });
                }
                Owner::Scheduler { .. } => {
                    self.scheduler.on(now, tensor::Event::Timer { id: timer.id }, &mut self.wanted);
                    if let Err(error) = self.start_wanted(parts, out) {
                        self.fail(now, error, out);
                    }
                }
            }
            self.carry_on(now, parts, out);
        }
    }

    /// Stops for a reason of this rank, and has the coordinator tell the others.
    pub(super) fn fail(&mut self, now: Time, error: Broken, out: &mut Vec<Action>) {
        self.stop(error, out);
        self.tell(coordinate::Event::Shutdown);
        self.speak(now, out);
    }

    /// The end, once.
    fn stop(&mut self, error: Broken, out: &mut Vec<Action>) {
        if !self.stopped {
            self.stopped = true;
            self.timers.drop_scheduler();
            let tensors = self.tensors.report();
            out.push(Action::Stop(Box::new(Stopped { error, tensors })));
        }
    }

    /// Has the coordinator ask for a tensor's next generation, if it is time to.
    fn request(&mut self, number: u32) {
        if self.coordinator.is_some()
            && let Some(request) = self.tensors.all[number as usize].tell()
        {
            self.tell(coordinate::Event::Submit(request));
        }
    }

    fn tell(&mut self, event: coordinate::Event) {
        if self.coordinator.is_some() {
            self.told.push_back(Told::Coordinator(event));
        }
    }

    /// An operation is over on this rank.
    fn finished_here(&mut self, operation: OperationId) {
        if self.common {
            self.tell(coordinate::Event::Finished { operation: operation.0 });
        } else {
            self.told.push_back(Told::Finished(operation));
        }
    }

    /// Tells deciders what they have to hear of, until there is nothing more.
    fn carry_on(&mut self, now: Time, parts: &mut Parts, out: &mut Vec<Action>) {
        while let Some(told) = self.told.pop_front() {
            let done = match told {
                Told::Coordinator(event) => self.coordinate(now, event, Some(parts), out),
                Told::Finished(_) if self.stopped => Ok(()),
                Told::Finished(operation) => {
                    let event = tensor::Event::Finished { operation };
                    self.scheduler.on(now, event, &mut self.wanted);
                    self.start_wanted(parts, out)
                }
            };
            if let Err(error) = done {
                self.fail(now, error, out);
            }
        }
    }

    /// Only the coordinator: the others hear that this rank has stopped.
    fn speak(&mut self, now: Time, out: &mut Vec<Action>) {
        while let Some(told) = self.told.pop_front() {
            if let Told::Coordinator(event) = told
                && let Err(error) = self.coordinate(now, event, None, out)
            {
                self.stop(error, out);
            }
        }
    }

    fn coordinate(
        &mut self,
        now: Time,
        event: coordinate::Event,
        mut parts: Option<&mut Parts>,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let Some(coordinator) = &mut self.coordinator else { return Ok(()) };
        let mut said = std::mem::take(&mut self.said);
        let mut result = coordinator.on(now, event, &mut said).map_err(Broken::from);
        for action in said.drain(..) {
            match action {
                coordinate::Action::Send { to, payload } => out.push(Action::Send { to, payload }),
                coordinate::Action::SetTimer { id, at } => self.timers.of_coordinator(id, at),
                coordinate::Action::Warn { tensor, missing } => {
                    if let Some(key) = self.tensors.registry.key(tensor) {
                        out.push(Action::Warn { key, missing });
                    }
                }
                coordinate::Action::Ready(launch) => {
                    if let Some(parts) = parts.as_deref_mut()
                        && !self.stopped
                        && result.is_ok()
                    {
                        result = self.agreed(now, &launch, parts, out);
                    }
                }
                // It is told of a generation once the one before is agreed.
                coordinate::Action::Refused { tensor } => {
                    result = result.and_then(|()| Err(self.not_asked(tensor)));
                }
                coordinate::Action::Stop(reason) => {
                    let error = self.because(&reason);
                    self.stop(error, out);
                }
            }
        }
        self.said = said;
        result
    }

    /// The coordinator goes beyond what this rank asked for.
    fn not_asked(&self, tensor: u32) -> Broken {
        let name = self.tensors.all.get(tensor as usize).map_or("?", |tensor| &tensor.name);
        let what = format!("an exchange of `{name}` that this rank has not submitted");
        Broken::Policy { policy: "coordination".to_owned(), what }
    }

    /// Why all ranks stop, as an error of this rank's.
    fn because(&self, reason: &Reason) -> Broken {
        match reason {
            Reason::Broken { broken, .. } => Broken::Coordination(broken.clone()),
            Reason::Asked => Broken::Stopping("a rank asked for it".to_owned()),
            Reason::Silent { ranks, by } => {
                let text = format!("rank {by} has heard nothing of ranks {ranks:?}");
                Broken::Stopping(text)
            }
            Reason::Stalled { tensor, missing } => {
                let name = self.tensors.all.get(*tensor as usize).map_or("?", |one| &one.name);
                Broken::Stopping(format!("ranks {missing:?} have not submitted `{name}`"))
            }
        }
    }

    /// All ranks agree on this.
    fn agreed(
        &mut self,
        now: Time,
        launch: &Launch,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        for step in launch.steps() {
            match step {
                Step::Ready(Response { trouble: Some(trouble), tensors, .. }) => {
                    let first = tensors.first().and_then(|one| self.tensors.all.get(*one as usize));
                    let name = first.map_or_else(String::new, |tensor| tensor.name.clone());
                    return Err(Broken::Mismatch { name, what: trouble.to_string() });
                }
                Step::Ready(response) => {
                    for number in &response.tensors {
                        let tensor = self.tensors.all.get_mut(*number as usize);
                        if !tensor.is_some_and(TensorState::agree) {
                            return Err(self.not_asked(*number));
                        }
                        self.request(*number);
                    }
                    if self.common {
                        self.ready(now, &response.tensors);
                    }
                }
                _ if !self.common => {}
                Step::Finished(operation) => {
                    let event = tensor::Event::Finished { operation: OperationId(operation) };
                    self.scheduler.on(now, event, &mut self.wanted);
                }
                Step::Cut(cut) => {
                    while let Some(timer) = self.timers.take_cut(cut) {
                        let event = tensor::Event::Timer { id: timer.id };
                        self.scheduler.on(now, event, &mut self.wanted);
                    }
                }
                Step::AllJoined => {}
            }
            self.start_wanted(parts, out)?;
        }
        Ok(())
    }

    /// These are ready, here or everywhere, and travel together.
    fn ready(&mut self, now: Time, tensors: &[u32]) {
        for number in tensors {
            let tensor = &mut self.tensors.all[*number as usize];
            tensor.ready = true;
            if let Some(tuning) = self.tunings.before(tensor.generation()) {
                self.scheduler.retune(tuning);
            }
        }
        match tensors {
            [tensor] => {
                let event = tensor::Event::Ready { tensor: *tensor };
                self.scheduler.on(now, event, &mut self.wanted);
            }
            _ => self.scheduler.together(now, tensors, &mut self.wanted),
        }
    }

    /// Does what the tensor scheduler wants.
    fn start_wanted(&mut self, parts: &mut Parts, out: &mut Vec<Action>) -> Result<(), Broken> {
        let mut wanted = std::mem::take(&mut self.wanted);
        let mut result = Ok(());
        for action in wanted.drain(..) {
            match action {
                tensor::Action::Start { operation, pieces, priority, .. } => {
                    if result.is_ok() {
                        result = self.begin(operation, &pieces, priority, parts, out);
                    }
                }
                tensor::Action::Done { tensor } => {
                    let tensor = &mut self.tensors.all[tensor as usize];
                    let generation = tensor.done();
                    out.push(Action::Done { key: tensor.key, generation });
                }
                tensor::Action::SetTimer { id, at } => self.timers.of_scheduler(id, at),
            }
        }
        self.wanted = wanted;
        result
    }

    /// An operation starts: a collective for each run of tensors of one type. Where every rank has a shard,
    /// tensors have no buffer in common: one for each tensor.
    fn begin(
        &mut self,
        of: OperationId,
        pieces: &Pieces,
        priority: i64,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let all = &self.tensors.all;
        let alike = |one: &tensor::Piece, other: &tensor::Piece| {
            let (one, other) = (&all[one.tensor as usize], &all[other.tensor as usize]);
            let shared = !one.request.operation.is_sharded();
            shared && one.dtype == other.dtype && one.width == other.width
        };
        let runs = pieces.chunk_by(alike).count();
        self.operations.expect(of, u32::try_from(runs).unwrap_or(u32::MAX));
        let mut from = 0;
        while from < pieces.len() {
            let all = &self.tensors.all;
            let first = &all[pieces[from].tensor as usize];
            let same = |piece: &&tensor::Piece| {
                let other = &all[piece.tensor as usize];
                other.dtype == first.dtype && other.width == first.width
            };
            let most = if first.request.operation.is_sharded() { 1 } else { usize::MAX };
            let to = from + pieces[from..].iter().take(most).take_while(same).count();
            self.begin_run(of, &pieces[from..to], priority, parts, out)?;
            from = to;
        }
        Ok(())
    }

    fn begin_run(
        &mut self,
        of: OperationId,
        pieces: &[tensor::Piece],
        priority: i64,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let wrong = |what: String| Broken::Policy { policy: self.policy.tag().to_owned(), what };
        let mut elements = 0;
        for piece in pieces {
            let tensor = &self.tensors.all[piece.tensor as usize];
            let Some((range, _)) = tensor.elements(piece) else {
                return Err(wrong(format!("{piece:?} of `{}`, out of turn", tensor.name)));
            };
            let whole = piece.bytes == tensor.request.bytes && pieces.len() == 1;
            if !whole && tensor.request.operation.is_sharded() {
                let what = tensor.request.operation;
                return Err(wrong(format!("part of {what} of `{}`", tensor.name)));
            }
            elements += range.end - range.start;
        }
        let first = &self.tensors.all[pieces[0].tensor as usize];
        let (key, generation, width) = (first.key, first.generation(), first.width);
        let part = first.elements(&pieces[0]).map_or(0, |(_, part)| part);
        let (epoch, group) = (self.epoch, self.group);
        let operation = OperationName { epoch, group, key, generation, part };
        if elements == 0 {
            for piece in pieces {
                self.tensors.all[piece.tensor as usize].begin(piece, None);
            }
            if self.operations.one_over(of) {
                self.finished_here(of);
            }
            return Ok(());
        }
        let of_size = parts.of(elements, width)?;
        let (id, progress) = self.executor.issue(of_size.stages, priority)?;
        let all = &self.tensors.all;
        let shares = pieces.iter().filter_map(|piece| {
            let tensor = &all[piece.tensor as usize];
            let (elements, part) = tensor.elements(piece)?;
            let (key, unused) = (tensor.key, tensor.unused);
            Some(Share { slice: Slice { tensor: piece.tensor, key, elements, unused }, part })
        });
        self.operations.begin(id, operation, of, shares);
        for piece in pieces {
            self.tensors.all[piece.tensor as usize].begin(piece, Some(id));
        }
        out.push(Action::Begin { id, operation, part: of_size.plan });
        if progress == Progress::Over {
            // A plan without stages: there is nobody else.
            for (slice, part) in self.operations.shares(id) {
                let elements = slice.elements.end - slice.elements.start;
                self.tensors.all[slice.tensor as usize].over(part, elements);
            }
            out.push(Action::Over { id, operation });
            if let Some((_, Some(of))) = self.operations.end(id) {
                self.finished_here(of);
            }
        }
        Ok(())
    }
}
