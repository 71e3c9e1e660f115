//! What a compute engine's time went to: computing, communication of its own, others; by purpose and by pass.
//!
//! Computing counts to the pass of its node, exposed communication to the pass of the communication
//! (gradients to the backward pass, parameters that an update gathers to the update), waiting to the pass of
//! what it waits for. The parts of all passes add up to the step.

use std::collections::BTreeMap;

use allrail_core::Time;
use allrail_workload::{Pass, Purpose};

use crate::scenario::tag;
use crate::training::driver::Outcome;
use crate::training::driver::record::{Idle, clipped};
use crate::training::job::BuiltJob;
use crate::training::outcome::result::{PassResult, Passes};
use crate::training::outcome::window::Window;
use crate::training::players::Players;

/// The time of a player's compute engine within a window, by what it did.
#[derive(Clone, Default)]
pub(super) struct Account {
    /// Computing.
    pub(super) compute: Time,
    exposed: BTreeMap<Purpose, Time>,
    waiting: Time,
    /// By pass: computing, exposed, waiting.
    passes: [[Time; 3]; Pass::ALL.len()],
}

impl Account {
    /// Of a player.
    pub(super) fn new(outcome: &Outcome, player: usize, window: &Window) -> Self {
        let mut account = Self::default();
        let mut idle = Time::ZERO;
        for gap in &outcome.gaps[player] {
            let length = clipped(gap.start, gap.end, (window.from, window.to));
            idle += length;
            let of_pass = &mut account.passes[gap.pass.index()];
            match gap.idle {
                Idle::Exposed(purpose) => {
                    *account.exposed.entry(purpose).or_default() += length;
                    of_pass[1] += length;
                }
                Idle::Waiting => {
                    account.waiting += length;
                    of_pass[2] += length;
                }
            }
        }
        account.compute = window.span().saturating_sub(idle);
        let (first, last) = (&outcome.computed.0, &outcome.computed.1);
        for (pass, of_pass) in account.passes.iter_mut().enumerate() {
            let before = if window.several { first[player][pass] } else { Time::ZERO };
            of_pass[0] = last[player][pass].saturating_sub(before);
        }
        account
    }
}

/// The mean of accounts, µs a step.
#[derive(Clone, Default)]
pub(super) struct Mean {
    pub(super) compute: f64,
    pub(super) exposed: BTreeMap<String, f64>,
    pub(super) waiting: f64,
    passes: [[f64; 3]; Pass::ALL.len()],
}

impl Mean {
    fn add(&mut self, account: &Account, each: f64) {
        self.compute += account.compute.as_us() * each;
        self.waiting += account.waiting.as_us() * each;
        for purpose in Purpose::ALL {
            let time = account.exposed.get(&purpose).copied().unwrap_or_default();
            *self.exposed.entry(tag(&purpose)).or_default() += time.as_us() * each;
        }
        for (mean, times) in self.passes.iter_mut().zip(&account.passes) {
            for (mean, time) in mean.iter_mut().zip(times) {
                *mean += time.as_us() * each;
            }
        }
    }

    /// Of all purposes.
    pub(super) fn exposed(&self) -> f64 {
        self.exposed.values().sum()
    }

    /// By pass.
    pub(super) fn passes(&self) -> Passes {
        let of = |pass: Pass| {
            let [compute_us, exposed_us, waiting_us] = self.passes[pass.index()];
            let time_us = compute_us + exposed_us + waiting_us;
            PassResult { time_us, compute_us, exposed_us, waiting_us }
        };
        Passes {
            forward: of(Pass::Forward),
            backward: of(Pass::Backward),
            update: of(Pass::Update),
            other: of(Pass::Unknown),
        }
    }
}

/// The mean over the players of each actor, and over all ranks.
pub(super) fn means(
    job: &BuiltJob<'_>,
    players: &Players,
    accounts: &[Account],
    steps: f64,
) -> (Vec<Mean>, Mean) {
    let mut counts = vec![0_u32; job.graph.actors().len()];
    for actor in &players.actors {
        counts[actor.index()] += 1;
    }
    let ranks: usize = job.graph.actors().iter().map(|actor| actor.ranks.len()).sum();
    let mut actors = vec![Mean::default(); counts.len()];
    let mut all = Mean::default();
    for (account, actor) in accounts.iter().zip(&players.actors) {
        let part = 1.0 / f64::from(counts[actor.index()]);
        let weight = job.graph.actors()[actor.index()].ranks.len() as f64 / ranks as f64;
        actors[actor.index()].add(account, part / steps);
        all.add(account, part * weight / steps);
    }
    (actors, all)
}
