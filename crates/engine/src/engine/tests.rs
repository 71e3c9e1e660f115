//! What the tests of the parts share.

use allrail_collective::{CollectivePlan, Operation, SizeRange};
use allrail_core::{Bandwidth, Bytes, Time};
use allrail_fabric::{Contention, Dimension, Fabric, Kind};
use allrail_schedule::chunk::Parameters;
use allrail_schedule::{Order, Request};

/// An all-reduce over switches of these sizes, for all sizes up to twice its own.
pub(super) fn plan(sizes: &[u32], size: Bytes, chunks: u32) -> CollectivePlan {
    let dimension = |size: &u32| Dimension {
        kind: Kind::Switch,
        size: *size,
        links: 1,
        bandwidth: Bandwidth::from_bytes_per_second(1_000_000_000).expect("a bandwidth"),
        latency: Time::ZERO,
        in_network_reduction: false,
        contention: Contention::Shared,
    };
    let request = Request {
        plugins: Default::default(),
        fabric: Fabric {
            name: "test".to_owned(),
            dimensions: sizes.iter().map(dimension).collect(),
        },
        operation: Operation::AllReduce,
        size,
        dimensions: Vec::new(),
        policy: "baseline".to_owned(),
        order: Order::STRICT,
        chunks,
        algorithms: None,
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters::default(),
        seed: 1,
    };
    let plan = allrail_schedule::plan(&request).expect("a plan");
    let sizes = SizeRange { from: Bytes::new(1), to: Bytes::new(2 * size.count()) };
    CollectivePlan { sizes: Some(sizes), ..plan }
}
