//! Sums within a machine: what its NPUs do with a partition before a push and after a pull.

use allrail_collective::model::{DimensionSet, topology_aware};
use allrail_collective::{Operation, StageModel, algorithm};
use allrail_core::{Bandwidth, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric};
use allrail_schedule::tensor::{LocalSum, Servers};
use allrail_workload::Part;

use super::machines::Local;
use crate::SimulateError;

/// At which bytes take no time.
const INFINITE: u64 = 1 << 60;

/// A bandwidth on a dimension, slow links felt.
pub(super) type Slowed<'a> = dyn Fn(DimensionId, Bandwidth) -> Option<Bandwidth> + 'a;

/// A bandwidth at which bytes take no time.
pub(super) fn endless() -> Bandwidth {
    Bandwidth::from_bytes_per_second(INFINITE).expect("not zero")
}

/// See the module.
#[derive(Default)]
pub(super) struct Sums {
    /// Before a push.
    pub(super) before: Vec<Local>,
    /// After a pull.
    pub(super) after: Vec<Local>,
    /// Of each collective within a machine: its dimension, and what an NPU sends of a partition.
    pub(super) sent: Vec<(usize, f64)>,
    /// What these collectives take, where there are any.
    pub(super) model: Option<StageModel>,
}

impl Sums {
    /// Of a machine of `npus` that spans the parts `inner`.
    pub(super) fn new(
        told: &Servers,
        inner: &[&Part],
        npus: u64,
        fabric: &Fabric,
        infinite: bool,
        slow: &Slowed<'_>,
    ) -> Result<Self, SimulateError> {
        let real = |bandwidth| if infinite { endless() } else { bandwidth };
        let buses = u32::try_from(inner.len()).expect("few dimensions");
        let bus = |line, bandwidth: Option<Bandwidth>, times| {
            bandwidth.map(|bandwidth| Local::Bytes { line, times, bandwidth: real(bandwidth) })
        };
        let mut sums = Self::default();
        match told.local {
            LocalSum::Host => {
                let npus = u32::try_from(npus).unwrap_or(u32::MAX);
                sums.before.extend(bus(buses, told.host, npus));
                sums.before.extend(bus(buses + 2, told.host_sum, npus));
                sums.after.extend(bus(buses + 1, told.host, npus));
            }
            LocalSum::Npus => {
                let mut divisor = 1.0;
                for part in inner {
                    let size = f64::from(part.size);
                    sums.sent.push((part.dimension.index(), 2.0 * (size - 1.0) / size / divisor));
                    divisor *= size;
                }
                if !inner.is_empty() {
                    sums.model = Some(model(inner, fabric, infinite, slow)?);
                }
                sums.before = stages(Operation::ReduceScatter, inner.len());
                sums.before.extend(bus(buses, told.host, 1));
                sums.after.extend(bus(buses + 1, told.host, 1));
                sums.after.extend(stages(Operation::AllGather, inner.len()).into_iter().rev());
            }
        }
        Ok(sums)
    }
}

/// What the collectives within a machine cost, one dimension a part.
fn model(
    inner: &[&Part],
    fabric: &Fabric,
    infinite: bool,
    slow: &Slowed<'_>,
) -> Result<StageModel, SimulateError> {
    let within = |part: &&Part| {
        let dimension = fabric.dimension(part.dimension);
        let mut own = match dimension.cut(part.size) {
            Some(cut) => cut,
            None => Dimension { size: part.size, wiring: None, ..dimension.clone() },
        };
        let whole = own.aggregate();
        if infinite {
            own.bandwidth = Bandwidth::from_bytes_per_second(INFINITE >> 20).expect("not zero");
        } else if let Some(slowed) = slow(part.dimension, whole).filter(|slowed| *slowed < whole) {
            let (part, all) = (slowed.bytes_per_second(), whole.bytes_per_second());
            own.bandwidth = own.bandwidth.fraction(part, all);
        }
        own
    };
    let dimensions: Vec<Dimension> = inner.iter().map(within).collect();
    let named = |dimension: &Dimension| {
        algorithm::named(topology_aware(dimension.kind, Operation::ReduceScatter))
    };
    let algorithms = dimensions.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let fabric = Fabric { dimensions, ..fabric.clone() };
    let ids: Vec<DimensionId> = fabric.ids().collect();
    let operations = [Operation::ReduceScatter, Operation::AllGather];
    Ok(StageModel::new(&fabric, &algorithms, &ids, &operations, Time::ZERO)?)
}

/// One stage on each of so many dimensions, each of what those before it have left.
fn stages(operation: Operation, count: usize) -> Vec<Local> {
    let mut scattered = DimensionSet::default();
    (0..u32::try_from(count).expect("few dimensions"))
        .map(|line| {
            let dimension = DimensionId(line);
            let stage = Local::Stage { line, operation, dimension, scattered };
            scattered = scattered.with(dimension);
            stage
        })
        .collect()
}
