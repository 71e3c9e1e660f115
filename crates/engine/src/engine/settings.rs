//! What an engine is made with: alike on every rank, but for [`Settings::rank`].

use std::fmt::Display;

use allrail_collective::rank::GRANULE;
use allrail_collective::{DimensionSet, Operation};
use allrail_coordinate::{self as coordinate, CoordinationPolicy};
use allrail_core::{Bytes, DimensionId, FieldError, Time};
use allrail_schedule::Order;
use allrail_schedule::tensor::{
    self, Exchange, MAX_PARTITIONS, TensorParameters, TensorPolicy, Tuning,
};

use super::tensors::Tensors;
use crate::Broken;

/// What the transport asks of the order in which ranks launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// Nothing: every frame carries its operation's full name, so ranks may start the same operations in
    /// any order. *Ready* and *finished* are local events, and nothing that one rank has started may be
    /// held back on another: the credit is unlimited, and so is what a port runs at once.
    #[default]
    Tagged,
    /// Ranks launch the same stages in the same order on every dimension, as process groups do: *ready*,
    /// *finished* and the cuts of time come out of the coordinator as one list that all ranks see alike,
    /// and the queues run what that list says, whatever the timing.
    Common,
}

/// Who agrees, and how.
#[derive(Clone, Debug)]
pub struct Coordination {
    /// How ranks talk.
    pub policy: &'static dyn CoordinationPolicy,
    /// How often, and for how long they wait.
    pub settings: coordinate::Settings,
}

/// [`Settings::forget_after`], where nothing else is said.
pub const FORGET_AFTER: u64 = 1 << 14;

/// See the module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This rank's place in the process group.
    pub rank: u32,
    /// How many ranks the group has.
    pub ranks: u32,
    /// How often the job was restarted.
    pub epoch: u32,
    /// The number of the process group, in names of operations.
    pub group: u32,
    /// What happens to its tensors.
    pub operation: Operation,
    /// The dimensions that it spans.
    pub dimensions: DimensionSet,
    /// How many ports the rank has: the dimensions of its fabric.
    pub ports: usize,
    /// Which waiting stage a port runs next. With [`Ordering::Common`] one that
    /// [is strict](allrail_schedule::queue::QueuePolicy::is_strict).
    pub order: Order,
    /// How many stages a port runs at once; no limit where `None`.
    pub active_chunks: Option<u32>,
    /// Which part of which tensor travels next. With [`Ordering::Tagged`] a credit that is left out is
    /// unlimited.
    pub tensor: TensorParameters,
    /// Who agrees; needed by [`Ordering::Common`]. Beside [`Ordering::Tagged`] it only watches: what
    /// ranks submit is compared, and who is late is named, and nothing waits for it.
    pub coordination: Option<Coordination>,
    /// What the transport needs.
    pub ordering: Ordering,
    /// With [`Ordering::Common`]: after how many equal rounds the order of launches is frozen, and ranks no
    /// longer coordinate until it changes. Then every rank submits every tensor once before it submits any
    /// again, and the operation is an all-reduce. Never, where `None`.
    pub freeze: Option<u32>,
    /// After how long a call that is not over is compared with the other ranks'.
    pub ask_after: Time,
    /// Whether calls may have names: a frame of a name that is not known is early then, not a mistake.
    pub named_calls: bool,
    /// A name that was not used for so many calls with names is forgotten.
    pub forget_after: u64,
    /// Where tensors and chunks are cut: at whole elements of so many bytes or a little more.
    pub granule: Bytes,
    /// How many of the rank's plans, one a size, are kept beside those that run.
    pub room: usize,
}

impl Default for Settings {
    /// One rank with one port, first come, first served.
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            epoch: 0,
            group: 0,
            operation: Operation::AllReduce,
            dimensions: DimensionSet::default().with(DimensionId(0)),
            ports: 1,
            order: Order::FIFO,
            active_chunks: None,
            tensor: TensorParameters::default(),
            coordination: None,
            ordering: Ordering::Tagged,
            freeze: None,
            ask_after: Time::from_us(1_000_000),
            named_calls: false,
            forget_after: FORGET_AFTER,
            granule: GRANULE,
            room: 1024,
        }
    }
}

fn wrong(field: &'static str, value: &dyn Display, why: &str, hint: &str) -> Broken {
    let (value, why, hint) = (value.to_string(), why.to_owned(), hint.to_owned());
    Broken::Setting(FieldError::new(field, value, why, hint))
}

