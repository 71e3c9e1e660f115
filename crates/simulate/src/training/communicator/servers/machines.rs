//! The machines of parameter servers, as data, and what a message takes on them.

use allrail_collective::Operation;
use allrail_collective::model::{DimensionSet, StageModel};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_schedule::tensor::{Leg, PartitionPlacement};

/// What a worker does within its machine with a partition before it pushes it, or after it was pulled. Each
/// line of a machine does one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// `times` its bytes at a bandwidth: buses between NPUs and memory, processors that sum.
    Bytes {
        /// Number of the line within the machine.
        line: u32,
        /// How often its bytes count.
        times: u32,
        /// How fast they pass.
        bandwidth: Bandwidth,
    },
    /// A stage of a collective among the machine's NPUs on one of their dimensions.
    Stage {
        /// Number of the line within the machine.
        line: u32,
        /// Reduce-scatter or all-gather.
        operation: Operation,
        /// Of the model.
        dimension: DimensionId,
        /// Dimensions over which the partition is scattered meanwhile.
        scattered: DimensionSet,
    },
}

impl Local {
    pub(super) fn line(self) -> u32 {
        match self {
            Self::Bytes { line, .. } | Self::Stage { line, .. } => line,
        }
    }
}

/// The machines.
#[derive(Clone)]
pub struct Machines {
    /// Number of workers: machines that train. One at least.
    pub workers: u32,
    /// Number of servers. One at least.
    pub servers: u32,
    /// How many of the servers run on workers' machines: server `s` on that of worker `s`. The others have
    /// machines of their own.
    pub hosted: u32,
    /// Which server keeps which partition.
    pub placement: PartitionPlacement,
    /// Partitions of this size and more are split over all servers; none if absent.
    pub big_array: Option<Bytes>,
    /// Whether a server answers once it has every worker's push; else each by itself.
    pub synchronous: bool,
    /// How many workers' pushes a synchronous server does not wait for: it drops what comes later, and
    /// answers it at once. Fewer than workers.
    pub backup: u32,
    /// Of a worker's link, each way.
    pub bandwidth: Bandwidth,
    /// Of the link of a server's own machine, each way.
    pub own: Bandwidth,
    /// From the last byte of a leg to its end.
    pub latency: Time,
    /// What a worker does before a push, in order.
    pub before: Vec<Local>,
    /// What a worker does after a pull, in order.
    pub after: Vec<Local>,
    /// The times of collectives within a machine, where there are any.
    pub model: Option<StageModel>,
    /// How fast a server sums what is pushed; unlimited if absent.
    pub sum: Option<Bandwidth>,
    /// How fast a server copies what is pulled, in the thread that sums; unlimited if absent.
    pub copy: Option<Bandwidth>,
    /// Whether links know no priority, and requests and words wait their turn on them.
    pub in_order: bool,
}

/// A push or pull of a partition by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Push, or pull.
    pub leg: Leg,
    /// Whose.
    pub worker: u32,
    /// Number of the partition, in the order of the forward pass: a name, and where it lies.
    pub partition: u32,
    /// Which exchange of it: the number of the iteration.
    pub round: u32,
    /// Its size.
    pub bytes: Bytes,
    /// Higher goes first on every line.
    pub priority: i64,
    /// For how long it occupies the worker's first line (of a pull, its link down) before its bytes do.
    pub overhead: Time,
    /// Comes back with what happens to it.
    pub tag: u64,
}

impl Machines {
    /// How many lines each machine that trains has beside its links.
    pub(super) fn locals(&self) -> u32 {
        let lines = self.before.iter().chain(&self.after).map(|local| local.line() + 1);
        lines.max().unwrap_or(0)
    }

    /// For how long a partition occupies a line of its machine, and what passes before the next one.
    pub(super) fn local(&self, local: Local, bytes: Bytes) -> (Time, Time) {
        match local {
            Local::Bytes { times, bandwidth, .. } => {
                let bytes = u128::from(bytes.count()) * u128::from(times);
                (time(bandwidth, bytes, 1), Time::ZERO)
            }
            Local::Stage { operation, dimension, scattered, .. } => {
                let model = self.model.as_ref().expect("stages within machines have a model");
                let stage = model.stage(bytes, operation, dimension, scattered);
                let stage = stage.expect("a stage takes less than 213 days");
                (stage.occupancy, stage.latency)
            }
        }
    }

    /// How long all workers' exchange of so many bytes takes at the most: over one server, each leg and line
    /// after the other. `None` if that is beyond a quarter of the clock.
    #[must_use]
    pub(crate) fn within_the_clock(&self, bytes: u128) -> Option<Time> {
        let buses = self.before.iter().chain(&self.after).filter_map(|local| match local {
            Local::Bytes { times, bandwidth, .. } => Some((*times, *bandwidth)),
            Local::Stage { .. } => None,
        });
        let mut all = Time::ZERO;
        for (times, bandwidth) in buses {
            let bytes = bytes.checked_mul(u128::from(times))?;
            all = all.checked_add(bandwidth.time_for_fraction(bytes, 1)?)?;
        }
        if let Some(model) = &self.model {
            let each = Bytes::new(u64::try_from(bytes).ok()?);
            for local in self.before.iter().chain(&self.after) {
                let Local::Stage { operation, dimension, scattered, .. } = *local else { continue };
                let stage = model.stage(each, operation, dimension, scattered)?;
                all = all.checked_add(stage.occupancy)?.checked_add(stage.latency)?;
            }
        }
        let ends = [Some(self.bandwidth), Some(self.own), self.sum, self.copy];
        let slowest = ends.into_iter().flatten().min().expect("links have a bandwidth");
        let links = bytes.checked_mul(u128::from(self.workers) * 7)?;
        let time = all.checked_add(slowest.time_for_fraction(links, 1)?)?;
        time.checked_mul(4).map(|_| time)
    }
}

/// `numerator / denominator` bytes at a bandwidth.
pub(super) fn time(bandwidth: Bandwidth, numerator: u128, denominator: u64) -> Time {
    let time = bandwidth.time_for_fraction(numerator, u128::from(denominator));
    time.expect("an operation takes less than 213 days")
}
