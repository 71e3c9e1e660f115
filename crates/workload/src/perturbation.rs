//! Stragglers and jitter: factors on compute times, drawn from a seed; with the slow links beside them.
//!
//! The factor of a (actor, node, iteration) does not depend on the order in which it is asked for:
//! the three numbers and the seed are hashed (splitmix64) to four uniform draws, whose sum, scaled
//! to mean 1 and the given standard deviation, is the factor. A sum of four draws is bell-shaped and
//! bounded (± 2√3 deviations, about 3.46), and needs no function whose last bit differs between machines.
//! Whether a straggler that is slow now and then is slow is one uniform draw for its (rank, iteration).

use allrail_core::{FieldError, Rank, Time};

use crate::graph::{ActorId, NodeId};
use crate::slow_links::SlowLinks;
use crate::spec::{Jitter, Workload};
use crate::splitmix::mix;

/// A rank that is slow in some iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowNowAndThen {
    /// Which.
    pub rank: Rank,
    /// Index of the entry that says so.
    pub entry: u32,
    /// What its compute times are multiplied by then.
    pub factor: f64,
    /// How likely that is in an iteration.
    pub probability: f64,
}

/// What disturbs a step.
#[derive(Clone, Debug, Default)]
pub struct Perturbation {
    seed: u64,
    deviation: f64,
    /// By actor.
    slow: Vec<f64>,
    /// By actor: when its only rank is slow.
    now_and_then: Vec<Vec<SlowNowAndThen>>,
    /// Of the network.
    pub slow_links: Option<SlowLinks>,
}

impl Perturbation {
    /// `slow[a]` is the straggler's factor of actor a, 1 where it is absent.
    #[must_use]
    pub fn new(seed: u64, jitter: Option<Jitter>, slow: Vec<f64>) -> Self {
        let deviation = jitter.map_or(0.0, |jitter| jitter.deviation);
        Self { seed, deviation, slow, ..Self::default() }
    }

    /// With ranks that are slow in some iterations, by actor.
    #[must_use]
    pub fn with_now_and_then(mut self, slow: Vec<Vec<SlowNowAndThen>>) -> Self {
        self.now_and_then = slow;
        self
    }

    /// By how much an actor is slower in an iteration.
    fn slowness(&self, actor: ActorId, iteration: u32) -> f64 {
        let fixed = self.slow.get(actor.index()).copied().unwrap_or(1.0);
        let drawn = self.now_and_then.get(actor.index()).map_or(&[][..], Vec::as_slice);
        let factor = |one: &SlowNowAndThen| {
            let place = (u64::from(one.rank.0) << 32) | u64::from(one.entry);
            let draw = mix(self.seed ^ mix(place ^ mix(!u64::from(iteration))));
            #[expect(clippy::cast_precision_loss, reason = "53 bits")]
            let uniform = (draw >> 11) as f64 / (1u64 << 53) as f64;
            if uniform < one.probability { one.factor } else { 1.0 }
        };
        drawn.iter().map(factor).fold(fixed, std::ops::Mul::mul)
    }

    /// What the compute time of a node is multiplied by in an iteration.
    #[must_use]
    pub fn factor(&self, actor: ActorId, node: NodeId, iteration: u32) -> f64 {
        let slow = self.slowness(actor, iteration);
        if self.deviation == 0.0 {
            return slow;
        }
        let place = (u64::from(actor.0) << 32) | u64::from(node.0);
        let mut state = mix(self.seed ^ mix(place ^ mix(u64::from(iteration))));
        let mut sum = 0u64;
        for _ in 0..4 {
            state = mix(state);
            sum += state >> 32;
        }
        // Four uniform draws of 32 bits: mean 2, standard deviation sqrt(4 / 12).
        #[expect(clippy::cast_precision_loss, reason = "34 bits")]
        let sum = sum as f64 / 4_294_967_296.0;
        let normal = (sum - 2.0) * SQRT_3;
        slow * (1.0 + self.deviation * normal).max(0.0)
    }

    /// A nominal time so disturbed.
    #[must_use]
    pub fn time(&self, actor: ActorId, node: NodeId, iteration: u32, nominal: Time) -> Time {
        let factor = self.factor(actor, node, iteration);
        if factor == 1.0 { nominal } else { crate::device::scaled(nominal, factor) }
    }

    /// Whether no compute time changes.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.deviation == 0.0
            && self.slow.iter().all(|slow| *slow == 1.0)
            && self.now_and_then.iter().all(Vec::is_empty)
    }
}

const SQRT_3: f64 = 1.732_050_807_568_877_2;

/// Whether stragglers and jitter are what they should be.
pub(crate) fn check(workload: &Workload, sizes: &[u32]) -> Result<(), FieldError> {
    let npus: u64 = sizes.iter().map(|size| u64::from(*size)).product();
    for (i, straggler) in workload.stragglers.iter().enumerate() {
        let field = |name: &str| format!("workload.stragglers[{i}].{name}");
        if !(straggler.factor > 0.0 && straggler.factor <= 1e6) {
            let why = "compute times are multiplied by it";
            let hint = "above 1 is slower; 1.2 takes 20 % longer";
            return Err(FieldError::new(field("factor"), straggler.factor, why, hint));
        }
        if let Some(probability) = straggler.probability
            && !(probability > 0.0 && probability <= 1.0)
        {
            let why = "it is the part of iterations in which a rank is slow";
            let hint = "above 0, to 1; 0.05 is one in twenty, and left out they are slow in all";
            return Err(FieldError::new(field("probability"), probability, why, hint));
        }
        let outside = straggler.ranks.iter().find(|rank| u64::from(rank.0) >= npus);
        if let Some(rank) = outside {
            let hint = format!("ranks are 0 to {}", npus.saturating_sub(1));
            return Err(FieldError::new(field("ranks"), rank.0, "there is no such rank", hint));
        }
        if straggler.ranks.is_empty() {
            let hint = "name the ranks that are slow";
            return Err(FieldError::new(field("ranks"), "[]", "nobody is slow", hint));
        }
    }
    if let Some(jitter) = workload.jitter
        && !(0.0..=0.28).contains(&jitter.deviation)
    {
        return Err(FieldError::new(
            "workload.jitter.deviation",
            jitter.deviation,
            "times would be negative",
            "0 to 0.28; 0.05 is 5 %",
        ));
    }
    Ok(())
}
