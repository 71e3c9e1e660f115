//! Jobs that arrive, wait, run and leave.
//!
//! The queue is first in, first out: nobody starts while the job at its head finds no boards. With
//! `backfill`, a later job may start if it fits now and ends before the head could start anyway (the
//! first time at which the running jobs that have ended by then leave room for it), so the head never
//! waits longer for it. Of the jobs behind the head 100 are looked at. At one time, jobs leave before
//! others arrive, and arrive before any starts.
//!
//! Utilisation is boards in use / boards that work, over the time from the first arrival to the last end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;

use allrail_core::{FieldError, Time, counted, either};
use allrail_fabric::placement::{Boards, Floor, Request};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::mix::Sizes;
use super::place::{Options, Placed, Shapes};

/// Jobs behind the head that backfilling looks at.
const DEPTH: usize = 100;

/// A job that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// How long it runs.
    pub duration: Time,
    /// What it asks for.
    pub asks: Request,
}

/// How the queue is served; `options.sort` means nothing here.
#[derive(Clone, Debug)]
pub struct Queue {
    /// On what.
    pub floor: Floor,
    /// How jobs are placed.
    pub options: Options,
    /// Whether later jobs may start before the head.
    pub backfill: bool,
}

/// A job that has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// When it started.
    pub start: Time,
    /// When it ended.
    pub end: Time,
    /// Where it was.
    pub placed: Placed,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// By arrival.
    pub jobs: Vec<Ran>,
    /// Boards in use from each time on.
    pub busy: Vec<(Time, u64)>,
    /// Boards that work.
    pub working: u64,
}

impl Run {
    /// The mean part of the working boards in use, from the first arrival to the last end.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        let area: f64 = self
            .busy
            .windows(2)
            .map(|pair| (pair[1].0.as_s() - pair[0].0.as_s()) * pair[0].1 as f64)
            .sum();
        let span = self.busy.last().map_or(0.0, |last| last.0.as_s() - self.busy[0].0.as_s());
        area / (span * self.working as f64)
    }
}

impl Queue {
    /// Runs all `arrivals`. `observe` is told how many have ended and may stop the work: `None` then.
    ///
    /// # Errors
    /// There are none, their times go backwards, or one never fits.
    pub fn run(
        &self,
        arrivals: &[Arrival],
        observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<Run>, FieldError> {
        self.validate(arrivals)?;
        let mut now = Now {
            queue: self,
            arrivals,
            shapes: Shapes::new(&self.floor, self.options.choice),
            free: self.floor.empty(),
            waiting: VecDeque::new(),
            ends: BinaryHeap::new(),
            ran: vec![None; arrivals.len()],
        };
        let working = now.free.free();
        let (mut next, mut done, mut busy) = (0, 0, Vec::new());
        while next < arrivals.len() || !now.ends.is_empty() {
            let arrival = arrivals.get(next).map(|job| job.at);
            let end = now.ends.peek().map(|Reverse((end, _))| *end);
            let at = arrival.into_iter().chain(end).min().expect("something is still to happen");
            while let Some(&Reverse((end, job))) = now.ends.peek().filter(|top| top.0.0 == at) {
                debug_assert_eq!(end, at);
                now.ends.pop();
                let ran = now.ran[job as usize].as_ref().expect("what ends has started");
                now.free.release(&ran.placed.block());
                done += 1;
                if done % 1024 == 0 && observe(done, arrivals.len() as u64).is_break() {
                    return Ok(None);
                }
            }
            while arrivals.get(next).is_some_and(|job| job.at == at) {
                now.waiting.push_back(next as u32);
                next += 1;
            }
            now.start(at);
            busy.push((at, working - now.free.free()));
        }
        let jobs = now.ran.into_iter().map(|ran| ran.expect("every job fits an empty fabric"));
        Ok(Some(Run { jobs: jobs.collect(), busy, working }))
    }

    fn validate(&self, arrivals: &[Arrival]) -> Result<(), FieldError> {
        self.options.choice.validate()?;
        let refuse = |index: usize, key: &str, value: String, why: String, hint: &str| {
            Err(FieldError::new(format!("trace[{index}].{key}"), value, why, hint))
        };
        if arrivals.is_empty() {
            let hint = "each job has an arrival, a duration and a size";
            return Err(FieldError::new("trace", "no jobs", "there is no job in it", hint));
        }
        let empty = self.floor.empty();
        let mut shapes = Shapes::new(&self.floor, self.options.choice);
        let mut fit = std::collections::BTreeSet::new();
        for (index, job) in arrivals.iter().enumerate() {
            if index > 0 && job.at < arrivals[index - 1].at {
                let why = format!(
                    "time goes backwards: the job before came at {}",
                    arrivals[index - 1].at
                );
                return refuse(
                    index,
                    "arrive",
                    job.at.to_string(),
                    why,
                    "sort the jobs by arrival",
                );
            }
            if job.duration == Time::ZERO {
                let why = "a job takes some time".to_owned();
                return refuse(index, "duration", job.duration.to_string(), why, "such as `1 s`");
            }
            if job.at.checked_add(job.duration).is_none() {
                let why = "its end is beyond what time can count".to_owned();
                return refuse(
                    index,
                    "duration",
                    job.duration.to_string(),
                    why,
                    "such as `3600 s`",
                );
            }
            if fit.contains(&job.asks) {
                continue;
            }
            if self.floor.find(&empty, shapes.of(job.asks), false).is_none() {
                let why = format!(
                    "it never fits: {} {work}",
                    counted(empty.free(), "board"),
                    work = either(&empty.free(), "works", "work")
                );
                let hint = "take a smaller job, or `transpose` and `aspect` for more shapes";
                return refuse(index, "size", job.asks.to_string(), why, hint);
            }
            fit.insert(job.asks);
        }
        Ok(())
    }
}

struct Now<'a> {
    queue: &'a Queue,
    arrivals: &'a [Arrival],
    shapes: Shapes<'a>,
    free: Boards,
    waiting: VecDeque<u32>,
    ends: BinaryHeap<Reverse<(Time, u32)>>,
    ran: Vec<Option<Ran>>,
}

