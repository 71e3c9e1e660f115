//! The driver: connects the deciders to a world.
//!
//! An actor is a rank, or a class of ranks that are alike. Each actor has a dimension queue (a
//! decider) per dimension. A chunk's stage waits in the queue of its dimension; when the actor's
//! links on that dimension have nothing left to send and fewer than `active_chunks` of its stages
//! there are unfinished, the queue chooses the next one, and its first step's transfers are
//! submitted. A step ends when all its transfers have arrived; a stage ends with its last step, and
//! its chunk goes on to the queue of its next stage.
//!
//! At one time, everything that arrives is taken in before any dimension chooses, unless the queues
//! are eager. Time enters the deciders only as the order of these events.

mod job;
mod orders;
mod stall;
mod state;

use std::ops::ControlFlow;

use allrail_collective::StageRef;
use allrail_core::{EventQueue, Time};
use allrail_schedule::queue::{self, Waiting};
use allrail_world::{Event, Submission, World};

use crate::error::SimulateError;
use crate::lowering::{Lowering, Outgoing, StageAt};
pub use job::{Job, Run, Span};
use orders::concerning;
use state::{CHUNK_BITS, Port, Progress, Timer, pack, unpack};

/// Called now and then with (stages done, stages in all); breaks off the run.
pub type Observer<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Runs a job in a world.
pub struct Driver<'a> {
    job: &'a Job<'a>,
    lowering: &'a dyn Lowering,
    world: &'a mut dyn World,
    dimensions: usize,
    /// Collective and index within it, of each chunk.
    chunks: Vec<(u32, u32)>,
    ports: Vec<Port>,
    progress: Vec<Progress>,
    timers: EventQueue<Timer>,
    choosing: Vec<(u32, u32)>,
    outgoing: Vec<Outgoing>,
    left: Vec<u64>,
    done: u64,
    /// Whether the queues are.
    eager: bool,
    run: Run,
}

