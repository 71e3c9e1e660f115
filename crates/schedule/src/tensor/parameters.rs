//! The key `schedule.tensor`: a policy and its parameters, checked.

use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Exchange, Tensor, TensorPlugins, TensorPolicy, TensorScheduler};
use crate::error::ScheduleError;

const MIB: u64 = 1 << 20;

/// How gradients are scheduled. What is left out takes its default; a key that the policy does not
/// read is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TensorParameters {
    /// Which tensor scheduler.
    pub policy: String,
    /// `priority`, `bytescheduler`, `tic`, `tac`: no piece of a tensor is larger. 4 MiB (a million parameters of
    /// four bytes, ByteScheduler's default before tuning); `priority`: 200 KB (P3's 50,000
    /// parameters).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<Bytes>,
    /// `bytescheduler`, `tic`, `tac`: how much may be in flight; with servers, of each worker's pushes and pulls each.
    /// 16 MiB. A single partition may exceed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<Bytes>,
    /// `ddp`: a bucket is closed once it holds as much. 25 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bytes>,
    /// `ddp`: the first bucket, so that communication starts early. 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bucket: Option<Bytes>,
    /// `fusion`: no more is packed together, unless a tensor or a group alone exceeds it. 64 MiB; 0
    /// packs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Bytes>,
    /// `fusion`: how often what is ready is packed. 1 ms. 0 packs what becomes ready at one time:
    /// for a coordination that has cycles of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Time>,
    /// `fusion`: the tensors, in the order of the forward pass, are cut into so many groups of about
    /// as many tensors, complete or not at all. 0: no groups but those of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Whether all layers of the next iteration wait for all tensors of this one. Left out: as the
    /// policy has it (`priority` and `bytescheduler` cross the barrier). PyTorch and TensorFlow
    /// have one, MXNet has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<bool>,
    /// For how long every operation occupies its first server (a dimension, a link) before its
    /// bytes do: launch, synchronisation, acknowledgement.
    pub start_overhead: Time,
    /// The same, once for each piece of an operation: cutting, copying, bookkeeping.
    pub partition_overhead: Time,
    /// How gradients travel.
    pub exchange: Exchange,
    /// How many workers a step does not wait for: it goes on once the gradients of all the others are there,
    /// averages those, and drops what comes later (backup workers; Chen et al. 2016). A worker is a rank, with
    /// `exchange: parameter_server` a machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub backup_workers: u32,
    /// With `exchange: parameter_server`: the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Servers>,
    /// Tensor schedulers that `policy` may name beside the crate's own.
    #[serde(skip)]
    pub plugins: TensorPlugins,
}

/// The parameter servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Servers {
    /// Number of servers; of `placement: byteps`, of those on machines of their own. As many as workers if
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Whether servers run on the workers' machines and share their links. Otherwise they have machines
    /// and links of their own.
    pub colocated: bool,
    /// Which server keeps which partition.
    #[serde(skip_serializing_if = "PartitionPlacement::is_default")]
    pub placement: PartitionPlacement,
    /// Whether a server waits for all workers before it hands out a sum (`true`), or applies each push as
    /// it arrives and answers at once (`false`: MXNet's `dist_async`).
    #[serde(skip_serializing_if = "is_true")]
    pub synchronous: bool,
    /// A partition, or whole tensor, of at least this size is split over all servers, a smaller one lies on
    /// one of them. 4 MB if left out: MXNet's bound of a million parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub big_array: Option<Bytes>,
    /// Bandwidth of the link of a server's own machine, each way; as the workers' if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Where the NPUs of a machine are summed before a push, when gradients span several dimensions.
    #[serde(skip_serializing_if = "LocalSum::is_default")]
    pub local: LocalSum,
    /// Bandwidth between the NPUs of a machine and its memory, each way, all together: crossed before a
    /// push and after a pull. Left out: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Bandwidth>,
    /// With `local: host`: how many bytes of its NPUs' gradients a machine's processors sum in a second.
    /// Left out: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_sum: Option<Bandwidth>,
    /// How many bytes of what workers push one server sums in a second, a message at a time. Left out:
    /// unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Bandwidth>,
    /// How many bytes of what workers pull one server copies in a second before it sends them, in the
    /// thread that sums. Left out: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<Bandwidth>,
    /// Whether links serve what comes first, whatever its priority, and the request of a pull waits
    /// there behind pushes, the word that a push is over behind pulls: ps-lite's connections.
    /// Otherwise links know priorities, and requests and such words take no time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_order: bool,
}

