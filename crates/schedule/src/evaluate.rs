//! How long a schedule takes, without a network model: the inner loop of the planners.
//!
//! Each dimension is one server. It serves a stage for `N·B`, then can serve the next; the stage
//! ends `A` later and its chunk goes on to its next stage (Themis §4.3, with the overlap of a
//! stage's latency and the next stage's bytes). At most `active_chunks` stages of a dimension are
//! unfinished at once, or as many as fill it ([`crate::room`]). Time is integer picoseconds; at one time, finished stages join their next
//! queues before any dimension chooses. With eager queues, dimensions that fell free choose first; then
//! finished stages are taken one by one, by dimension, and dimensions choose after each. Without contention
//! (`contention: none`), `active_chunks` stages run side by side.
//!
//! The executor over the `dims` network model is the oracle: a property test compares them under every queue.

use std::collections::VecDeque;
use std::ops::Range;

use allrail_collective::model::Sent;
use allrail_collective::plan::scattered_at_start;
use allrail_collective::{Stage, StageModel, StageRef};
use allrail_core::{Bytes, EventQueue, Time};

use crate::error::ScheduleError;
use crate::queue::{DimensionQueue, Waiting};
use crate::room::{ActiveChunks, Room, Share};
use allrail_collective::Operation;

/// A stage with its times, ready to be run.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Index of the dimension.
    pub dimension: u32,
    /// What it does there.
    pub operation: Operation,
    /// Until the dimension can serve another: `N·B`.
    pub occupancy: Time,
    /// From then to its end: `A`.
    pub latency: Time,
    /// `N·B`.
    pub served: Time,
    /// Without contention: whether other stages take no longer for running meanwhile.
    pub alone: bool,
    /// `N`.
    pub sent: Sent,
    /// The buffer that it handles: before a reduce-scatter, after an all-gather.
    pub buffer: Bytes,
    /// What an NPU brings to it.
    pub brought: Bytes,
    /// What it uses of its dimension's bandwidth when it runs alone.
    pub share: Share,
    /// How many steps its messages take.
    pub steps: u32,
    /// Whether messages halve from step to step (in an all-gather: double), or are alike.
    pub halving: bool,
}

/// The tasks of every chunk of one collective.
#[derive(Clone, Debug, Default)]
pub struct Work {
    tasks: Vec<Task>,
    /// `starts[chunk]..starts[chunk + 1]` are its tasks.
    starts: Vec<u32>,
}

impl Work {
    /// Looks the times of `chunks` up in `model`.
    ///
    /// # Errors
    /// [`ScheduleError::TooLong`] if the times do not fit the clock.
    pub fn new<'a>(
        model: &StageModel,
        chunks: impl IntoIterator<Item = (Bytes, &'a [Stage])>,
    ) -> Result<Self, ScheduleError> {
        let mut work = Self { tasks: Vec::new(), starts: vec![0] };
        let mut total = 0u64;
        let fits = |total: &u64| *total < 1 << 62;
        // Most chunks are like an earlier one.
        let mut seen: Vec<(Bytes, &[Stage], usize, u64)> = Vec::new();
        for (bytes, stages) in chunks {
            let first = work.tasks.len();
            let before = total;
            if let Some((.., like, time)) = seen.iter().find(|s| (s.0, s.1) == (bytes, stages)) {
                total = before.checked_add(*time).filter(fits).ok_or(ScheduleError::TooLong)?;
                work.tasks.extend_from_within(*like..*like + stages.len());
                work.starts.push(u32::try_from(work.tasks.len()).expect("fewer than 2^32 stages"));
                continue;
            }
            let mut scattered = scattered_at_start(stages);
            for stage in stages {
                let time = model
                    .stage(bytes, stage.operation, stage.dimension, scattered)
                    .ok_or(ScheduleError::TooLong)?;
                match stage.operation {
                    Operation::ReduceScatter => scattered = scattered.with(stage.dimension),
                    Operation::AllGather => scattered = scattered.without(stage.dimension),
                    _ => {}
                }
                total = total
                    .checked_add(time.occupancy.as_ps())
                    .and_then(|total| total.checked_add(time.latency.as_ps()))
                    .filter(fits)
                    .ok_or(ScheduleError::TooLong)?;
                work.tasks.push(Task {
                    dimension: stage.dimension.0,
                    operation: stage.operation,
                    occupancy: time.occupancy,
                    latency: time.latency,
                    served: time.occupancy,
                    alone: time.alone,
                    sent: time.sent,
                    share: Share::of(time.occupancy, time.occupancy + time.latency),
                    buffer: time.buffer,
                    brought: match stage.operation {
                        Operation::AllGather => {
                            Bytes::new(time.buffer.count() / model.size(stage.dimension))
                        }
                        _ => time.buffer,
                    },
                    steps: time.steps,
                    halving: time.halving,
                });
            }
            work.starts.push(u32::try_from(work.tasks.len()).expect("fewer than 2^32 stages"));
            seen.push((bytes, stages, first, total - before));
        }
        Ok(work)
    }

