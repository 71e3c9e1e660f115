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

use std::collections::BTreeMap;
use std::path::PathBuf;

use allrail_collective::algorithm::{self, OwnPrograms};
use allrail_collective::{Algorithm, CollectivePlan};
use allrail_core::{Bytes, Time, counted, either};
use allrail_fabric::{Dimension, Fabric};
use allrail_schedule::tensor::{self, TensorParameters};
use allrail_schedule::{Algorithms, Order, chunk, queue};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::coordination::Coordination;
use crate::settings::{self, DimensionSettings, TensorKeys, Timeouts};
use crate::{RuntimeError, Settings, interface, partition, plans};

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
    fn keys(&self) -> TensorKeys {
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
const AUTO: &str = "auto";

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

/// What a job file cannot say: who reads it, and what the files that it names hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Here {
    /// This rank.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// Its number among those of its host.
    pub local_rank: u32,
    /// Whether all ranks reach each other over loopback.
    pub one_host: bool,
    /// The fabric that the file names.
    pub fabric: Option<Fabric>,
    /// The plans in the file that it names.
    pub plans: Vec<CollectivePlan>,
    /// The secret, in hexadecimal.
    pub secret: Option<String>,
    /// What a step exchanges, alike on all ranks.
    pub bytes: Option<Bytes>,
    /// The name of the job.
    pub job: String,
}

impl Here {
    /// Reads it.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] where it is malformed, such as a plan of another version.
    pub fn from_json(text: &str) -> Result<Self, RuntimeError> {
        serde_json::from_str(text).map_err(|error| malformed(&error))
    }
}

fn malformed(error: &serde_json::Error) -> RuntimeError {
    let hint = "`allrail schema job` prints what is taken where";
    RuntimeError::setting("job", "...", error.to_string(), hint)
}