impl Now<'_> {
    /// Starts whatever may start at this time.
    fn start(&mut self, at: Time) {
        while let Some(&head) = self.waiting.front() {
            if !self.try_one(head, at) {
                break;
            }
            self.waiting.pop_front();
        }
        if !self.queue.backfill || self.waiting.len() < 2 {
            return;
        }
        let head_starts = self.first_room();
        let mut behind = 1;
        for _ in 0..DEPTH.min(self.waiting.len() - 1) {
            let job = self.waiting[behind];
            let fits_before = at
                .checked_add(self.arrivals[job as usize].duration)
                .is_some_and(|end| end <= head_starts);
            if fits_before && self.try_one(job, at) {
                self.waiting.remove(behind);
            } else {
                behind += 1;
            }
        }
    }

    fn try_one(&mut self, job: u32, at: Time) -> bool {
        let arrival = self.arrivals[job as usize];
        let near = self.queue.options.locality;
        let shapes = self.shapes.of(arrival.asks);
        let Some(block) = self.queue.floor.find(&self.free, shapes, near) else { return false };
        self.free.take(&block);
        let end = at.checked_add(arrival.duration).unwrap_or(Time::MAX);
        self.ends.push(Reverse((end, job)));
        self.ran[job as usize] = Some(Ran { start: at, end, placed: Placed::new(job, block) });
        true
    }

    /// When the head finds room if nobody else starts.
    fn first_room(&mut self) -> Time {
        let head = self.arrivals[self.waiting[0] as usize].asks;
        let mut free = self.free.clone();
        let mut ends: Vec<(Time, u32)> = self.ends.iter().map(|Reverse(end)| *end).collect();
        ends.sort_unstable();
        for leaving in ends.chunk_by(|a, b| a.0 == b.0) {
            for &(_, job) in leaving {
                let ran = self.ran[job as usize].as_ref().expect("what runs has started");
                free.release(&ran.placed.block());
            }
            if self.queue.floor.find(&free, self.shapes.of(head), false).is_some() {
                return leaving[0].0;
            }
        }
        unreachable!("every job fits an empty fabric")
    }
}

/// `count` jobs with sizes from `sizes`, exponential gaps and durations of this mean; the gaps such that
/// the jobs ask for `load` times what the fabric has. The same seed gives the same jobs.
///
/// # Errors
/// The load or the duration is not above 0, or too large to count.
pub fn arrivals(
    sizes: &Sizes,
    boards: u64,
    count: u32,
    load: f64,
    duration: Time,
    seed: u64,
) -> Result<Vec<Arrival>, FieldError> {
    if !(load > 0.0 && load <= 100.0) {
        let hint = "0.9 asks for nine tenths of all boards";
        return Err(FieldError::new("load", load, "it is not above 0 and up to 100", hint));
    }
    let gap = sizes.mean() * duration.as_ps() as f64 / (load * boards as f64);
    let longest = 100.0 * duration.as_ps() as f64;
    if duration == Time::ZERO || gap * f64::from(count) + longest > 1e19 {
        let why = "so many jobs of this duration cannot be counted in picoseconds";
        return Err(FieldError::new("duration", duration, why, "such as `60 s`"));
    }
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut at = 0;
    let mut draw = |_| {
        let times = [gap, duration.as_ps() as f64].map(|mean| mean * exponential(&mut random));
        at = u64::saturating_add(at, times[0].round() as u64);
        let duration = Time::from_ps((times[1].round() as u64).max(1));
        Arrival { at: Time::from_ps(at), duration, asks: sizes.draw(&mut random) }
    };
    Ok((0..count).map(&mut draw).collect())
}

/// Exponential with mean 1, by comparing uniform numbers (von Neumann): no logarithm, whose last digit
/// is not the same on all machines.
fn exponential(random: &mut Pcg64Mcg) -> f64 {
    let mut whole = 0.0;
    loop {
        let first: f64 = random.random();
        let (mut last, mut run) = (first, 1);
        loop {
            let next: f64 = random.random();
            if next >= last {
                break;
            }
            (last, run) = (next, run + 1);
        }
        if run % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}