impl Settings {
    /// The tensor scheduler's policy and parameters, once everything is checked.
    pub(super) fn check(&self) -> Result<(&'static dyn TensorPolicy, TensorParameters), Broken> {
        if self.rank >= self.ranks {
            let hint = "ranks count from 0";
            return Err(wrong("rank", &self.rank, &format!("there are {}", self.ranks), hint));
        }
        if self.granule == Bytes::default() {
            return Err(wrong("granule", &"0", "a granule has 1 byte at least", "64 bytes"));
        }
        if self.ask_after == Time::ZERO {
            return Err(wrong("ask_after", &"0 s", "ranks would ask without a pause", "1 s"));
        }
        self.tensor.policy()?;
        let policy = tensor::named(&self.tensor.policy)?;
        if self.tensor.exchange != Exchange::AllReduce {
            let why = "an engine runs collectives, and asks no servers";
            return Err(wrong("tensor.exchange", &"parameter_server", why, "`all_reduce`"));
        }
        if self.operation.is_sharded() && policy.partition(&self.tensor).is_some() {
            let why =
                format!("it cuts tensors, and {} has one shard for every rank", self.operation);
            return Err(wrong("tensor.policy", &policy.tag(), &why, "`fifo`"));
        }
        match self.ordering {
            Ordering::Tagged => self.check_tagged(policy),
            Ordering::Common => self.check_common(policy),
        }
    }

    fn check_tagged(
        &self,
        policy: &'static dyn TensorPolicy,
    ) -> Result<(&'static dyn TensorPolicy, TensorParameters), Broken> {
        if policy.packs_by_time() {
            let why = "what it packs depends on when tensors are ready, which differs from rank to \
                       rank, and ranks of a tagged transport do not agree on it";
            return Err(wrong("tensor.policy", &policy.tag(), why, "`ddp`, or `ordering: common`"));
        }
        if let Some(rounds) = self.freeze {
            let why = "ranks of a tagged transport need no order";
            return Err(wrong("freeze", &rounds, why, "leave it out, or `ordering: common`"));
        }
        let mut tensor = self.tensor.clone();
        if tensor.credit.is_none() && policy.reads().contains(&"credit") {
            tensor.credit = Some(Bytes::new(u64::MAX));
        }
        if let Some(credit) = policy.credit(&tensor).filter(|credit| credit.count() < u64::MAX) {
            let why = format!(
                "a credit of {credit} would hold back what another rank has started, and both would \
                 wait for ever"
            );
            let hint = "leave it out, and bound what a link is given and has not sent by \
                        `send_ahead`, each rank for itself; or `ordering: common`";
            let value = format!("{} (policy `{}`)", credit, policy.tag());
            return Err(wrong("tensor.credit", &value, &why, hint));
        }
        if self.order.is_strict() {
            let why =
                "ranks that submit in different orders would hold each other's collectives back";
            return Err(wrong("order", &self.order.tag(), why, "`planned`, or `ordering: common`"));
        }
        if let Some(limit) = self.active_chunks {
            let why = "a stage that another rank runs could wait for ever behind it";
            return Err(wrong("active_chunks", &limit, why, "leave it out, or `ordering: common`"));
        }
        Ok((policy, tensor))
    }

    fn check_common(
        &self,
        policy: &'static dyn TensorPolicy,
    ) -> Result<(&'static dyn TensorPolicy, TensorParameters), Broken> {
        if self.coordination.is_none() {
            let why = "ranks must agree on one order, and nobody makes them";
            return Err(wrong("coordination", &"none", why, "a policy, such as `cached`"));
        }
        if self.freeze == Some(0) {
            let why = "an order is seen in one round at least";
            return Err(wrong("freeze", &0, why, "1 or more"));
        }
        if let Some(rounds) = self.freeze.filter(|_| self.operation != Operation::AllReduce) {
            let why = format!("of {} a rank may be done before another has begun", self.operation);
            return Err(wrong("freeze", &rounds, &why, "leave it out, or `all_reduce`"));
        }
        if !self.order.is_strict() {
            let why = "what a port runs next would depend on when stages come to it, and ranks would \
                       launch in different orders";
            return Err(wrong("order", &self.order.tag(), why, "`strict`"));
        }
        Ok((policy, self.tensor.clone()))
    }

    /// Refuses a tuning that no tensor could be cut by, or no transport could keep.
    pub(super) fn check_tuning(&self, tuning: Tuning, tensors: &Tensors) -> Result<(), Broken> {
        let largest = tensors.all.iter().map(|tensor| tensor.request.bytes.count()).max();
        if let Some(partition) = tuning.partition {
            let parts = match partition.count() {
                0 => u64::MAX,
                bytes => largest.unwrap_or(0).div_ceil(bytes),
            };
            if parts > MAX_PARTITIONS {
                let why = format!("the largest tensor would have more than {MAX_PARTITIONS} parts");
                return Err(wrong("retune.partition", &partition, &why, "for example 4 MiB"));
            }
        }
        match tuning.credit {
            Some(credit) if credit == Bytes::default() => {
                Err(wrong("retune.credit", &credit, "nothing would start", "1 byte or more"))
            }
            Some(credit) if self.ordering == Ordering::Tagged => {
                let why = "ranks of a tagged transport have no credit: another rank may have started \
                           what it holds back";
                Err(wrong("retune.credit", &credit, why, "`send_ahead`, each rank for itself"))
            }
            _ => Ok(()),
        }
    }
}