/// Keys that each host may have otherwise.
const OF_A_HOST: [&str; 6] = ["interfaces", "port", "secret", "pin", "flight_recorder", "trace"];

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

    /// What must be alike on all ranks, by the name of the key: the file with its defaults, but for what each
    /// host has otherwise; the fabric and the plans that it names; the version of this build.
    ///
    /// # Errors
    /// None in practice: all of it is plain data.
    pub fn alike(&self, here: &Here) -> Result<BTreeMap<String, Value>, RuntimeError> {
        let mut tree = serde_json::to_value(self).map_err(|error| malformed(&error))?;
        if let Some(keys) = tree.as_object_mut() {
            keys.retain(|key, _| !OF_A_HOST.contains(&key.as_str()));
            keys.insert(
                "fabric".to_owned(),
                json!(here.fabric.as_ref().map(|one| &one.dimensions)),
            );
            let plans = (!here.plans.is_empty()).then(|| digest(&here.plans)).transpose()?;
            keys.insert("plan".to_owned(), json!(plans));
            if let Some(programs) = keys.get_mut("schedule").and_then(|one| one.get_mut("programs"))
            {
                *programs = json!(digest(&*programs)?);
            }
            keys.insert("allrail".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        }
        let mut flat = BTreeMap::new();
        flatten(String::new(), tree, &mut flat);
        Ok(flat)
    }

    /// What a node of the rank that is [`Here`] is made with.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] names the key of the file.
    pub fn settings(&self, here: Here) -> Result<Settings, RuntimeError> {
        let dimensions = if here.ranks > 1 { self.dimensions(&here)? } else { Vec::new() };
        let on_a_network = dimensions.iter().any(|one| !interface::is_loopback(&one.interface));
        if on_a_network && here.secret.is_none() {
            let why = "ranks reach each other over a network, and whoever is on it could take part";
            let hint = "`openssl rand -hex 32 > job.secret && chmod 600 job.secret`, copy it to every \
                        host, and name it in `secret` or `ALLRAIL_SECRET_FILE`; on a network of your own \
                        `secret: store` will do";
            return Err(RuntimeError::setting("secret", "none", why, hint));
        }
        let schedule = self.schedule.clone();
        let JobSchedule { policy, chunks, smallest_chunk, threshold, send_ahead, .. } = schedule;
        let JobSchedule { algorithms, programs, tensor, coordination, .. } = schedule;
        if let Some(said) = &algorithms {
            check_algorithms(said, &programs, &dimensions)?;
        }
        if threshold == 0 {
            let why = "the size of a chunk is divided by it";
            let hint = "16 is the paper's";
            return Err(RuntimeError::setting("schedule.threshold", threshold, why, hint));
        }
        if chunks == 0 {
            let why = "an exchange has one chunk at least";
            return Err(RuntimeError::setting(
                "schedule.chunks",
                chunks,
                why,
                "16 is a good start",
            ));
        }
        let mut settings = Settings {
            rank: here.rank,
            ranks: here.ranks,
            dimensions,
            order: self.order(&here)?,
            policy,
            chunks,
            smallest_chunk,
            threshold,
            algorithms,
            programs,
            plans: here.plans,
            tensor_keys: tensor.keys(),
            // Whoever ranks tensors outside hands them over in that order.
            tensor: tensor.plugin.map_or(tensor.policy, |_| settings::bytescheduler()),
            coordination,
            partition: None,
            pack: settings::pack(),
            send_ahead,
            shared_memory: self.shared_memory,
            tls: self.tls,
            frame_checks: self.checks.frames,
            pin: self.pin.clone(),
            flight_recorder: self.flight_recorder.clone(),
            early: self.early,
            timeouts: self.timeouts,
            secret: here.secret,
            job: here.job,
            epoch: 0,
            group: 0,
            records: settings::records(),
            named_calls: false,
            forget_after: settings::forget_after(),
            elsewhere: false,
        };
        settings.check().map_err(as_in_the_file)?;
        settings.partition = partition_of(&settings, &tensor.partition, here.bytes)?;
        settings.pack = pack_of(&settings, &tensor.pack)?;
        let parameters: TensorParameters = settings.tensor_parameters();
        parameters.policy().map_err(|error| RuntimeError::schedule(&error))?;
        if let Some(coordination) = &settings.coordination {
            coordination.resolved().map_err(|error| RuntimeError::schedule(&error))?;
        }
        Ok(settings)
    }

    fn order(&self, here: &Here) -> Result<Order, RuntimeError> {
        let wrong = |error| RuntimeError::schedule(&error);
        match &self.schedule.order {
            Some(name) => queue::named(name).map_err(wrong),
            None if !here.plans.is_empty() => Ok(Order::PLANNED),
            None => {
                let known = chunk::Plugins::default();
                Ok(known.named(&self.schedule.policy).map_err(wrong)?.default_order())
            }
        }
    }

    fn dimensions(&self, here: &Here) -> Result<Vec<DimensionSettings>, RuntimeError> {
        let fabric = match (&here.fabric, here.plans.first()) {
            (Some(fabric), _) => fabric.clone(),
            (None, Some(plan)) => plan.fabric.clone(),
            (None, None) => usual(here),
        };
        fabric.validate().map_err(|error| {
            RuntimeError::setting(error.field, error.value, error.why, error.hint)
        })?;
        let ranks = u64::from(here.ranks);
        if fabric.npus() != ranks {
            let sizes: Vec<String> = fabric.dimensions.iter().map(|d| d.size.to_string()).collect();
            let field = if here.fabric.is_some() { "fabric" } else { "plan.fabric" };
            let why =
                format!("it joins {}, and this job has {ranks}", counted(fabric.npus(), "rank"));
            let hint = format!(
                "start {} {process}, or give a fabric whose sizes multiply to {ranks}",
                fabric.npus(),
                process = either(&fabric.npus(), "process", "processes")
            );
            return Err(RuntimeError::setting(field, sizes.join("×"), why, hint));
        }
        let count = fabric.dimensions.len();
        let interfaces = match self.interfaces.len() {
            0 if here.one_host => vec!["127.0.0.1".to_owned(); count],
            0 => {
                let why = "ranks are on several hosts, and nothing says how they reach each other";
                let hint = "name the interface that leads there, `interfaces: [eth0]`, or its network, \
                            `interfaces: [10.0.0.0/8]`";
                return Err(RuntimeError::setting("interfaces", "none", why, hint));
            }
            1 => vec![self.interfaces[0].clone(); count],
            given if given == count => self.interfaces.clone(),
            given => {
                let why = format!(
                    "it names {given}, and the fabric has {count}",
                    count = counted(count, "dimension")
                );
                let hint = "one for each dimension, or one for all";
                let value = self.interfaces.join(", ");
                return Err(RuntimeError::setting("interfaces", value, why, hint));
            }
        };
        (0..)
            .zip(fabric.dimensions.iter().zip(interfaces))
            .map(|(d, (one, interface))| {
                let place = if self.interfaces.len() == 1 { 0 } else { d };
                let address = interface::address(&format!("interfaces[{place}]"), &interface)?;
                self.dimension(here, (d, count), one, address.to_string())
            })
            .collect()
    }

    fn dimension(
        &self,
        here: &Here,
        (d, count): (usize, usize),
        one: &Dimension,
        interface: String,
    ) -> Result<DimensionSettings, RuntimeError> {
        if one.in_network_reduction {
            let field = format!("fabric.dimensions[{d}].in_network_reduction");
            let why = "the ranks of a job sum themselves";
            return Err(RuntimeError::setting(field, true, why, "leave it out"));
        }
        let port = match self.port {
            None => 0,
            Some(first) => {
                let port = u64::from(here.local_rank) * count as u64 + d as u64 + u64::from(first);
                let usable = u16::try_from(port).ok().filter(|_| first > 0);
                usable.ok_or_else(|| {
                    let why =
                        format!("dimension {d} of local rank {} gets {port}", here.local_rank);
                    RuntimeError::setting("port", first, why, "ports are 1 to 65535, such as 29600")
                })?
            }
        };
        let Dimension { kind, size, links, bandwidth, latency, .. } = *one;
        let fastest = one.fastest.clone();
        Ok(DimensionSettings { size, interface, port, bandwidth, latency, kind, links, fastest })
    }
}

