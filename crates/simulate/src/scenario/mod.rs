//! The resolved scenario: what is simulated, on which network, by which network model.
//!
//! One [`Scenario`] for every [`JobKind`] of job. Plain `Scenario` has a job of any kind; what belongs to one kind alone
//! takes a scenario of that kind, such as [`TrainingScenario`]. The files are the keys of a scenario's
//! file; here is what they say, and what can be checked without building anything. `crate::read` reads them.

mod collective;
mod compat;
mod messages;
mod network_model_kind;
mod placement;
mod schedule;
mod topology;
mod traffic;
mod training;

use allrail_fabric::Fabric;
use allrail_network::packets::Settings;
use serde::Serialize;

use crate::SimulateError;
pub(crate) use crate::error::field;

pub use collective::Collective;
pub use compat::{Communicators, Compat, GroupSchedule, Issue};
pub use messages::{Algorithms, AllToAll, MessageSettings};
pub(crate) use network_model_kind::Network;
pub use network_model_kind::{NETWORK_MODELS, NetworkModelEntry, NetworkModelKind};
pub use placement::Placement;
pub(crate) use schedule::USUAL_CHUNKS;
pub use schedule::{AcceptPlan, CollectiveOrder, Schedule};
pub use topology::Topology;
pub(crate) use traffic::{COUNT, SEGMENTS, WINDOW};
pub use traffic::{Pattern, Traffic, packets_schema};
pub use training::{Part, Training, WhatIf};

/// A simulation's whole input.
#[derive(Clone, Debug)]
pub struct Scenario<J = Job> {
    /// The dimensions that planners see: of a topology those that were read off it, of a workload those of its
    /// NPUs. Traffic is not planned and has none.
    pub fabric: Fabric,
    /// The topology, where the fabric is one.
    pub topology: Option<Topology>,
    /// How collectives are scheduled.
    pub schedule: Schedule,
    /// Rules of ASTRA-sim.
    pub compat: Compat,
    /// The network model.
    pub network_model: NetworkModelKind,
    /// Switches and packets, in the network model `packets`.
    pub packets: Settings,
    /// How communication becomes messages.
    pub messages: MessageSettings,
    /// Of everything random; it is in every result.
    pub seed: u64,
    /// What is simulated.
    pub job: J,
}

/// What is simulated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Job {
    /// Collectives that share the fabric.
    Collectives(Vec<Collective>),
    /// Training steps.
    Workload(Box<Training>),
    /// Traffic on a graph fabric.
    Traffic(Traffic),
}

/// A scenario of collectives.
pub type CollectiveScenario = Scenario<Vec<Collective>>;
/// A scenario of training steps.
pub type TrainingScenario = Scenario<Training>;
/// A scenario of traffic.
pub type TrafficScenario = Scenario<Traffic>;

impl<J> Scenario<J> {
    /// Its job, and the same scenario with another.
    #[must_use]
    pub fn swap<K>(self, job: K) -> (J, Scenario<K>) {
        let Self {
            fabric, topology, schedule, compat, network_model, packets, messages, seed, ..
        } = self;
        let rest = Scenario {
            fabric,
            topology,
            schedule,
            compat,
            network_model,
            packets,
            messages,
            seed,
            job,
        };
        (self.job, rest)
    }

    /// Its job, and the rest of it.
    #[must_use]
    pub fn split(self) -> (J, Scenario<()>) {
        self.swap(())
    }
}

impl Scenario<()> {
    /// The same with a job.
    #[must_use]
    pub fn with<J>(self, job: J) -> Scenario<J> {
        self.swap(job).1
    }
}

/// A kind of job, or [`Job`] itself, which is of any.
pub trait JobKind: Sized {
    /// Takes a job of this kind.
    ///
    /// # Errors
    /// It is of another: names its key.
    fn of(job: Job) -> Result<Self, SimulateError>;
}

impl JobKind for Job {
    fn of(job: Job) -> Result<Self, SimulateError> {
        Ok(job)
    }
}

impl JobKind for Vec<Collective> {
    fn of(job: Job) -> Result<Self, SimulateError> {
        match job {
            Job::Collectives(collectives) => Ok(collectives),
            other => Err(refused(&other, "collectives")),
        }
    }
}

impl JobKind for Training {
    fn of(job: Job) -> Result<Self, SimulateError> {
        match job {
            Job::Workload(training) => Ok(*training),
            other => Err(refused(&other, "a workload")),
        }
    }
}

impl JobKind for Traffic {
    fn of(job: Job) -> Result<Self, SimulateError> {
        match job {
            Job::Traffic(traffic) => Ok(traffic),
            other => Err(refused(&other, "traffic")),
        }
    }
}

/// What refuses a job where another is needed.
fn refused(job: &Job, needed: &str) -> SimulateError {
    let (key, name) = match job {
        Job::Collectives(_) => ("collective", "collectives"),
        Job::Workload(_) => ("workload", "a workload"),
        Job::Traffic(_) => ("traffic", "traffic"),
    };
    let hint = "take another scenario; `simulate` takes every kind";
    field(key, name, format!("here it has to have {needed}"), hint)
}

/// What an enum's value is called in files.
pub(crate) fn tag<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .expect("a tag is text")
}
