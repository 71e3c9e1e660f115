//! A question about steps under coordination, as JSON: what the bindings hand over.

use allrail_core::{Bytes, Time};
use allrail_schedule::coordinate::Job;
use serde::Deserialize;
use serde_json::Value;

use super::settings::Coordination;
use super::steps::{Exchange, Outcome, Step, run};
use crate::SimulateError;

/// What is to be run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsRequest {
    /// How many ranks.
    pub ranks: u32,
    /// How many steps.
    pub steps: u32,
    /// How long a rank computes.
    pub compute: Time,
    /// When each tensor is ready in the step, its bytes and its name.
    pub tensors: Vec<(Time, Bytes, String)>,
    /// How much later a rank may be in a step.
    #[serde(default)]
    pub skew: Time,
    /// How buffers are exchanged.
    pub exchange: Exchange,
    /// How many steps later gradients are applied: 0 or 1.
    #[serde(default)]
    pub lag: u32,
    /// As `schedule.coordination`.
    pub coordination: Value,
    /// For the skews.
    #[serde(default)]
    pub seed: u64,
}

/// More than any machine has, and few enough for memory.
const MOST_RANKS: u32 = 1 << 20;

impl StepsRequest {
    /// From JSON.
    ///
    /// # Errors
    /// [`SimulateError::Form`] where it is not one.
    pub fn from_json(text: &str) -> Result<Self, SimulateError> {
        serde_json::from_str(text)
            .map_err(|error| SimulateError::Form(format!("the request is malformed: {error}")))
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn run(self) -> Result<Outcome, SimulateError> {
        let wrong = |field: &str, value: String, why: &str, hint: &str| {
            Err(SimulateError::Field {
                field: field.to_owned(),
                value,
                why: why.to_owned(),
                hint: hint.to_owned(),
            })
        };
        if self.ranks == 0 || self.ranks > MOST_RANKS {
            let why = format!("there are 1 to {MOST_RANKS} ranks");
            return wrong("ranks", self.ranks.to_string(), &why, "for example 800");
        }
        if self.steps == 0 {
            return wrong("steps", "0".to_owned(), "nothing would be run", "write 2 or more");
        }
        if self.lag > 1 {
            return wrong("lag", self.lag.to_string(), "gradients wait a step at most", "0 or 1");
        }
        let slowdown = self.exchange.slowdown;
        if !(0.0..=100.0).contains(&slowdown) {
            let why = "computing takes 0 to 100 times longer";
            let hint = "0 is no slowdown, 0.2 a fifth longer";
            return wrong("exchange.slowdown", slowdown.to_string(), why, hint);
        }
        if self.tensors.is_empty() {
            return wrong("tensors", "[]".to_owned(), "nothing to exchange", "name one");
        }
        if !self.tensors.is_sorted_by_key(|(offset, ..)| *offset) {
            let why = "they are not in the order in which they are ready";
            return wrong("tensors", format!("{} of them", self.tensors.len()), why, "sort them");
        }
        let last = self.tensors.last().map_or(Time::ZERO, |(offset, ..)| *offset);
        if last > self.compute {
            let why = "a tensor is ready after the step's computation";
            return wrong("compute", self.compute.to_string(), why, "make it longer");
        }
        let names: Vec<String> = self.tensors.iter().map(|(_, _, name)| name.clone()).collect();
        let coordination = Coordination::read(&self.coordination, &names)?;
        let Some(policy) = coordination.policy else {
            let why = "there is nothing to simulate without any talk";
            return wrong("schedule.coordination.policy", "none".to_owned(), why, "name another");
        };
        let groups = if self.lag == 0 {
            coordination.groups
        } else {
            // The second buffer of every tensor has groups of its own.
            let count = names.len() as u32;
            let twins = coordination.groups.iter().map(|g| g.iter().map(|t| t + count).collect());
            coordination.groups.iter().cloned().chain(twins.collect::<Vec<_>>()).collect()
        };
        let job = Job::new(policy, &coordination.settings, self.ranks, &groups)?;
        let step = Step {
            compute: self.compute,
            offsets: self.tensors.iter().map(|(offset, ..)| *offset).collect(),
            bytes: self.tensors.iter().map(|(_, bytes, _)| *bytes).collect(),
            skew: self.skew,
            exchange: self.exchange,
            lag: self.lag,
        };
        run(policy, &job, coordination.latency, &step, self.steps, self.seed)
    }
}
