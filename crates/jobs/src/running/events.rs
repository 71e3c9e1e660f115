//! Jobs side by side in a network model, message by message.
//!
//! Every job runs its steps again and again, so that all are under load until the slowest has completed
//! `2K` of them. With `t(k)` the time at which all ranks of a job have completed its step `k`:
//!
//! ```text
//! rate = K / (t(2K) − t(K))   steps per second
//! ```
//!
//! The first `K` steps are for becoming steady. A job on its own has the same measure.

use allrail_collective::Steps;
use allrail_core::{Bytes, Time};
use allrail_fabric::graph::NodeId;
use allrail_network::NetworkModel;
use allrail_simulate::SimulateError;
use allrail_simulate::driver::Observer;
use allrail_simulate::traffic::driver::{Demand, Message, carry_out};
use allrail_simulate::traffic::rounds::Rounds;

/// A job may be that much faster than the slowest; then it ends early.
const FASTEST: u32 = 64;

/// A job: what it runs on which NPUs.
pub struct Side {
    /// Over ranks.
    pub steps: Box<dyn Steps>,
    /// Of each rank.
    pub npus: Vec<NodeId>,
}

/// Steps per second of each job when all run at once; `K` is `steady`.
///
/// # Errors
/// A stall of the network model, or an interruption.
pub fn rates(
    network_model: &mut dyn NetworkModel,
    sides: &[Side],
    steady: u32,
    observer: Observer<'_>,
) -> Result<Vec<f64>, SimulateError> {
    let looped: Vec<Looped<'_>> = sides
        .iter()
        .map(|side| Looped { inner: &*side.steps, steps: 2 * steady * FASTEST })
        .collect();
    let mut together = Together {
        jobs: looped.iter().map(Rounds::new).collect(),
        sides,
        steps: 2 * steady,
        over: false,
        tags: Vec::new(),
        unused: Vec::new(),
    };
    carry_out(network_model, &mut together, observer)?;
    let rate = |job: &Rounds<&Looped<'_>>| {
        let time = |steps: u32| job.completed()[steps as usize - 1];
        f64::from(steady) / (time(2 * steady) - time(steady)).as_s()
    };
    Ok(together.jobs.iter().map(rate).collect())
}

/// Steps, again and again.
struct Looped<'a> {
    inner: &'a dyn Steps,
    steps: u32,
}

impl Steps for Looped<'_> {
    fn ranks(&self) -> u32 {
        self.inner.ranks()
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        self.inner.sends(rank, step % self.inner.steps(), out);
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        self.inner.expected(rank, step % self.inner.steps())
    }
}

/// The demands of all jobs, until each has completed so many steps.
struct Together<'a> {
    jobs: Vec<Rounds<&'a Looped<'a>>>,
    sides: &'a [Side],
    steps: u32,
    over: bool,
    /// The job and its own tag, by the tag of a message under way.
    tags: Vec<(u32, u64)>,
    unused: Vec<u64>,
}

impl Together<'_> {
    /// From ranks to NPUs, and from a job's tags to those of all.
    fn translate(&mut self, job: u32, out: &mut [Message]) {
        let npus = &self.sides[job as usize].npus;
        for message in out {
            message.source = npus[message.source as usize].0;
            message.destination = npus[message.destination as usize].0;
            let kept = (job, message.tag);
            message.tag = self.unused.pop().unwrap_or(self.tags.len() as u64);
            match self.tags.get_mut(message.tag as usize) {
                Some(place) => *place = kept,
                None => self.tags.push(kept),
            }
        }
    }
}

impl Demand for Together<'_> {
    fn due(&mut self, now: Time, out: &mut Vec<Message>) {
        for job in 0..self.jobs.len() as u32 {
            let first = out.len();
            self.jobs[job as usize].due(now, out);
            self.translate(job, &mut out[first..]);
        }
    }

    fn delivered(&mut self, now: Time, tag: u64, out: &mut Vec<Message>) {
        if self.over {
            return;
        }
        let (job, own) = self.tags[tag as usize];
        self.unused.push(tag);
        let first = out.len();
        self.jobs[job as usize].delivered(now, own, out);
        self.translate(job, &mut out[first..]);
        self.over = self.jobs.iter().all(|job| job.done_by_all() >= self.steps);
    }

    fn progress(&self) -> (u64, u64) {
        let done = self.jobs.iter().map(|job| u64::from(job.done_by_all().min(self.steps)));
        (done.sum(), self.jobs.len() as u64 * u64::from(self.steps))
    }

    fn waits(&self) -> String {
        let line =
            |(index, job): (usize, &Rounds<&Looped<'_>>)| format!("job {index}:\n{}", job.waits());
        self.jobs.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }
}