/// Which server keeps which partition. Partitions are numbered in the order of the forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartitionPlacement {
    /// Partition `i` on server `i mod S` (P3's slices).
    #[default]
    InTurn,
    /// Partition `i` on server `9973 i mod S` (MXNet's keys).
    Hash,
    /// A server on every worker's machine and `count` on machines of their own; partitions go to them in
    /// the shares at which all links are equally busy (BytePS, OSDI'20, §4.1).
    Byteps,
}

impl PartitionPlacement {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Where the NPUs of a machine are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LocalSum {
    /// A reduce-scatter among the NPUs before a push, an all-gather after a pull (BytePS, MXNet's
    /// `dist_device_sync`).
    #[default]
    Npus,
    /// Every NPU brings its whole gradient to the machine's memory and takes the whole result from there
    /// (MXNet's `dist_sync`).
    Host,
}

impl LocalSum {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_true(value: &bool) -> bool {
    *value
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            count: None,
            colocated: true,
            placement: PartitionPlacement::default(),
            synchronous: true,
            big_array: None,
            bandwidth: None,
            local: LocalSum::default(),
            host: None,
            host_sum: None,
            sum: None,
            copy: None,
            in_order: false,
        }
    }
}

impl Default for TensorParameters {
    fn default() -> Self {
        Self {
            policy: "fifo".to_owned(),
            partition: None,
            credit: None,
            bucket: None,
            first_bucket: None,
            threshold: None,
            cycle: None,
            groups: None,
            barrier: None,
            start_overhead: Time::ZERO,
            partition_overhead: Time::ZERO,
            exchange: Exchange::AllReduce,
            backup_workers: 0,
            servers: None,
            plugins: TensorPlugins::default(),
        }
    }
}

fn wrong(key: &str, value: impl std::fmt::Display, why: String, hint: &str) -> ScheduleError {
    ScheduleError::Field(FieldError::new(format!("schedule.tensor.{key}"), value, why, hint))
}

impl TensorParameters {
    /// The policy, once all parameters are checked.
    ///
    /// # Errors
    /// An unknown policy, a key that it does not read, a value out of range.
    pub fn policy(&self) -> Result<&dyn TensorPolicy, ScheduleError> {
        let policy = self.plugins.named(&self.policy)?;
        self.check_keys(policy)?;
        self.check_values()?;
        Ok(policy)
    }

