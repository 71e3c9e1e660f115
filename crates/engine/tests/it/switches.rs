//! Plans over switches, as tests and examples of the engine need them: of any sizes, quickly made.

use allrail_collective::{CollectivePlan, Operation, SizeRange};
use allrail_core::{Bandwidth, Bytes, Time};
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_schedule::chunk::Parameters;
use allrail_schedule::{Order, Request};

/// A collective on all dimensions: made for `most` bytes, and held to be right for any size up to that.
pub(crate) fn plan(
    sizes: &[u32],
    operation: Operation,
    policy: &str,
    most: Bytes,
    chunks: u32,
) -> CollectivePlan {
    let dimension = |size: &u32| {
        Dimension::new(
            Kind::Switch,
            *size,
            1,
            Bandwidth::from_bytes_per_second(1_000_000_000).expect("a bandwidth"),
            Time::ZERO,
        )
    };
    let request = Request {
        programs: Default::default(),
        plugins: Default::default(),
        fabric: Fabric {
            memory_bandwidth: None,
            window: None,
            name: "switches".to_owned(),
            dimensions: sizes.iter().map(dimension).collect(),
        },
        operation,
        size: most,
        dimensions: Vec::new(),
        policy: policy.to_owned(),
        order: Order::STRICT,
        chunks,
        algorithms: None,
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters::default(),
        seed: 1,
    };
    let plan = allrail_schedule::plan(&request).expect("a plan");
    CollectivePlan { sizes: Some(SizeRange { from: Bytes::new(1), to: most }), ..plan }
}
