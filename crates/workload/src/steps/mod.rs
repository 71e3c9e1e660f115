//! Steps written out: a step graph as text, for compositions whose times are measured or published.
//!
//! ```yaml
//! ranks: [shard: 4, stage: 96]          # axes, the first fastest: rank = shard + 4 · stage
//! element: 4 B                          # what a number counts; quantities with units are bytes
//! groups: {tensor: [shard], pipeline: [stage]}
//! classes: {even: {stage: even}, odd: {stage: odd}}
//! steps:
//!   even:
//!     - {compute: 15.915 ms, pass: forward}
//!     - {all_reduce: 25165824, over: tensor, for: tensor, repeat: 2}
//!     - {send: 25165824, over: pipeline, to: next, for: pipeline}
//!     - {receive: 25165824, over: pipeline, from: next, for: pipeline}
//!   odd: [...]
//! ```
//!
//! A class's steps follow one another. With `background: true` the next one does not wait for a
//! step, but for what that one waited for; `after: [names]` names what is waited for instead, and
//! `after: []` the start. The iteration is over when all are. `repeat` writes a step several times. A
//! gradient's collective with its place in the forward pass as `tensor` is the tensor schedulers' and
//! is followed by an update of no time.
//!
//! A class takes all ranks whose coordinate on each axis that it names is among those given: a list,
//! one number, `even` or `odd`. A peer is a position in the group, `next`, `previous`, or a distance as
//! text (`"+4"`). The group of a collective spans the ranks that differ on its axes alone.
//!
//! A class that is given fewer ranks than there are leaves the others idle; a rank in two classes is
//! refused.

mod build;

use std::collections::BTreeMap;

use allrail_core::{Bytes, FieldError, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::{Pass, Purpose};

/// Steps as they are written; see the module.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// Axes and how many ranks lie along each, the first fastest: one name and number an entry.
    pub ranks: Vec<BTreeMap<String, u32>>,
    /// How large the elements are that sizes without a unit count.
    #[serde(default = "four")]
    pub element: Bytes,
    /// Of each group, the axes along which its ranks lie.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
    /// Of each class, the coordinates of its ranks; all ranks where there is but one.
    #[serde(default)]
    pub classes: BTreeMap<String, BTreeMap<String, Coordinates>>,
    /// What each class does.
    pub steps: BTreeMap<String, Vec<Step>>,
}

const fn four() -> Bytes {
    Bytes::new(4)
}

/// Coordinates on an axis.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Coordinates {
    /// One.
    One(u32),
    /// Some.
    List(Vec<u32>),
    /// Every other.
    Every(Parity),
}

/// Every other coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parity {
    /// 0, 2, 4, ...
    Even,
    /// 1, 3, 5, ...
    Odd,
}

impl Coordinates {
    fn has(&self, coordinate: u32) -> bool {
        match self {
            Self::One(one) => *one == coordinate,
            Self::List(list) => list.contains(&coordinate),
            Self::Every(parity) => coordinate % 2 == u32::from(*parity == Parity::Odd),
        }
    }

    fn largest(&self) -> Option<u32> {
        match self {
            Self::One(one) => Some(*one),
            Self::List(list) => list.iter().max().copied(),
            Self::Every(_) => None,
        }
    }
}

/// How much: elements, or bytes with a unit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Size {
    /// Of `element` bytes each.
    Elements(u64),
    /// With a unit.
    Bytes(Bytes),
}

/// Who is meant in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PeerText {
    /// The rank at a position.
    At(u32),
    /// `next`, `previous`, or a distance such as `"+4"`.
    Text(String),
}

/// One step of a class: one of `compute`, a collective, `send` and `receive`, and what belongs to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// For `after`, tables and traces.
    pub name: Option<String>,
    /// Names of what it waits for; the step before where absent.
    pub after: Option<Vec<String>>,
    /// Whether the next step does not wait for it.
    pub background: bool,
    /// How many times, one after the other.
    pub repeat: Option<u32>,
    /// Of which pass it is.
    pub pass: Option<Pass>,
    /// Of a gradient's collective: the place of its tensor in the forward pass.
    pub tensor: Option<u32>,
    /// Among whom.
    pub over: Option<String>,
    /// What for: `data`, `tensor`, `pipeline`, `expert`, `operator`.
    #[serde(rename = "for")]
    pub purpose: Option<Purpose>,
    /// To whom.
    pub to: Option<PeerText>,
    /// From whom.
    pub from: Option<PeerText>,
    /// Keeps the rank computing for so long.
    pub compute: Option<Time>,
    /// The buffer of everyone.
    pub all_reduce: Option<Size>,
    /// The buffer before.
    pub reduce_scatter: Option<Size>,
    /// The buffer after.
    pub all_gather: Option<Size>,
    /// The buffer of everyone, a share of it for each.
    pub all_to_all: Option<Size>,
    /// The first rank's buffer.
    pub broadcast: Option<Size>,
    /// A message to `to`.
    pub send: Option<Size>,
    /// A message from `from`.
    pub receive: Option<Size>,
}

fn wrong(
    field: impl Into<String>,
    value: impl std::fmt::Display,
    why: impl Into<String>,
    hint: &str,
) -> FieldError {
    FieldError::new(format!("workload.model.steps.{}", field.into()), value, why, hint)
}

/// More ranks than this are refused.
const MOST_RANKS: u64 = 1 << 24;

impl Steps {
    /// How many ranks lie along each axis, the first fastest: the dimensions of the job.
    ///
    /// # Errors
    /// An entry that is not one axis; an axis twice, or of no rank; too many ranks.
    pub fn sizes(&self) -> Result<Vec<u32>, FieldError> {
        let axes = self.axes()?;
        Ok(axes.into_iter().map(|(_, size)| size).collect())
    }

    fn axes(&self) -> Result<Vec<(&str, u32)>, FieldError> {
        let mut axes: Vec<(&str, u32)> = Vec::new();
        let mut product = 1u64;
        for (i, entry) in self.ranks.iter().enumerate() {
            let mut named = entry.iter();
            let (Some((name, size)), None) = (named.next(), named.next()) else {
                let why = "an entry is one axis with its number of ranks";
                let shown = format!("{entry:?}");
                return Err(wrong(
                    format!("ranks[{i}]"),
                    shown,
                    why,
                    "write `[shard: 4, stage: 96]`",
                ));
            };
            if axes.iter().any(|(other, _)| other == name) {
                let hint = "name every axis once";
                return Err(wrong(
                    format!("ranks[{i}]"),
                    name,
                    "there is such an axis already",
                    hint,
                ));
            }
            product = product.saturating_mul(u64::from(*size));
            if *size == 0 || product > MOST_RANKS {
                let why = format!("a job has 1 to {MOST_RANKS} ranks");
                return Err(wrong(format!("ranks.{name}"), size, why, "give another number"));
            }
            axes.push((name, *size));
        }
        if axes.is_empty() {
            let hint = "write `ranks: [rank: 1024]`";
            return Err(wrong("ranks", "[]", "a job has one axis at least", hint));
        }
        Ok(axes)
    }
}