    fn check_keys(&self, policy: &dyn TensorPolicy) -> Result<(), ScheduleError> {
        let text = |bytes: &Option<Bytes>| bytes.map(|bytes| bytes.to_string());
        let given = [
            ("partition", text(&self.partition)),
            ("credit", text(&self.credit)),
            ("bucket", text(&self.bucket)),
            ("first_bucket", text(&self.first_bucket)),
            ("threshold", text(&self.threshold)),
            ("cycle", self.cycle.map(|cycle| cycle.to_string())),
            ("groups", self.groups.map(|groups| groups.to_string())),
        ];
        for (key, value) in given {
            if let Some(value) = value
                && !policy.reads().contains(&key)
            {
                let readers: Vec<String> = super::ALL
                    .iter()
                    .filter(|other| other.reads().contains(&key))
                    .map(|other| format!("`{}`", other.tag()))
                    .collect();
                let hint = format!("leave it out, or use {}", readers.join(" or "));
                return Err(wrong(
                    key,
                    &value,
                    format!("`{}` does not read it", self.policy),
                    &hint,
                ));
            }
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), ScheduleError> {
        let zero = Some(Bytes::new(0));
        if self.partition == zero {
            let why = "a partition must hold a byte at least".to_owned();
            return Err(wrong("partition", "0 B", why, "for example `4 MiB`"));
        }
        if self.credit == zero {
            let why = "without credit nothing is ever sent".to_owned();
            return Err(wrong("credit", "0 B", why, "for example `16 MiB`"));
        }
        let hour = Time::from_us(3_600_000_000);
        for (key, value) in [
            ("cycle", self.cycle.unwrap_or_default()),
            ("start_overhead", self.start_overhead),
            ("partition_overhead", self.partition_overhead),
        ] {
            if value > hour {
                let why = "it is longer than an hour".to_owned();
                return Err(wrong(key, value, why, "for example `1 ms`"));
            }
        }
        let Some(servers) = &self.servers else { return Ok(()) };
        if self.exchange == Exchange::AllReduce {
            let why = "an all-reduce has no servers".to_owned();
            return Err(wrong("servers", "", why, "add `exchange: parameter_server`"));
        }
        if self.backup_workers > 0 && !servers.synchronous {
            let why = "servers that do not wait for all workers wait for none".to_owned();
            let hint = "leave it out, or `servers: {synchronous: true}`";
            return Err(wrong("backup_workers", self.backup_workers, why, hint));
        }
        if let Some(count @ (0 | 65_537..)) = servers.count {
            let why = "there are between 1 and 65,536 servers".to_owned();
            return Err(wrong("servers.count", count, why, "leave it out for one a worker"));
        }
        if servers.placement == PartitionPlacement::Byteps && !servers.colocated {
            let why = "BytePS has a server on every worker's machine".to_owned();
            let hint = "leave out `colocated`, or the placement";
            return Err(wrong("servers.placement", "byteps", why, hint));
        }
        let own = !servers.colocated || servers.placement == PartitionPlacement::Byteps;
        if let (Some(bandwidth), false) = (servers.bandwidth, own) {
            let why = "co-located servers share the workers' links".to_owned();
            return Err(wrong("servers.bandwidth", bandwidth, why, "add `colocated: false`"));
        }
        if let (Some(sum), LocalSum::Npus) = (servers.host_sum, servers.local) {
            let why = "the NPUs of a machine sum among themselves".to_owned();
            return Err(wrong("servers.host_sum", sum, why, "add `local: host`"));
        }
        Ok(())
    }

    /// A scheduler of these tensors.
    ///
    /// # Errors
    /// As [`TensorParameters::policy`]; or the parameters do not fit the tensors.
    pub fn scheduler(&self, tensors: &[Tensor]) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        self.policy()?.scheduler(self, self.exchange, tensors)
    }

    /// Whether all layers of an iteration wait for all tensors of the one before.
    ///
    /// # Errors
    /// As [`TensorParameters::policy`].
    pub fn has_barrier(&self) -> Result<bool, ScheduleError> {
        let policy = self.policy()?;
        Ok(self.barrier.unwrap_or(!policy.crosses_barrier()))
    }

    /// For how long an operation of so many pieces occupies its first server before its bytes do:
    /// nothing else is served there in that time.
    #[must_use]
    pub fn overhead(&self, pieces: usize) -> Time {
        let each = self.partition_overhead.checked_mul(pieces as u64);
        each.and_then(|each| each.checked_add(self.start_overhead)).unwrap_or(Time::MAX)
    }

    pub(super) fn bucket_bounds(&self) -> (Bytes, Bytes) {
        let of = |given: Option<Bytes>, otherwise| given.unwrap_or(Bytes::new(otherwise));
        (of(self.first_bucket, MIB), of(self.bucket, 25 * MIB))
    }

    pub(super) fn fusion_threshold(&self) -> Bytes {
        self.threshold.unwrap_or(Bytes::new(64 * MIB))
    }

    pub(super) fn fusion_cycle(&self) -> Time {
        self.cycle.unwrap_or(Time::from_us(1_000))
    }

    /// The credit, or what it is where none is given.
    #[must_use]
    pub fn credit_or_default(&self) -> Bytes {
        self.credit.unwrap_or(Bytes::new(16 * MIB))
    }
}
