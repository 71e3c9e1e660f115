//! Traces that were recorded from PyTorch and converted: kernels wait for their launch on the host, and what
//! runs on one stream does so in order, whatever the file says.

use allrail_formats::chakra::Trace;
use allrail_formats::chakra::proto::Node as Written;
use allrail_formats::chakra::proto::attribute_proto::Value;
use proptest::prelude::*;

use crate::chakra::{attribute, collective, compute, options, traced};

fn on_host(id: u64, after: &[u64]) -> Written {
    let mut node = compute(id, 5, after);
    node.attr.push(attribute("is_cpu_op", Value::BoolVal(true)));
    node
}

fn on_stream(mut node: Written, stream: i64) -> Written {
    node.attr.push(attribute("is_cpu_op", Value::BoolVal(false)));
    node.attr.push(attribute("stream", Value::Int64Val(stream)));
    node
}

/// A step as the converter writes it: four launches, and a kernel of each; `more` are waits between kernels.
fn step(more: &[(u64, u64)]) -> Vec<Written> {
    let mut nodes: Vec<Written> = (1..5)
        .map(|id| on_host(id, &(id > 1).then(|| id - 1).into_iter().collect::<Vec<_>>()))
        .collect();
    nodes.push(on_stream(compute(11, 1000, &[1]), 7));
    nodes.push(on_stream(compute(12, 1000, &[2]), 7));
    nodes.push(on_stream(collective(13, 0, 1 << 26, Some("0"), &[3]), 20));
    nodes.push(on_stream(compute(14, 200, &[4]), 7));
    for (id, before) in more {
        let node = nodes.iter_mut().find(|node| node.id == *id).expect("a node");
        node.ctrl_deps.push(*before);
    }
    nodes
}

fn read(nodes: Vec<Written>) -> Trace {
    traced(&[nodes.clone(), nodes], r#"{"0": [0, 1]}"#, &options(&[2])).expect("a trace")
}

fn after(trace: &Trace, place: usize) -> Vec<usize> {
    let id = trace.graph.ids().nth(place).expect("a node");
    trace.graph.after(id).iter().map(|before| before.index()).collect()
}

#[test]
fn kernels_of_a_stream_are_in_order_and_free_communication_is_warned_of() {
    let bare = read(step(&[]));
    assert_eq!((after(&bare, 5), after(&bare, 7)), (vec![1, 4], vec![3, 5]), "stream 7");
    assert_eq!(after(&bare, 6), [2], "alone on its stream");
    let [warning] = &bare.warnings[..] else { panic!("{:?}", bare.warnings) };
    assert!(warning.contains("1 of 1 communication waits for no kernel"), "{warning}");
    assert!(warning.contains("upper bound"), "{warning}");
    let full = read(step(&[(12, 11), (13, 12), (14, 13)]));
    assert!(full.warnings.is_empty(), "{:?}", full.warnings);
    assert_eq!(after(&full, 5), [1, 4], "no wait twice");
    // One end is enough: what is waited for is ordered.
    assert!(read(step(&[(14, 13)])).warnings.is_empty());
}

#[test]
fn traces_without_a_host_say_what_waits_and_nothing_is_warned_of() {
    let nodes = vec![compute(1, 10, &[]), collective(2, 0, 8, Some("0"), &[])];
    assert!(read(nodes).warnings.is_empty());
}

proptest! {
    /// Whatever kernels wait for, those of a stream form a chain that contradicts nothing.
    #[test]
    fn streams_never_make_a_cycle(
        kernels in prop::collection::vec((0i64..3, prop::collection::vec(any::<prop::sample::Index>(), 0..3)), 1..12),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let count = kernels.len() as u64;
        // Waits point down a hidden order, which the file's is a rotation of.
        let mut nodes: Vec<Written> = kernels
            .iter()
            .zip(0u64..)
            .map(|((stream, before), id)| {
                let mut before: Vec<u64> =
                    before.iter().filter(|_| id > 0).map(|at| at.index(id.max(1) as usize) as u64).collect();
                before.sort_unstable();
                before.dedup();
                on_stream(compute(id, 10, &before), *stream)
            })
            .collect();
        nodes.rotate_left(shuffled.index(count as usize));
        let trace = read(nodes.clone());
        for stream in 0..3 {
            let of_stream = |node: &Written| {
                node.attr.iter().any(|one| one.name == "stream" && one.value == Some(Value::Int64Val(stream)))
            };
            let places: Vec<usize> =
                (0..nodes.len()).filter(|place| of_stream(&nodes[*place])).collect();
            let links = places.iter().flat_map(|place| after(&trace, *place)).filter(|one| places.contains(one));
            prop_assert!(links.count() + 1 >= places.len(), "a chain of {places:?}");
        }
    }
}
