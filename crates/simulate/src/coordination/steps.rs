//! Synchronous data-parallel steps under coordination: how much of a step the talk costs.
//!
//! Every rank computes for `compute`, and its tensors are ready at their offsets, later by its skew of
//! that step (drawn, up to `skew`), two neighbours in one order or the other. A tensor that has been
//! launched everywhere is exchanged: buffers one after the other, each `exchange.latency + bytes /
//! bandwidth`. The next step begins when the last buffer has arrived.
//!
//! With a lag of one, gradients are applied one step later, so the next step begins when the slowest
//! rank has computed, and the buffers of the step *before* have arrived (an earlier effort at this scale
//! needed that).
//!
//! With a slowdown, a rank computes slower while a buffer is exchanged ([`pace`](super::pace)): its tensors
//! are ready later, and its step ends later.
//!
//! `efficiency = compute / step`, of the computing without any exchange. Ignored: what compute takes from
//! exchange, and the update of the weights.

use allrail_core::{Bandwidth, Bytes, Time};
use allrail_schedule::coordinate::{CoordinationPolicy, Job, Request};
use serde::{Deserialize, Serialize};

use super::faults::Faults;
use super::latency::Latency;
use super::network::{Feed, Network};
use super::pace::Pace;
use super::reports::{Counts, Everywhere, Notice};
use crate::SimulateError;

/// A training step, on every rank alike.
#[derive(Clone, Debug)]
pub struct Step {
    /// How long a rank computes.
    pub compute: Time,
    /// When each tensor is ready within the step, ascending.
    pub offsets: Vec<Time>,
    /// The tensors' bytes, in that order.
    pub bytes: Vec<Bytes>,
    /// How much later a rank may be in a step.
    pub skew: Time,
    /// How buffers are exchanged.
    pub exchange: Exchange,
    /// How many steps later gradients are applied: 0 or 1.
    pub lag: u32,
}

/// What an all-reduce of a buffer takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Of a small one, over all ranks.
    pub latency: Time,
    /// How many bytes of a large one are reduced in a second.
    pub bandwidth: Bandwidth,
    /// By how much longer a rank's computing takes meanwhile: 0 for none, 1 for twice as long.
    #[serde(default)]
    pub slowdown: f64,
}

/// What came out of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// How long each step took.
    pub steps_us: Vec<f64>,
    /// The mean of all steps but the first.
    pub step_us: f64,
    /// Compute over that.
    pub efficiency: f64,
    /// Buffers in a step, the mean of all but the first.
    pub buffers: f64,
    /// How long a buffer was under way, in a step, the mean of all but the first.
    pub exchange_us: f64,
    /// Messages that were simulated.
    pub messages: u64,
    /// Ranks' cycles that were left out.
    pub skipped: u64,
}

/// A number that looks drawn, of a rank and a step.
fn scatter(seed: u64, rank: u32, step: u32) -> u64 {
    let mut x = seed ^ (u64::from(rank) << 32 | u64::from(step));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How far a rank has come with its submissions.
#[derive(Clone, Copy)]
struct Progress {
    step: u32,
    /// Of that step.
    made: u32,
    /// How late it is in that step.
    late: Time,
    /// Which neighbours it swaps.
    swaps: u64,
}

struct Schedule<'a> {
    step: &'a Step,
    seed: u64,
    /// When each step began.
    begun: Vec<Time>,
    pace: Pace,
    ranks: Vec<Progress>,
    /// By tensor; with a lag, for odd steps again with other numbers.
    requests: Vec<Request>,
}

impl<'a> Schedule<'a> {
    fn new(step: &'a Step, seed: u64, ranks: u32) -> Self {
        let bytes = (0..=step.lag).flat_map(|_| &step.bytes);
        let request = |(tensor, bytes): (u32, &Bytes)| Request::all_reduce(tensor, *bytes);
        let requests = (0..).zip(bytes).map(request).collect();
        let pace = Pace::new(step.exchange.slowdown);
        let mut schedule =
            Self { step, seed, begun: Vec::new(), pace, ranks: Vec::new(), requests };
        schedule.ranks = (0..ranks).map(|rank| schedule.enter(rank, 0)).collect();
        schedule
    }

    fn enter(&self, rank: u32, step: u32) -> Progress {
        let (skew, drawn) = (self.step.skew.as_ps(), scatter(self.seed, rank, step));
        let late = Time::from_ps(if skew == 0 { 0 } else { drawn % (skew + 1) });
        Progress { step, made: 0, late, swaps: drawn }
    }

    /// When the next tensor of a rank is ready, if its step has begun.
    #[inline]
    fn due(&self, Progress { step, made, late, .. }: Progress) -> Option<Time> {
        let begun = *self.begun.get(step as usize)?;
        Some(self.pace.done(begun, self.step.offsets[made as usize]) + late)
    }
}

