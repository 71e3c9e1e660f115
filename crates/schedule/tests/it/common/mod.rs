//! Fabrics and requests that several tests build alike.

use allrail_collective::{CollectivePlan, Operation, Stage};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_schedule::chunk::{Parameters, Plugins};
use allrail_schedule::{Order, Request, plan};

/// A dimension of one link.
pub(crate) fn dimension(kind: Kind, size: u32, bandwidth: &str, latency: &str) -> Dimension {
    Dimension::new(
        kind,
        size,
        1,
        bandwidth.parse().expect("a bandwidth"),
        latency.parse().expect("a time"),
    )
}

/// Switches of (size, bandwidth) without latency.
pub(crate) fn switches(dimensions: &[(u32, &str)]) -> Fabric {
    let dimensions = dimensions
        .iter()
        .map(|(size, bandwidth)| dimension(Kind::Switch, *size, bandwidth, "0 ns"));
    Fabric {
        memory_bandwidth: None,
        window: None,
        name: "test".into(),
        dimensions: dimensions.collect(),
    }
}

pub(crate) fn request(fabric: Fabric, operation: Operation, size: &str, policy: &str) -> Request {
    Request {
        fabric,
        operation,
        size: size.parse::<Bytes>().expect("a size"),
        dimensions: Vec::new(),
        policy: policy.into(),
        order: Order::SMALLEST_FIRST,
        chunks: 4,
        algorithms: None,
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters::default(),
        seed: 0,
        programs: Default::default(),
        plugins: Plugins::default(),
    }
}

pub(crate) fn planned(request: &Request) -> CollectivePlan {
    plan(request).unwrap_or_else(|error| panic!("{error}\n{request:?}"))
}

pub(crate) fn stage(operation: Operation, dimension: u32) -> Stage {
    Stage { operation, dimension: DimensionId(dimension) }
}

/// The dimensions that a chunk visits, in order.
pub(crate) fn visits(stages: &[Stage]) -> Vec<u32> {
    stages.iter().map(|stage| stage.dimension.0).collect()
}