    /// Where `active_chunks` says how many stages a dimension runs at once, those without contention
    /// run side by side, each as if it were alone.
    #[must_use]
    pub fn side_by_side(mut self, active_chunks: Option<ActiveChunks>) -> Self {
        if active_chunks.is_some() {
            for task in self.tasks.iter_mut().filter(|task| task.alone) {
                task.latency += task.occupancy;
                task.occupancy = Time::ZERO;
            }
        }
        self
    }

    /// How many chunks.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.starts.len() - 1
    }

    /// The tasks of a chunk.
    #[must_use]
    pub fn chunk(&self, chunk: usize) -> &[Task] {
        &self.tasks[self.starts[chunk] as usize..self.starts[chunk + 1] as usize]
    }

    /// Every task.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Replaces the tasks of a chunk by as many others.
    pub(crate) fn replace(&mut self, chunk: usize, tasks: &[Task]) {
        let start = self.starts[chunk] as usize;
        self.tasks[start..start + tasks.len()].copy_from_slice(tasks);
    }
}

/// What running a schedule gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// When the last stage was over.
    pub finish: Time,
    /// The order in which each dimension served its stages.
    pub served: Vec<Vec<StageRef>>,
}

#[derive(Clone, Copy, Default)]
struct Server {
    free_at: Time,
    room: Room,
    waiting: u32,
}

/// Runs `work`; `queues[d]` decides for dimension `d`.
///
/// # Panics
/// If the queues hold stages back for ever: a checked plan cannot.
pub fn evaluate<Q: DimensionQueue>(
    work: &Work,
    queues: &mut [Q],
    active_chunks: Option<ActiveChunks>,
) -> Evaluation {
    let mut served = vec![Vec::new(); queues.len()];
    let finish = run(work, queues, active_chunks, |d, at| served[d].push(at));
    Evaluation { finish, served }
}

/// [`evaluate`] for the inner loop of a search: only when it ends.
///
/// # Panics
/// As [`evaluate`].
pub fn finish<Q: DimensionQueue>(
    work: &Work,
    queues: &mut [Q],
    active_chunks: Option<ActiveChunks>,
) -> Time {
    run(work, queues, active_chunks, |_, _| {})
}

fn run<Q: DimensionQueue>(
    work: &Work,
    queues: &mut [Q],
    active_chunks: Option<ActiveChunks>,
    mut serve: impl FnMut(usize, StageRef),
) -> Time {
    let mut run = Run::new(work, queues, active_chunks);
    loop {
        // What happens now first, then every dimension that can serve another.
        run.issue();
        run.take_finished();
        run.serve(&mut serve);
        if run.eager && run.has_more_now() {
            continue;
        }
        match run.next() {
            Some(next) => run.now = next,
            None => break,
        }
    }
    assert_eq!(run.left, 0, "a checked plan runs to its end");
    run.end
}

