//! The job file, `allrail.yaml`: its keys with their defaults, and the settings of a node that follow from them.
//!
//! The file is alike for all ranks of a job; what it cannot say is [`Here`]. Whoever reads it (Python) finds the
//! fabric, the plan and the secret that it names.
//!
//! ```
//! use allrail_runtime::job::{Here, Job};
//! let job = Job::from_json(r#"{"schema_version": 1, "schedule": {"chunks": 4}}"#)?;
//! let here = Here { rank: 1, ranks: 4, one_host: true, ..Here::default() };
//! let settings = job.settings(here)?;
//! assert_eq!((settings.dimensions[0].size, settings.chunks), (4, 4));
//! # Ok::<(), allrail_runtime::RuntimeError>(())
//! ```

mod alike;
mod here;
mod node_settings;

use std::path::PathBuf;

use allrail_collective::algorithm::OwnPrograms;
use allrail_core::{Bytes, Time};
use allrail_schedule::Algorithms;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::here::Here;

use self::here::malformed;
use crate::coordination::Coordination;
use crate::error::RuntimeError;
use crate::settings::{self, TensorKeys, Timeouts};

/// The version of the file's schema.
pub const SCHEMA_VERSION: u32 = 1;

/// How a training job exchanges its gradients: the content of `allrail.yaml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Always 1.
    pub schema_version: u32,
    /// The network between the ranks, as in a scenario: a preset's name, a file, or the fabric itself. The
    /// sizes of its dimensions multiply to the number of ranks; ranks that are neighbours are so on the first
    /// dimension. Left out: that of `plan`, else one switch for all ranks, of 20 Gb/s and 20 us on one host, 10
    /// Gb/s and 50 us over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "text_or_keys")]
    pub fabric: Option<Value>,
    /// Where a rank reaches each dimension, one for all or one for each: an interface's name (`eth0`), an
    /// address, or a network (`10.0.0.0/8`: the address of this host in it). Left out: loopback, which joins
    /// the ranks of one host only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// The first port to listen on: the rank with the local rank `l` listens on `port + l × dimensions + d` for
    /// dimension `d`. Left out: any free ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = u16::MAX))]
    pub port: Option<u32>,
    /// A file that `allrail plan --out` wrote, for this fabric. Its plans are carried out as they are: each for
    /// its `sizes`, or where it names none from half its own size on, up to those of the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub plan: Option<String>,
    /// How exchanges are scheduled, as in a scenario.
    #[serde(default)]
    pub schedule: JobSchedule,
    /// What carries gradients: `native` is allrail's own, `c10d` a backend of torch.distributed. `auto`:
    /// `native` for parameters in host memory, where all ranks are on one host or `interfaces` says how they
    /// reach each other.
    #[serde(default)]
    pub transport: Transport,
    /// How `allrail.torch` exchanges gradients: `overlap`, cut and by priority, into the next forward pass;
    /// `reduce_scatter`, the same with all-gathers after all reduce-scatters; `barrier`, whole and in the
    /// order of readiness, each backward pass ends with all; `plain`, in buckets over torch.distributed.
    /// `auto` tries each and keeps the fastest.
    #[serde(default)]
    pub exchange: Exchange,
    /// What makes gradients smaller on their way: `fp16`, `bf16`, `{kind: top_k, share: 0.01}`,
    /// `{kind: power_sgd, rank: 4}`, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "text_or_keys")]
    pub compression: Option<Value>,
    /// Above 1, ranks step with their own gradients, and average their parameters after every so many steps.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub every: u32,
    /// How many ranks a step of `allrail.torch` does not wait for: gradients are averaged over those that come in
    /// time, later ones are dropped. They travel whole after the backward pass.
    #[serde(default)]
    pub backup_workers: u32,
    /// Whether parameters that have made the step under way are given back what they were before it when a
    /// rank is lost. Costs a copy of parameters and optimizer state.
    #[serde(default)]
    pub undo: bool,
    /// Whether plans are made anew with what is measured, on all ranks at once, when one of several
    /// dimensions of `native` has become slow. Of no effect with `plan`, whose plans are carried out as they are.
    #[serde(default)]
    pub replan: bool,
    /// Whether ranks on one host exchange through memory that both have, rather than over loopback.
    #[serde(default = "settings::yes")]
    pub shared_memory: bool,
    /// Whether what goes over a network does so inside TLS 1.3; between ranks of one host memory is used.
    #[serde(default)]
    pub tls: bool,
    /// What is checked of what ranks send each other, and of what they hold.
    #[serde(default)]
    pub checks: Checks,
    /// The CPU that the thread of each dimension runs on, `null` for any; one for each dimension. Left out:
    /// any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<Option<u32>>,
    /// A folder into which every rank that is left writes its last events when a fault ends the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub flight_recorder: Option<PathBuf>,
    /// A folder into which every rank writes, when it ends, what a trace is made of; `ALLRAIL_TRACE` goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub trace: Option<PathBuf>,
    /// How much is kept of what peers send before this rank needs it, beyond the size of all its tensors.
    #[serde(default = "settings::early")]
    pub early: Bytes,
    /// How long ranks wait for each other.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// A file that only the ranks of this job can read, with the same 32 or more hexadecimal digits on every
    /// host; `ALLRAIL_SECRET_FILE` goes first. `store` draws one; where ranks are on several hosts it goes
    /// through the job's own store, which whoever reaches that can read, with a warning. Needed on several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub secret: Option<String>,
}

