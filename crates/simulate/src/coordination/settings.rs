//! The key `schedule.coordination` of a scenario: a policy and its settings.

use allrail_coordinate::{self as coordinate, CoordinationPolicy, NONE, Settings};
use allrail_core::{FieldError, Time, counted, either};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::latency::Latency;
use crate::SimulateError;

/// How ranks agree on what is ready.
pub struct Coordination {
    /// `None`: at once, when the last has submitted.
    pub policy: Option<&'static dyn CoordinationPolicy>,
    /// The policy's settings.
    pub settings: Settings,
    /// What messages cost.
    pub latency: Latency,
    /// How much later than its class a rank may submit what it has made in a step.
    pub skew: Time,
    /// The tensors of each group; by number.
    pub groups: Vec<Vec<u32>>,
    /// Which collectives of a workload ranks agree on.
    pub collectives: Collectives,
}

/// Which collectives ranks agree on before they launch them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collectives {
    /// Those of gradients alone.
    #[default]
    Gradients,
    /// All, as Horovod does: also metrics, statistics of batch norms, gathered rows, barriers, and those of groups
    /// that exchange no gradients. Ranks make them in one order.
    All,
}

/// Settings that every policy but `none` reads.
const COMMON: [&str; 9] = [
    "policy",
    "threshold",
    "stall",
    "stall_shutdown",
    "patience",
    "latency",
    "groups",
    "skew",
    "collectives",
];

fn wrong(
    key: &str,
    value: &Value,
    why: impl Into<String>,
    hint: impl Into<String>,
) -> SimulateError {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let field = format!("schedule.coordination.{key}");
    SimulateError::Field(FieldError::new(field, value, why, hint))
}

impl Coordination {
    /// Without any talk.
    #[must_use]
    pub fn none() -> Self {
        Self {
            policy: None,
            settings: Settings::default(),
            latency: Latency::default(),
            skew: Time::ZERO,
            groups: Vec::new(),
            collectives: Collectives::default(),
        }
    }

    /// From JSON. `names` are the tensors' in the order of their numbers; groups name them.
    ///
    /// # Errors
    /// A key that the policy does not read, a value out of range, a group with an unknown tensor.
    pub fn read(tree: &Value, names: &[String]) -> Result<Self, SimulateError> {
        let Value::Object(keys) = tree else {
            return Err(FieldError::new(
                "schedule.coordination",
                tree,
                "it is not a mapping",
                "for example `coordination: {policy: cached, cycle: 1 ms}`",
            )
            .into());
        };
        let name = match keys.get("policy") {
            Some(Value::String(name)) => name.as_str(),
            Some(other) => {
                return Err(wrong("policy", other, "it is not a name", "for example `cached`"));
            }
            None => NONE,
        };
        let policy = (name != NONE).then(|| coordinate::named(name)).transpose()?;
        check_keys(keys, name, policy)?;
        let groups =
            keys.get("groups").map_or(Ok(Vec::new()), |groups| read_groups(groups, names))?;
        let latency = match keys.get("latency") {
            None => Latency::default(),
            Some(tree) => serde_json::from_value(tree.clone())
                .map_err(|error| wrong("latency", tree, error.to_string(), LATENCY_HINT))?,
        };
        let skew = match keys.get("skew") {
            None => Time::ZERO,
            Some(tree) => serde_json::from_value(tree.clone())
                .ok()
                .filter(|skew: &Time| *skew <= LONGEST_SKEW)
                .ok_or_else(|| wrong("skew", tree, "it is no time of up to an hour", SKEW_HINT))?,
        };
        let collectives = match keys.get("collectives") {
            None => Collectives::default(),
            Some(tree) => serde_json::from_value(tree.clone()).map_err(|_| {
                wrong("collectives", tree, "there is no such choice", "`gradients` or `all`")
            })?,
        };
        let defaults = policy.map_or_else(Settings::default, CoordinationPolicy::defaults);
        let mut settings = serde_json::to_value(defaults).unwrap_or_default();
        for (key, value) in keys {
            if let Some(place) = settings.get_mut(key) {
                *place = value.clone();
                // One at a time, so that the error names the key.
                serde_json::from_value::<Settings>(settings.clone()).map_err(|error| {
                    wrong(key, value, error.to_string(), "`allrail schema scenario` lists its keys")
                })?;
            }
        }
        let settings: Settings = serde_json::from_value(settings)
            .map_err(|error| SimulateError::Form(error.to_string()))?;
        if let Some(policy) = policy {
            settings.check(policy)?;
        }
        Ok(Self { policy, settings, latency, skew, groups, collectives })
    }
}