impl Feed for Schedule<'_> {
    fn take(&mut self, rank: u32, now: Time, requests: &mut Vec<Request>) -> Option<Time> {
        let tensors = self.step.offsets.len() as u32;
        let mut progress = self.ranks[rank as usize];
        let mut due = self.due(progress);
        while due.is_some_and(|due| due <= now) {
            let Progress { step, made: place, swaps, .. } = progress;
            // Neighbours change places, or not.
            let swaps = swaps >> (place / 2 % 64) & 1 == 1;
            let other = place ^ 1;
            let tensor = if swaps && other < tensors { other } else { place };
            let twin = if self.step.lag == 0 { 0 } else { step % (self.step.lag + 1) * tensors };
            requests.push(self.requests[(tensor + twin) as usize]);
            progress.made += 1;
            if progress.made == tensors {
                progress = self.enter(rank, step + 1);
            }
            due = self.due(progress);
        }
        self.ranks[rank as usize] = progress;
        due
    }
}

/// Of the steps under way.
#[derive(Clone, Copy, Default)]
struct Under {
    launched: usize,
    buffers: u64,
    /// When its last buffer has arrived.
    end: Time,
    exchange: Time,
}

/// Runs steps. All coordinators begin at once, as after a barrier.
///
/// # Errors
/// If ranks stop, which they do only with faults.
pub fn run(
    policy: &dyn CoordinationPolicy,
    job: &Job,
    latency: Latency,
    step: &Step,
    steps: u32,
    seed: u64,
) -> Result<Outcome, SimulateError> {
    let tensors = step.offsets.len();
    let slots = tensors * (step.lag as usize + 1);
    let mut network = Network::new(policy, job, slots, latency, Faults::default(), true);
    let cycle = job.settings.cycle.as_ps().max(1);
    network.start(|_| Time::ZERO);
    let mut schedule = Schedule::new(step, seed, job.ranks);
    let mut under = vec![Under::default(); steps as usize];
    let (mut free, mut start) = (Time::ZERO, Time::from_ps(cycle));
    for number in 0..steps as usize {
        schedule.begun.push(start);
        for rank in 0..job.ranks {
            let due = schedule.due(schedule.ranks[rank as usize]).unwrap_or(Time::MAX);
            network.feed(rank, due);
        }
        // Which step has to be over before the next begins.
        let before = number.checked_sub(step.lag as usize);
        let mut wanted = before.map_or(0, |before| (before + 1) * tensors);
        if number + 1 == steps as usize {
            wanted = tensors * steps as usize;
        }
        let mut take = |one: &Everywhere, under: &mut [Under], pace: &mut Pace| {
            free = free.max(one.last);
            for response in &one.launch.responses {
                let bytes = step.exchange.bandwidth.time_for(response.bytes).unwrap_or(Time::MAX);
                let time = step.exchange.latency + bytes;
                pace.exchange(free, free + time);
                free += time;
                let first = response.tensors.first().map_or(0, |tensor| *tensor as usize);
                let of = number - (number - first / tensors) % (step.lag as usize + 1);
                under[of].launched += response.tensors.len();
                under[of].buffers += 1;
                under[of].end = free;
                under[of].exchange += time;
            }
        };
        let count = |under: &[Under]| under.iter().map(|one| one.launched).sum::<usize>();
        while count(&under) < wanted {
            let Some(one) = network.advance(Time::MAX, Some(&mut schedule)) else {
                return Err(stalled(&network));
            };
            take(&one, &mut under, &mut schedule.pace);
        }
        start = loop {
            // With a lag, what is exchanged meanwhile may make the step longer.
            let computed = schedule.pace.done(start, step.compute);
            let end = before.map_or(computed, |before| under[before].end.max(computed));
            let next = (step.lag > 0).then(|| network.advance(end, Some(&mut schedule))).flatten();
            let Some(one) = next else { break end };
            take(&one, &mut under, &mut schedule.pace);
        };
    }
    let mut begun = schedule.begun;
    begun.push(start);
    Ok(outcome(step, &begun, &under, network.counts()))
}

fn outcome(step: &Step, begun: &[Time], under: &[Under], counts: Counts) -> Outcome {
    let steps_us: Vec<f64> = begun.windows(2).map(|pair| (pair[1] - pair[0]).as_us()).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        let later = &values[usize::from(values.len() > 1)..];
        later.iter().sum::<f64>() / later.len().max(1) as f64
    };
    let step_us = mean(&mut steps_us.iter().copied());
    Outcome {
        step_us,
        efficiency: step.compute.as_us() / step_us,
        buffers: mean(&mut under.iter().map(|one| one.buffers as f64)),
        exchange_us: mean(&mut under.iter().map(|one| one.exchange.as_us())),
        messages: counts.messages,
        skipped: counts.skipped,
        steps_us,
    }
}

fn stalled(network: &Network) -> SimulateError {
    let said = network.notices().iter().take(8).map(|(time, rank, notice)| match notice {
        Notice::Stall { tensor, missing } => {
            format!("{time}: tensor {tensor} waits for the ranks {missing:?}")
        }
        other => format!("{time}: rank {rank}: {other:?}"),
    });
    SimulateError::Stalled {
        time_us: network.notices().last().map_or(0.0, |(time, ..)| time.as_us()),
        waits: said.collect::<Vec<_>>().join("\n"),
        hint: "a rank that is named has stopped to answer",
    }
}