fn one() -> u32 {
    1
}

fn text_or_keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object" }] })
}

/// How exchanges are scheduled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobSchedule {
    /// Which dimension a chunk visits next.
    pub policy: String,
    /// Which stage a dimension runs next. Left out: that of the plan where there is one (`planned`), else the
    /// one that suits `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub order: Option<String>,
    /// Into how many chunks an exchange is cut at most.
    #[schemars(range(min = 1))]
    pub chunks: u32,
    /// No chunk is cut to less than this.
    pub smallest_chunk: Bytes,
    /// `themis`: the baseline's order is kept while loads differ by less than the time of a chunk's 1/threshold.
    #[schemars(range(min = 1))]
    pub threshold: u32,
    /// How much may wait in a socket that the link has not taken: less lets what is urgent overtake sooner,
    /// more asks for fewer calls.
    pub send_ahead: Bytes,
    /// The algorithm of each dimension, or `auto`, for all or in the list: for every size the fastest, as in a
    /// scenario. Left out: the same, but another than the usual one only where it is predicted to be a tenth
    /// quicker, or a dimension joins few ranks. An XML file is a program of MSCCL: it is taken for its
    /// operation, and its sizes where it names any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Algorithms")]
    pub algorithms: Option<Algorithms>,
    /// Programs that `algorithms` name, by name: those of XML files stand here when these were read.
    #[serde(skip_serializing_if = "OwnPrograms::is_empty")]
    pub programs: OwnPrograms,
    /// Which part of which gradient goes next.
    pub tensor: JobTensor,
    /// How ranks agree which gradients are ready everywhere, with `transport: c10d`. Left out: on each event, at
    /// once, and after five steps in the same order not at all until it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Coordination")]
    pub coordination: Option<Coordination>,
}

impl Default for JobSchedule {
    fn default() -> Self {
        Self {
            policy: settings::baseline(),
            order: None,
            chunks: settings::sixteen(),
            smallest_chunk: settings::smallest_chunk(),
            threshold: settings::sixteen(),
            send_ahead: settings::send_ahead(),
            algorithms: None,
            programs: OwnPrograms::default(),
            tensor: JobTensor::default(),
            coordination: None,
        }
    }
}

/// What is checked while a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Checks {
    /// Whether every frame carries a checksum (CRC-32C) of its elements over links that do not protect them:
    /// TLS does, and memory of one host is not left. A flipped bit ends the job, and both ranks are named.
    pub frames: bool,
    /// After how many steps `allrail.torch` compares a hash of all parameters between ranks, 0 for never. The
    /// first tensor that differs, and the ranks that differ, are named. Of no effect with `every` above 1.
    pub parameters: u32,
}