const LONGEST_SKEW: Time = Time::from_us(3_600_000_000);
const SKEW_HINT: &str = "for example `skew: 500 us`; leave it out for ranks that are alike";
const LATENCY_HINT: &str = "its keys are `wire`, `bandwidth`, `send`, `receive`, `entry`, \
                            `entry_bytes`, for example `latency: {wire: 1 us}`";

fn check_keys(
    keys: &Map<String, Value>,
    name: &str,
    policy: Option<&dyn CoordinationPolicy>,
) -> Result<(), SimulateError> {
    let known = |key: &str| {
        key == "policy"
            || policy.is_some_and(|one| COMMON.contains(&key) || one.reads().contains(&key))
    };
    let Some((key, value)) = keys.iter().find(|(key, _)| !known(key)) else { return Ok(()) };
    let readers = coordinate::ALL.iter().filter(|one| one.reads().contains(&key.as_str()));
    let readers: Vec<String> = readers.map(|one| format!("`{}`", one.tag())).collect();
    let belongs = COMMON.contains(&key.as_str()) || !readers.is_empty();
    let why = if belongs {
        format!("`policy: {name}` does not read it")
    } else {
        "there is no such key".to_owned()
    };
    let hint = match (belongs, readers.is_empty()) {
        (true, false) => format!("leave it out; {} read it", readers.join(", ")),
        (true, true) => "leave it out, or name another policy".to_owned(),
        _ => {
            let own = policy.map_or(&[][..], |one| one.reads());
            let all: Vec<String> = COMMON.iter().chain(own).map(|key| format!("`{key}`")).collect();
            format!("the keys are {}", all.join(", "))
        }
    };
    Err(wrong(key, value, why, hint))
}

fn read_groups(groups: &Value, names: &[String]) -> Result<Vec<Vec<u32>>, SimulateError> {
    const HINT: &str = "for example `groups: [[layer1, layer2], [layer3]]`, or a number of groups";
    if let Some(count) = groups.as_u64() {
        return in_equal_groups(count, groups, names.len());
    }
    let Some(lists) = groups.as_array() else {
        return Err(wrong("groups", groups, "it is not a list of lists of tensors", HINT));
    };
    let group = |(number, list): (usize, &Value)| {
        let key = format!("groups[{number}]");
        let Some(list) = list.as_array() else {
            return Err(wrong(&key, list, "it is not a list of tensors", HINT));
        };
        let number = |name: &Value| {
            let place = name.as_str().and_then(|name| names.iter().position(|one| one == name));
            let place = place.and_then(|place| u32::try_from(place).ok());
            place.ok_or_else(|| {
                let first: Vec<String> = names.iter().take(3).map(|n| format!("`{n}`")).collect();
                let hint = format!("the first tensors of this workload are {}", first.join(", "));
                wrong(&key, name, "there is no such tensor", hint)
            })
        };
        list.iter().map(number).collect()
    };
    lists.iter().enumerate().map(group).collect()
}

/// So many groups of neighbours.
fn in_equal_groups(
    count: u64,
    given: &Value,
    tensors: usize,
) -> Result<Vec<Vec<u32>>, SimulateError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 || count > tensors {
        let why = format!(
            "there {are} {tensors}",
            tensors = counted(tensors, "tensor"),
            are = either(&tensors, "is", "are")
        );
        return Err(wrong("groups", given, why, format!("write 1 to {tensors}, or leave it out")));
    }
    let cut = |group: usize| (group * tensors / count) as u32;
    Ok((0..count).map(|group| (cut(group)..cut(group + 1)).collect()).collect())
}
