//! A plan's key changes with every input of the planner, and with nothing else.

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::{Contention, Kind, Packet};
use allrail_schedule::chunk::{Composition, Cut, Loads, Parameters};
use allrail_schedule::{Order, Request};

fn base() -> Request {
    let mut request = request(
        switches(&[(4, "50 GB/s"), (8, "25 GB/s"), (2, "10 GB/s")]),
        Operation::AllReduce,
        "100 MB",
        "baseline",
    );
    // One that another kind of dimension does not change.
    request.algorithms = Some(vec!["direct"; 3].into());
    request
}

type Change = (&'static str, fn(&mut Request));

/// Every input alone.
const CHANGES: &[Change] = &[
    ("kind", |r| r.fabric.dimensions[1].kind = Kind::Ring),
    ("size of a dimension", |r| r.fabric.dimensions[1].size = 7),
    ("links", |r| r.fabric.dimensions[1].links = 2),
    ("bandwidth", |r| r.fabric.dimensions[1].bandwidth = "26 GB/s".parse().expect("a bandwidth")),
    ("latency", |r| r.fabric.dimensions[1].latency = Time::from_ps(1)),
    ("in-network reduction", |r| r.fabric.dimensions[1].in_network_reduction = true),
    ("its rate", |r| r.fabric.dimensions[1].reduction_bandwidth = "1 GB/s".parse().ok()),
    ("contention", |r| r.fabric.dimensions[1].contention = Contention::None),
    ("a dimension less", |r| r.fabric.dimensions.truncate(2)),
    ("the dimensions' order", |r| r.fabric.dimensions.swap(0, 1)),
    ("operation", |r| r.operation = Operation::ReduceScatter),
    ("size", |r| r.size = Bytes::new(r.size.count() + 1)),
    ("dimensions", |r| r.dimensions = vec![DimensionId(0), DimensionId(1)]),
    ("order of the dimensions", |r| {
        r.dimensions = vec![DimensionId(1), DimensionId(0), DimensionId(2)];
    }),
    ("policy", |r| r.policy = "themis".into()),
    ("order", |r| r.order = Order::FIFO),
    ("chunks", |r| r.chunks += 1),
    ("algorithms", |r| r.algorithms = Some(vec!["direct", "ring", "direct"].into())),
    ("active chunks", |r| r.active_chunks = Some(1.into())),
    ("endpoint delay", |r| r.endpoint_delay = Time::from_ps(1)),
    ("threshold", |r| r.parameters.threshold = 17),
    ("loads", |r| r.parameters.loads = Loads::Zero),
    ("cut", |r| r.parameters.cut = Cut::Full),
    ("smallest chunk", |r| r.parameters.smallest_chunk = Bytes::new(1)),
    ("memory", |r| r.fabric.memory_bandwidth = "1 TB/s".parse().ok()),
    ("header", |r| {
        let one = &mut r.fabric.dimensions[0];
        (one.payload, one.header) = (Bytes::new(64), Bytes::new(1));
    }),
    ("packet", |r| r.fabric.dimensions[0].packet = Some(Packet::Infiniband)),
    ("message latency", |r| r.fabric.dimensions[0].message_latency = Time::from_ps(1)),
    ("composition", |r| r.parameters.composition = Composition::Merged),
    ("seed", |r| r.seed = 1),
];

fn key(request: &Request) -> String {
    // A field that is added must be added to the changes above.
    let Request {
        fabric: _,
        operation: _,
        size: _,
        dimensions: _,
        policy: _,
        order: _,
        chunks: _,
        algorithms: _,
        active_chunks: _,
        endpoint_delay: _,
        parameters:
            Parameters {
                threshold: _,
                loads: _,
                composition: _,
                cut: _,
                smallest_chunk: _,
                // Decided before: the number counts.
                free_chunks: _,
            },
        seed: _,
        // Of its programs, those that are named count, by their content.
        programs: _,
        // Of its plugins, the one that is named counts, by its tag and version.
        plugins: _,
    } = request;
    request.key().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_input_alone_gives_another_key() {
    let mut keys = vec![("unchanged", key(&base()))];
    for (name, change) in CHANGES {
        let mut request = base();
        change(&mut request);
        if request.fabric.dimensions.len() == 2 {
            request.algorithms = Some(vec!["direct"; 2].into());
        }
        let key = key(&request);
        for (other, known) in &keys {
            assert_ne!(&key, known, "`{name}` and `{other}` have one key");
        }
        keys.push((*name, key));
    }
}

#[test]
fn the_fabrics_name_does_not_count() {
    let mut request = base();
    request.fabric.name = "another".into();
    assert_eq!(key(&request), key(&base()));
}

#[test]
fn defaults_written_out_do_not_count() {
    let mut request = base();
    request.dimensions = (0..3).map(DimensionId).collect();
    assert_eq!(key(&request), key(&base()));
    request.parameters.free_chunks = true;
    assert_eq!(key(&request), key(&base()));
    request.algorithms = None;
    let implied = key(&request);
    request.algorithms = Some(vec!["halving_doubling"; 3].into());
    assert_eq!(key(&request), implied);
}

#[test]
fn a_plan_carries_the_key_of_its_request() {
    assert_eq!(planned(&base()).key, key(&base()));
    assert_eq!(key(&base()).len(), 64, "SHA-256 in hex");
}