/// A schedule under way.
struct Run<'a, Q> {
    work: &'a Work,
    queues: &'a mut [Q],
    servers: Vec<Server>,
    eager: bool,
    finished: EventQueue<StageRef>,
    /// With eager queues: of those, what ends now and was not looked at.
    taken: VecDeque<StageRef>,
    unissued: Range<u32>,
    /// Stages that are not over.
    left: usize,
    now: Time,
    end: Time,
}

impl<'a, Q: DimensionQueue> Run<'a, Q> {
    fn new(work: &'a Work, queues: &'a mut [Q], active_chunks: Option<ActiveChunks>) -> Self {
        let idle = Server { room: Room::new(active_chunks), ..Server::default() };
        Self {
            work,
            servers: vec![idle; queues.len()],
            eager: queues.first().is_some_and(DimensionQueue::is_eager),
            queues,
            finished: EventQueue::new(),
            taken: VecDeque::new(),
            unissued: 0..u32::try_from(work.chunks()).expect("fewer than 2^32 chunks"),
            left: work.tasks().len(),
            now: Time::ZERO,
            end: Time::ZERO,
        }
    }

    /// Chunks come to their first dimensions: all, or with eager queues one.
    fn issue(&mut self) {
        while let Some(chunk) = self.unissued.next() {
            self.enqueue(StageRef { chunk, stage: 0 });
            if self.eager {
                break;
            }
        }
    }

    /// A chunk comes to the dimension of this stage, if it has one more.
    fn enqueue(&mut self, at: StageRef) {
        if let Some(task) = self.work.chunk(at.chunk as usize).get(at.stage as usize) {
            self.servers[task.dimension as usize].waiting += 1;
            self.queues[task.dimension as usize].push(Waiting {
                collective: 0,
                at,
                priority: 0,
                operation: task.operation,
                buffer: task.buffer,
                brought: task.brought,
            });
        }
    }

    /// Stages that are over now make room, and their chunks go on: all, or with eager queues one.
    fn take_finished(&mut self) {
        loop {
            let over = if self.eager {
                self.taken.pop_front()
            } else if self.finished.next_time() == Some(self.now) {
                self.finished.pop().map(|(_, at)| at)
            } else {
                None
            };
            let Some(at) = over else { break };
            self.left -= 1;
            self.end = self.now;
            let task = &self.work.chunk(at.chunk as usize)[at.stage as usize];
            self.servers[task.dimension as usize].room.give_back(task.share);
            self.enqueue(StageRef { stage: at.stage + 1, ..at });
            if self.eager {
                break;
            }
        }
    }

    /// Every dimension that can serves another stage.
    fn serve(&mut self, serve: &mut impl FnMut(usize, StageRef)) {
        for (d, server) in self.servers.iter_mut().enumerate() {
            while server.waiting > 0 && server.free_at <= self.now && server.room.is_left() {
                let Some(Waiting { at, .. }) = self.queues[d].pop() else { break };
                let task = &self.work.chunk(at.chunk as usize)[at.stage as usize];
                server.waiting -= 1;
                server.room.take(task.share);
                server.free_at = self.now + task.occupancy;
                serve(d, at);
                let class = if self.eager { u8::try_from(d).unwrap_or(u8::MAX) } else { 0 };
                self.finished.push(server.free_at + task.latency, class, at);
            }
        }
    }

    /// With eager queues: dimensions that fell free have chosen by now; what ends now is taken one by one.
    fn has_more_now(&mut self) -> bool {
        if self.taken.is_empty() && self.unissued.is_empty() {
            while self.finished.next_time() == Some(self.now) {
                self.taken.extend(self.finished.pop().map(|(_, at)| at));
            }
        }
        !self.taken.is_empty() || !self.unissued.is_empty()
    }

    /// When something happens next.
    fn next(&self) -> Option<Time> {
        let able = |server: &&Server| {
            server.waiting > 0 && server.free_at > self.now && server.room.is_left()
        };
        let free = self.servers.iter().filter(able).map(|server| server.free_at);
        free.chain(self.finished.next_time()).min()
    }
}
