//! The key `schedule.coordination` of a job: how ranks agree on one order of launches, where what carries the
//! data needs one.
//!
//! Left out, ranks agree on each event ([`agreed`](allrail_coordinate::agreed)), and after a few steps
//! in the same order that order is frozen. A policy that is named is carried out in every step, as it is
//! simulated.

use allrail_coordinate::{self as coordinate, CoordinationPolicy};
use allrail_core::{Bytes, FieldError, Time};
use allrail_engine::engine;
use allrail_schedule::ScheduleError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How ranks agree on which gradients are ready everywhere, as in a scenario. What is left out is as the policy
/// has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coordination {
    /// The policy: `central`, `tree`, `cached` or `agreed`.
    pub policy: String,
    /// How often a rank asks what is ready. `agreed`: how long it gathers before it speaks again; 0 for at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub cycle: Option<Time>,
    /// How much is packed together at most, where `schedule.tensor.policy` sends whole tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bytes")]
    pub threshold: Option<Bytes>,
    /// `cached`: how many responses are remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub cache: Option<u32>,
    /// `tree`, `cached`, `agreed`: children of a node in the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub fan_out: Option<u32>,
    /// After how long a tensor that waits for ranks is reported, with the ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub stall: Option<Time>,
    /// After how long such a tensor stops the job; 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub stall_shutdown: Option<Time>,
    /// After how long a rank that says nothing is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub patience: Option<Time>,
    /// How many groups of about as many gradients are launched together, complete or not at all. Left out: each
    /// on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    pub groups: Option<u32>,
}

impl Coordination {
    /// The policy and its settings, once they are checked.
    ///
    /// # Errors
    /// An unknown policy, a key that it does not read, a value out of range.
    pub(crate) fn resolved(&self) -> Result<engine::Coordination, ScheduleError> {
        let policy = self.named()?;
        self.check_keys(policy)?;
        let known = policy.defaults();
        let settings = coordinate::Settings {
            cycle: self.cycle.unwrap_or(known.cycle),
            threshold: self.threshold.unwrap_or(known.threshold),
            cache: self.cache.unwrap_or(known.cache),
            fan_out: self.fan_out.unwrap_or(known.fan_out),
            stall: self.stall.unwrap_or(known.stall),
            stall_shutdown: self.stall_shutdown.unwrap_or(known.stall_shutdown),
            patience: self.patience.unwrap_or(known.patience),
        };
        settings.check(policy)?;
        Ok(engine::Coordination { policy, settings })
    }

    fn named(&self) -> Result<&'static dyn CoordinationPolicy, ScheduleError> {
        coordinate::named(&self.policy).map_err(|_| {
            let known: Vec<String> =
                coordinate::ALL.iter().map(|one| format!("`{}`", one.tag())).collect();
            let hint = format!("use one of {}, or leave `coordination` out", known.join(", "));
            wrong("policy", &self.policy, "ranks do not agree on an order by it", &hint)
        })
    }

    fn check_keys(&self, policy: &dyn CoordinationPolicy) -> Result<(), ScheduleError> {
        let given = [
            ("cycle", self.cycle.map(|one| one.to_string())),
            ("cache", self.cache.map(|one| one.to_string())),
            ("fan_out", self.fan_out.map(|one| one.to_string())),
        ];
        for (key, value) in given {
            let Some(value) = value.filter(|_| !policy.reads().contains(&key)) else { continue };
            let why = format!("`policy: {}` does not read it", policy.tag());
            return Err(wrong(key, &value, &why, "leave it out, or name another policy"));
        }
        if self.groups == Some(0) {
            return Err(wrong("groups", "0", "there are no gradients in it", "leave it out"));
        }
        Ok(())
    }
}

fn wrong(key: &str, value: &str, why: &str, hint: &str) -> ScheduleError {
    ScheduleError::Field(FieldError::new(format!("schedule.coordination.{key}"), value, why, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<engine::Coordination, ScheduleError> {
        serde_json::from_str::<Coordination>(text).expect("its form is right").resolved()
    }

    #[test]
    fn what_is_left_out_is_as_the_policy_has_it() {
        for policy in coordinate::ALL {
            let found = read(&format!(r#"{{"policy": "{}"}}"#, policy.tag())).expect("a policy");
            assert_eq!((found.policy.tag(), found.settings), (policy.tag(), policy.defaults()));
        }
        let said = read(r#"{"policy": "cached", "cycle": "3 ms", "cache": 5, "fan_out": 2}"#);
        let settings = said.expect("it reads them").settings;
        assert_eq!((settings.cycle, settings.cache), (Time::from_us(3_000), 5));
    }

    #[test]
    fn what_it_cannot_mean_names_the_key() {
        let table = [
            (r#"{"policy": "none"}"#, "policy"),
            (r#"{"policy": "cashed"}"#, "policy"),
            (r#"{"policy": "central", "fan_out": 4}"#, "fan_out"),
            (r#"{"policy": "tree", "cache": 4}"#, "cache"),
            (r#"{"policy": "cached", "cycle": "0 s"}"#, "cycle"),
            (r#"{"policy": "cached", "groups": 0}"#, "groups"),
        ];
        for (text, key) in table {
            match read(text) {
                Err(ScheduleError::Field(FieldError { field, hint, .. })) => {
                    assert_eq!(field, format!("schedule.coordination.{key}"));
                    assert!(!hint.is_empty() && !hint.contains("`none`"), "{hint}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