impl Default for Checks {
    fn default() -> Self {
        Self { frames: true, parameters: 100 }
    }
}

/// Which part of which gradient goes next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobTensor {
    /// The tensor scheduler.
    pub policy: String,
    /// A Python file that registers the tensor scheduler that `policy` names: rank 0 asks it for the order of
    /// the gradients of `allrail.torch` after the first backward pass. It must return an order; `partition` cuts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub plugin: Option<String>,
    /// Tensors are cut into pieces no larger, such as `256 KiB`. `auto`: the size of the largest plan for
    /// all-reduces in `plan`; else what suits the fabric and the model.
    pub partition: String,
    /// Small gradients travel together in packs of so many bytes at most, such as `256 KiB`; `0 B` sends each
    /// alone. `auto`: as large as a piece, and 1 MiB at most.
    pub pack: String,
    /// `bytescheduler`: how much may be in flight. It takes ranks that agree on one order, `transport: c10d`,
    /// where it is 16 MiB if left out; elsewhere `schedule.send_ahead` bounds what waits, on each rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bytes")]
    pub credit: Option<Bytes>,
    /// `ddp`: a bucket is closed once it holds as much. 25 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bytes")]
    pub bucket: Option<Bytes>,
    /// `ddp`: the first bucket. 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bytes")]
    pub first_bucket: Option<Bytes>,
    /// `fusion`: no more is packed together, unless a tensor or a group alone exceeds it. 64 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bytes")]
    pub threshold: Option<Bytes>,
    /// `fusion`: how often what is ready is packed. 1 ms; 0 packs what becomes ready at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub cycle: Option<Time>,
    /// `fusion`: into how many groups gradients are cut, complete or not at all. 0: each on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub groups: Option<u32>,
    /// Whether each backward pass ends with all gradients, whatever the policy. Left out: as `exchange` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub barrier: Option<bool>,
}

impl Default for JobTensor {
    fn default() -> Self {
        Self {
            policy: settings::bytescheduler(),
            plugin: None,
            partition: AUTO.to_owned(),
            pack: AUTO.to_owned(),
            credit: None,
            bucket: None,
            first_bucket: None,
            threshold: None,
            cycle: None,
            groups: None,
            barrier: None,
        }
    }
}

impl JobTensor {
    pub(super) fn keys(&self) -> TensorKeys {
        TensorKeys {
            credit: self.credit,
            bucket: self.bucket,
            first_bucket: self.first_bucket,
            threshold: self.threshold,
            cycle: self.cycle,
            groups: self.groups,
        }
    }
}

/// The word for what is chosen.
pub(super) const AUTO: &str = "auto";

/// What carries gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Whatever fits.
    #[default]
    Auto,
    /// This crate.
    Native,
    /// A backend of torch.distributed.
    C10d,
}

/// How gradients are exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// All-reduces by priority, across the barrier.
    #[default]
    Overlap,
    /// The same, in the order `gather_late`.
    ReduceScatter,
    /// First come, first served, and all of them before the optimizer's step.
    Barrier,
    /// As torch.distributed would.
    Plain,
    /// The fastest of these.
    Auto,
}

impl Job {
    /// Reads it.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] where it is not one; whoever knows the lines of the file checks its form by
    /// the [`schema`](Self::schema) before.
    pub fn from_json(text: &str) -> Result<Self, RuntimeError> {
        let job: Self = serde_json::from_str(text).map_err(|error| malformed(&error))?;
        if job.schema_version != SCHEMA_VERSION {
            let why = "this version reads schema 1 only";
            let hint = "write `schema_version: 1`";
            return Err(RuntimeError::setting("schema_version", job.schema_version, why, hint));
        }
        Ok(job)
    }

    /// The JSON schema of the file.
    #[must_use]
    pub fn schema() -> Schema {
        schemars::schema_for!(Job)
    }
}

#[cfg(test)]
mod tests;