impl<'a> Driver<'a> {
    /// Prepares a run.
    ///
    /// # Panics
    /// If there are more than 2^24 chunks in all; the scenario's limits keep below.
    #[must_use]
    pub fn new(job: &'a Job<'a>, lowering: &'a dyn Lowering, world: &'a mut dyn World) -> Self {
        let dimensions = job.plans.first().map_or(0, |plan| plan.fabric.dimensions.len());
        let actors = lowering.actors();
        let chunks: Vec<(u32, u32)> = (0u32..)
            .zip(job.plans)
            .flat_map(|(c, plan)| (0u32..).zip(&plan.chunks).map(move |(i, _)| (c, i)))
            .collect();
        assert!(chunks.len() < 1 << CHUNK_BITS, "fewer than 2^24 chunks in a run");
        let orders = job.planned_orders();
        let ports = (0..actors)
            .flat_map(|actor| {
                queue::queues(job.order, dimensions, &concerning(actor, job, lowering, &orders))
            })
            .map(|queue| Port { queue, unsent: 0, active: 0, choosing: false })
            .collect::<Vec<_>>();
        let eager = ports.first().is_some_and(|port| port.queue.is_eager());
        let mut progress = Vec::new();
        progress.resize_with(actors as usize * chunks.len(), Progress::default);
        let mut timers = EventQueue::new();
        for (collective, start) in (0u32..).zip(job.starts) {
            timers.push(*start, 0, Timer::Start { collective });
        }
        let left = job.plans.iter().map(|p| p.chunks.len() as u64 * u64::from(actors)).collect();
        let sent = vec![0; actors as usize * dimensions];
        Self {
            job,
            lowering,
            world,
            dimensions,
            chunks,
            ports,
            progress,
            timers,
            choosing: Vec::new(),
            outgoing: Vec::new(),
            left,
            done: 0,
            eager,
            run: Run { finish: vec![Time::ZERO; job.plans.len()], sent, ..Run::default() },
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// [`SimulateError::Stalled`] with who waits for what; [`SimulateError::Interrupted`].
    pub fn run(mut self, observer: Observer<'_>) -> Result<Run, SimulateError> {
        const OBSERVE_EVERY: u32 = 1 << 14;
        let stages = self.job.plans.iter().flat_map(|plan| &plan.chunks);
        let total = stages.map(|chunk| chunk.stages.len() as u64).sum::<u64>()
            * u64::from(self.lowering.actors());
        let mut countdown = OBSERVE_EVERY;
        let mut now = Time::ZERO;
        while let Some(next) = self.next_time() {
            now = next;
            while self.next_time() == Some(now) {
                if self.eager {
                    self.take_one_by_one(now);
                } else {
                    self.take_event(now);
                }
                countdown -= 1;
                if countdown == 0 {
                    countdown = OBSERVE_EVERY;
                    if observer(self.done, total).is_break() {
                        return Err(SimulateError::Interrupted);
                    }
                }
            }
            self.choose_all(now);
        }
        if self.left.iter().any(|left| *left > 0) {
            return Err(SimulateError::Stalled {
                time_us: now.as_us(),
                waits: self.waits(),
                hint: "ranks that order their stages differently can block each other where \
                       `active_chunks` limits them: leave it out, or use `order: planned`",
            });
        }
        Ok(self.run)
    }

    fn choose_all(&mut self, now: Time) {
        // A stage in which an actor only sends is over at once, and the next may begin.
        while !self.choosing.is_empty() {
            let mut choosing = std::mem::take(&mut self.choosing);
            // Whatever happened first: what is chosen now must not depend on it.
            choosing.sort_unstable();
            for (actor, dimension) in choosing.drain(..) {
                self.choose(now, actor, dimension);
            }
            if self.choosing.is_empty() {
                self.choosing = choosing;
                break;
            }
        }
    }

    fn next_time(&self) -> Option<Time> {
        match (self.world.next_time(), self.timers.next_time()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn take_event(&mut self, now: Time) {
        if self.timers.next_time() == Some(now) {
            let Some((_, timer)) = self.timers.pop() else { return };
            match timer {
                Timer::Start { collective } => self.start(now, collective),
                Timer::Send { actor, chunk } => {
                    self.submit(now, actor, chunk);
                    self.advance(now, actor, chunk);
                }
                Timer::Finish { actor, chunk } => self.finish(now, actor, chunk),
            }
            return;
        }
        if let Some((_, event)) = self.world.next_event(now) {
            self.handle(now, event);
        }
    }

    /// What happens now, by dimension; each dimension chooses at once.
    fn take_one_by_one(&mut self, now: Time) {
        while self.timers.next_time() == Some(now) {
            self.take_event(now);
            self.choose_all(now);
        }
        let mut events: Vec<Event> = Vec::new();
        while self.world.next_time() == Some(now) {
            events.extend(self.world.next_event(now).map(|(_, event)| event));
        }
        events.sort_by_key(|event| match *event {
            Event::Sent { tag } => (unpack(tag).2 as usize, 0),
            Event::Delivered { tag } => {
                let (actor, chunk, _) = unpack(tag);
                (self.progress[self.index(actor, chunk)].port as usize % self.dimensions, 1)
            }
        });
        for event in events {
            self.handle(now, event);
            self.choose_all(now);
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Delivered { tag } => {
                let (actor, chunk, step) = unpack(tag);
                let progress =
                    &mut self.progress[actor as usize * self.chunks.len() + chunk as usize];
                let place = (step - progress.base - progress.step) as usize;
                if progress.arrived.len() <= place {
                    progress.arrived.resize(place + 1, 0);
                }
                progress.arrived[place] += 1;
                self.advance(now, actor, chunk);
            }
            Event::Sent { tag } => {
                let (actor, chunk, dimension) = unpack(tag);
                let port = actor as usize * self.dimensions + dimension as usize;
                self.ports[port].unsent -= 1;
                if self.job.timeline && actor == 0 {
                    self.extend_span(now, chunk, dimension);
                }
                self.links_free(port);
            }
        }
    }

    fn start(&mut self, now: Time, collective: u32) {
        for actor in 0..self.lowering.actors() {
            for chunk in 0..self.chunks.len() {
                if self.chunks[chunk].0 == collective {
                    self.enqueue(now, actor, u32::try_from(chunk).expect("few chunks"));
                    if self.eager {
                        self.choose_all(now);
                    }
                }
            }
        }
    }

    fn index(&self, actor: u32, chunk: u32) -> usize {
        actor as usize * self.chunks.len() + chunk as usize
    }

    fn at(&self, chunk: u32, stage: u32) -> StageAt {
        let (collective, chunk) = self.chunks[chunk as usize];
        StageAt { collective, chunk, stage }
    }

    /// Puts the chunk's current stage into its queue; skips stages that do not concern the actor.
    fn enqueue(&mut self, now: Time, actor: u32, chunk: u32) {
        let (collective, index) = self.chunks[chunk as usize];
        let stages = &self.job.plans[collective as usize].chunks[index as usize].stages;
        let place = self.index(actor, chunk);
        while let Some(next) = stages.get(self.progress[place].stage as usize) {
            let stage = self.progress[place].stage;
            let at = StageAt { collective, chunk: index, stage };
            if self.lowering.concerns(actor, at) {
                let port = actor as usize * self.dimensions + next.dimension.index();
                self.progress[place].port = u32::try_from(port).expect("fewer than 2^32 ports");
                let task = self.lowering.task(at);
                self.ports[port].queue.push(Waiting {
                    collective,
                    at: StageRef { chunk: index, stage },
                    priority: self.job.priorities[collective as usize],
                    operation: task.operation,
                    buffer: task.buffer,
                    brought: task.brought,
                });
                self.links_free(port);
                return;
            }
            self.progress[place].stage += 1;
            self.progress[place].base += self.lowering.steps(at);
            self.done += 1;
        }
        self.left[collective as usize] -= 1;
        let finish = &mut self.run.finish[collective as usize];
        *finish = (*finish).max(now);
    }

    /// Lets a port choose once everything that happens now is taken in.
    fn links_free(&mut self, port: usize) {
        let state = &mut self.ports[port];
        if state.unsent == 0 && !state.choosing {
            state.choosing = true;
            let actor = u32::try_from(port / self.dimensions).expect("fewer than 2^32 actors");
            let dimension = u32::try_from(port % self.dimensions).expect("few dimensions");
            self.choosing.push((actor, dimension));
        }
    }

    fn choose(&mut self, now: Time, actor: u32, dimension: u32) {
        let port = actor as usize * self.dimensions + dimension as usize;
        self.ports[port].choosing = false;
        let limit = self.job.active_chunks.unwrap_or(u32::MAX);
        while self.ports[port].unsent == 0 && self.ports[port].active < limit {
            let Some(stage) = self.ports[port].queue.pop() else { return };
            self.ports[port].active += 1;
            let chunk = self.chunk_of(stage);
            let span = u32::try_from(self.run.spans.len()).expect("fewer than 2^32 stages");
            if self.job.timeline && actor == 0 {
                let at = self.at(chunk, stage.at.stage);
                self.run.spans.push(Span { at, start: now, end: now, finish: now });
            }
            let progress = self.index(actor, chunk);
            let progress = &mut self.progress[progress];
            (progress.step, progress.running, progress.span) = (0, true, span);
            self.submit(now, actor, chunk);
            self.advance(now, actor, chunk);
        }
    }

    fn chunk_of(&self, stage: Waiting) -> u32 {
        let before = self.job.plans[..stage.collective as usize].iter();
        let first: usize = before.map(|plan| plan.chunks.len()).sum();
        u32::try_from(first).expect("few chunks") + stage.at.chunk
    }

    /// Submits the current step's transfers.
    fn submit(&mut self, now: Time, actor: u32, chunk: u32) {
        let place = self.index(actor, chunk);
        self.progress[place].issued = true;
        let Progress { stage, base, step, .. } = self.progress[place];
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.clear();
        self.lowering.sends(actor, self.at(chunk, stage), step, &mut outgoing);
        let port = self.progress[self.index(actor, chunk)].port as usize;
        let dimension = u32::try_from(port % self.dimensions).expect("few dimensions");
        for Outgoing { transfer, to, last_on_link } in &outgoing {
            let sent_tag = last_on_link.then(|| pack(actor, chunk, dimension));
            self.ports[port].unsent += u32::from(*last_on_link);
            if let allrail_world::Transfer::Message { bytes, .. } = transfer {
                self.run.sent[port] += bytes.count();
            }
            let tag = pack(*to, chunk, base + step);
            self.world.submit(now, Submission { transfer: *transfer, tag, sent_tag });
        }
        self.run.transfers += outgoing.len() as u64;
        self.outgoing = outgoing;
    }

    /// Ends every step whose transfers have all arrived.
    fn advance(&mut self, now: Time, actor: u32, chunk: u32) {
        let place = self.index(actor, chunk);
        loop {
            let progress = &mut self.progress[place];
            if !progress.running || !progress.issued {
                return;
            }
            let (stage, step) = (progress.stage, progress.step);
            let arrived = progress.arrived.front().copied().unwrap_or(0);
            let at = self.at(chunk, stage);
            if arrived < self.lowering.expected(actor, at, step) {
                return;
            }
            let progress = &mut self.progress[place];
            progress.arrived.pop_front();
            progress.step += 1;
            let delay = self.job.endpoint_delay;
            if progress.step < self.lowering.steps(at) {
                if delay == Time::ZERO {
                    self.submit(now, actor, chunk);
                    continue;
                }
                progress.issued = false;
                self.timers.push(now + delay, 1, Timer::Send { actor, chunk });
                return;
            }
            progress.base += progress.step;
            progress.step = 0;
            progress.running = false;
            if delay == Time::ZERO {
                self.finish(now, actor, chunk);
            } else {
                // The last step's, and the stage's own.
                self.timers.push(now + delay + delay, 0, Timer::Finish { actor, chunk });
            }
            return;
        }
    }

    /// The chunk's stage is over; the chunk goes on to its next one.
    fn finish(&mut self, now: Time, actor: u32, chunk: u32) {
        let place = self.index(actor, chunk);
        let port = self.progress[self.index(actor, chunk)].port as usize;
        if self.job.timeline && actor == 0 {
            self.run.spans[self.progress[place].span as usize].finish = now;
        }
        self.progress[place].stage += 1;
        self.ports[port].active -= 1;
        self.done += 1;
        self.links_free(port);
        self.enqueue(now, actor, chunk);
    }

    /// A transfer of actor 0 has left: its stage's span reaches at least to now.
    fn extend_span(&mut self, now: Time, chunk: u32, dimension: u32) {
        let (collective, index) = self.chunks[chunk as usize];
        let stages = &self.job.plans[collective as usize].chunks[index as usize].stages;
        let last = self.run.spans.iter_mut().rev().find(|span| {
            (span.at.collective, span.at.chunk) == (collective, index)
                && stages[span.at.stage as usize].dimension.0 == dimension
        });
        if let Some(span) = last {
            span.end = now;
        }
    }
}
