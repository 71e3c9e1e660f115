//! Rules of ASTRA-sim that no other system has: the key `compat`.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::Time;
use allrail_schedule::chunk::{Cut, Loads};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{field, tag};
use crate::SimulateError;

/// Rules of ASTRA-sim that no other system has.
///
/// Results under them can be held against its own. The reader of its files writes them; left out, nothing here changes a
/// result.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Compat {
    /// How a collective is cut into `schedule.chunks`. `even`: parts that differ by one byte at most. `rest`,
    /// as 1.0 does: parts of the size divided by `chunks`, rounded down, and the rest as one more. `full`, as
    /// 2.x does: the same, and the last part is padded to the size of the others. A part of an all-gather is what
    /// its NPUs bring.
    pub cut: Cut,
    /// Where Themis' load tracker starts: at each dimension's `fixed_delay`, as the paper says, or at `zero`.
    pub loads: Loads,
    /// Of a workload: what its communicators do where they meet on a dimension. Every process group has one for
    /// its collectives and one for its messages. `share`: they take turns, chunk by chunk, for equal times.
    /// `queue`: all wait in one queue.
    pub communicators: Communicators,
    /// Of a workload in `links`: process groups smaller than the job run one algorithm over all their
    /// ranks in order, whatever dimensions these differ on.
    pub groups: Option<GroupSchedule>,
    /// Of a workload: when an NPU begins what is ready. `at_once`, or `in_turn`: one communication after the other
    /// (receives aside), and one delay, of those that are ready the one that stands first.
    pub issue: Issue,
    /// Of a workload in `links`: what a message between two ranks waits for at either end;
    /// `schedule.endpoint_delay` if left out, as messages of collectives do.
    #[schemars(with = "Option<Time>")]
    pub message_endpoint_delay: Option<Time>,
}

impl Compat {
    /// Refuses what only steps have.
    ///
    /// # Errors
    /// Names the key.
    pub(crate) fn check_without_workload(&self) -> Result<(), SimulateError> {
        let delay =
            self.message_endpoint_delay.map(|delay| ("message_endpoint_delay", delay.to_string()));
        let issue = (self.issue != Issue::default()).then(|| ("issue", tag(&self.issue)));
        let Some((key, value)) = delay.or(issue) else { return Ok(()) };
        let hint = "leave it out, or write a `workload` instead";
        Err(field(format!("compat.{key}"), value, "only a `workload` has it", hint))
    }
}

/// What process groups smaller than the job run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupSchedule {
    /// The algorithm of a kind of collective; `ring_unidirectional` where none is named.
    pub algorithms: BTreeMap<Operation, String>,
    /// In place of the schedule's.
    pub endpoint_delay: Time,
}

/// What communicators do where they meet on a dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "what communicators do"))]
pub enum Communicators {
    /// They take turns, for equal times.
    #[default]
    Share,
    /// All wait in one queue.
    Queue,
}

/// When an NPU begins what is ready and does not compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a rule of issue"))]
pub enum Issue {
    /// All at once.
    #[default]
    AtOnce,
    /// One after the other, in the order of the graph's nodes.
    InTurn,
}