/// What long values are compared by.
fn digest(value: &impl Serialize) -> Result<String, RuntimeError> {
    let text = serde_json::to_string(value).map_err(|error| malformed(&error))?;
    Ok(Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Refuses algorithms that are not known, are not one for each dimension, or are for other ranks.
fn check_algorithms(
    said: &Algorithms,
    programs: &OwnPrograms,
    dimensions: &[DimensionSettings],
) -> Result<(), RuntimeError> {
    for name in said.named() {
        programs.named(name).map_err(|error| {
            let known: Vec<&str> = algorithm::ALL.iter().map(|one| one.tag()).collect();
            let hint = format!("one of {}", known.join(", "));
            RuntimeError::setting("schedule.algorithms", name, error.to_string(), hint)
        })?;
    }
    let each = said.each(dimensions.len()).map_err(|error| RuntimeError::schedule(&error))?;
    for (d, (choice, dimension)) in each.into_iter().zip(dimensions).enumerate() {
        let Some(name) = choice.named() else { continue };
        let only = programs.named(&name).ok().and_then(Algorithm::ranks);
        if let Some(only) = only.filter(|only| *only != dimension.size) {
            let size = dimension.size;
            let why = format!(
                "it is a program for {only}, and dimension {d} joins {size}",
                only = counted(only, "rank")
            );
            let hint = format!(
                "name one that is written for {size}, or `auto`",
                size = counted(size, "rank")
            );
            let field = format!("schedule.algorithms[{d}]");
            return Err(RuntimeError::setting(field, name, why, hint));
        }
    }
    Ok(())
}

/// The same about the key of the file.
fn as_in_the_file(error: RuntimeError) -> RuntimeError {
    match error {
        RuntimeError::Setting { field, value, why, hint } if field == "send_ahead" => {
            RuntimeError::setting("schedule.send_ahead", value, why, hint)
        }
        other => other,
    }
}

/// A fabric where nobody has told of any: plans depend on it, results do not.
fn usual(here: &Here) -> Fabric {
    let (bandwidth, latency) =
        if here.one_host { ("20 Gb/s", "20 us") } else { ("10 Gb/s", "50 us") };
    let dimension = json!({
        "kind": "switch", "size": here.ranks, "bandwidth": bandwidth, "latency": latency,
    });
    let dimension = serde_json::from_value(dimension).expect("it is one");
    Fabric {
        memory_bandwidth: None,
        window: None,
        name: "usual".to_owned(),
        dimensions: vec![dimension],
    }
}

fn partition_of(
    settings: &Settings,
    wanted: &str,
    bytes: Option<Bytes>,
) -> Result<Option<Bytes>, RuntimeError> {
    let policy = tensor::named(&settings.tensor).map_err(|error| RuntimeError::schedule(&error))?;
    if wanted != AUTO {
        return size_of("schedule.tensor.partition", wanted).map(Some);
    }
    if settings.ranks == 1 || !policy.reads().contains(&"partition") {
        return Ok(None);
    }
    match plans::largest_all_reduce(settings) {
        Some(size) => Ok(Some(size)),
        None => partition::best(settings, bytes).map(Some),
    }
}

/// A pack is no larger than a piece, or it would be cut again; nor than what costs as much to copy as to send
/// apart.
fn pack_of(settings: &Settings, wanted: &str) -> Result<Bytes, RuntimeError> {
    if wanted != AUTO {
        return size_of("schedule.tensor.pack", wanted);
    }
    Ok(settings.partition.map_or(settings::pack(), |piece| piece.min(settings::pack())))
}

fn size_of(field: &str, wanted: &str) -> Result<Bytes, RuntimeError> {
    wanted.parse::<Bytes>().map_err(|error| {
        let hint = format!("`auto`, or a size: {}", error.hint);
        RuntimeError::setting(field, wanted, error.why, hint)
    })
}

/// Every value by its path, such as `timeouts.link`.
fn flatten(path: String, value: Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(path, value, into);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, value) in items.into_iter().enumerate() {
                flatten(format!("{path}[{i}]"), value, into);
            }
        }
        other => drop(into.insert(path, other)),
    }
}

#[cfg(test)]
mod tests;
