//! Training steps in `dims`: against times worked out by hand, against single collectives, and laws.

use std::ops::ControlFlow;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_schedule::{chunk, queue, tensor};
use allrail_simulate::CollectiveScenario;
use allrail_simulate::TrainingScenario;
use allrail_simulate::collectives::simulate;
use allrail_simulate::training::{BuiltJob, TrainingResult, run};
use allrail_workload::{
    Actor, Builder, Group, Node, Part, Pass, Peer, Perturbation, Purpose, StepGraph, Work,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn scenario(fabric: &Value, schedule: &Value) -> TrainingScenario {
    let scenario = json!({
        "schema_version": 1,
        "fabric": fabric,
        "workload": {"model": {"steps": {}}},
        "schedule": schedule,
        "network_model": "dims",
    });
    TrainingScenario::from_json(&scenario.to_string()).expect("a scenario")
}

/// 8 NPUs on a switch of 100 GB/s and no latency.
fn one_switch() -> Value {
    json!({"name": "switch", "dimensions": [
        {"kind": "switch", "size": 8, "links": 1, "bandwidth": "100 GB/s", "latency": "0 ns"},
    ]})
}

fn run_it(graph: &StepGraph, scenario: &TrainingScenario, iterations: u32) -> TrainingResult {
    let job = BuiltJob {
        graph,
        memory: None,
        notes: Vec::new(),
        perturbation: Perturbation::default(),
        iterations,
        work: None,
    };
    run(&job, scenario, false, &mut |_, _| ControlFlow::Continue(())).expect("it runs")
}

fn whole(sizes: &[u32]) -> Vec<Part> {
    (0u32..)
        .zip(sizes)
        .map(|(d, size)| Part { dimension: DimensionId(d), size: *size, stride: 1 })
        .collect()
}

/// Layers with (forward, backward) in us and gradients in bytes; data-parallel over everything.
fn data_parallel(sizes: &[u32], layers: &[(u64, u64, u64)]) -> StepGraph {
    let ranks: u32 = sizes.iter().product();
    let mut builder = Builder::default();
    let actor =
        builder.actor(Actor { name: "ranks".to_owned(), ranks: (0..ranks).map(Rank).collect() });
    let group = builder.group(Group {
        name: "dp".to_owned(),
        parts: whole(sizes),
        ranks: Vec::new(),
        actors: vec![actor],
    });
    let compute = |time, pass| Node {
        actor,
        work: Work::Compute { time: Time::from_us(time) },
        tensor: None,
        pass,
    };
    let mut before = Vec::new();
    let mut forwards = Vec::new();
    for (i, (forward, ..)) in layers.iter().enumerate() {
        let name = format!("layer{i} forward");
        let id = builder.node(&name, compute(*forward, Pass::Forward), &before);
        before = vec![id];
        forwards.push(id);
    }
    for (i, (_, backward, bytes)) in layers.iter().enumerate().rev() {
        let name = format!("layer{i}");
        let id = builder.node(&name, compute(*backward, Pass::Backward), &before);
        before = vec![id];
        let work = Work::Collective {
            operation: Operation::AllReduce,
            bytes: Bytes::new(*bytes),
            group,
            purpose: Purpose::Data,
        };
        let tensor = Some(u32::try_from(i).expect("few layers"));
        let gradient = Node { actor, work, tensor, pass: Pass::Backward };
        let gradient = builder.node(&format!("{name} gradient"), gradient, &[id]);
        let update = builder.node(&format!("{name} update"), compute(0, Pass::Update), &[gradient]);
        builder.carry(forwards[i], update);
    }
    builder.finish().expect("a good graph")
}

/// 8 NPUs at 100 GB/s: an all-reduce of b bytes takes 2 · 7/8 · b / (100 GB/s).
#[test]
fn a_data_parallel_step_is_as_worked_out_by_hand() {
    // 8 MB: 140 us each.
    let graph = data_parallel(&[8], &[(100, 200, 8_000_000), (100, 200, 8_000_000)]);
    let schedule = json!({"policy": "baseline", "chunks": 1});
    let result = run_it(&graph, &scenario(&one_switch(), &schedule), 3);
    // Forward 200, backward 200: the first gradient (140) hides behind the next 200, the last does
    // not.
    assert_eq!(result.steps_us, [740.0, 740.0, 740.0]);
    assert_eq!(result.compute_us, 600.0);
    assert_eq!(result.exposed_us["data"], 140.0);
    assert_eq!(result.waiting_us, 0.0);
    assert_eq!(result.dimensions[0].bytes_per_npu, 28_000_000);
    assert!((result.dimensions[0].busy_fraction - 280.0 / 740.0).abs() < 1e-9);
    let words = &result.critical_path_in_words;
    assert!(words.contains("81 % of the step computes"), "{words}");
    assert!(words.contains("19 % of the step waits for dim1"), "{words}");
    assert!(words.contains("layer0 gradient"), "{words}");
}

/// Beyond the barrier, the next forward pass begins before the last layer's gradient is there.
#[test]
fn crossing_the_barrier_hides_what_the_first_layers_do_not_need() {
    // The last layer's gradient is ready first and takes 700 us.
    let graph = data_parallel(&[8], &[(100, 100, 400_000), (100, 100, 40_000_000)]);
    let of = |tensor: Value| {
        let schedule = json!({"policy": "baseline", "chunks": 1, "tensor": tensor});
        run_it(&graph, &scenario(&one_switch(), &schedule), 6)
    };
    let fifo = of(json!({"policy": "fifo"}));
    // 200 of forward, 100 of backward, then 700 and 7 of communication.
    assert_eq!(fifo.step_time_us, 1007.0);
    let crossing = of(json!({"policy": "fifo", "barrier": false}));
    // The same order, so layer 0 still waits for its gradient behind the other.
    assert_eq!(crossing.step_time_us, 1007.0);
    let tensor = json!({"policy": "bytescheduler", "partition": "400 KB", "credit": "400 KB"});
    let urgent = of(tensor);
    // Layer 0's 7 us overtake: the step is the network's 707 us but for what the last layer's
    // forward and backward leave idle (200), and at most a partition.
    assert!(urgent.step_time_us < 915.0, "{}", urgent.step_time_us);
    assert!(urgent.step_time_us >= 907.0, "{}", urgent.step_time_us);
}

/// Two pipeline stages, one microbatch: the second waits for the first, and the other way back.
#[test]
fn a_bubble_is_waiting_and_a_transfer_is_exposed() {
    let mut builder = Builder::default();
    let stage = |builder: &mut Builder, name: &str, ranks: [u32; 4]| {
        builder.actor(Actor { name: name.to_owned(), ranks: ranks.map(Rank).to_vec() })
    };
    let first = stage(&mut builder, "stage 0", [0, 1, 2, 3]);
    let second = stage(&mut builder, "stage 1", [4, 5, 6, 7]);
    let part = Part { dimension: DimensionId(0), size: 2, stride: 4 };
    let group = builder.group(Group {
        name: "pp".to_owned(),
        parts: vec![part],
        ranks: Vec::new(),
        actors: vec![first, second],
    });
    let node = |actor, work| Node { actor, work, tensor: None, pass: Pass::Unknown };
    let compute = |us| Work::Compute { time: Time::from_us(us) };
    let (bytes, purpose) = (Bytes::new(1_000_000), Purpose::Pipeline);
    let send = |to| Work::Send { bytes, group, peer: Peer::At(to), purpose };
    let receive = |from| Work::Receive { bytes, group, peer: Peer::At(from), purpose };
    let f0 = builder.node("f0", node(first, compute(100)), &[]);
    builder.node("to 1", node(first, send(1)), &[f0]);
    let r1 = builder.node("from 0", node(second, receive(0)), &[]);
    let f1 = builder.node("f1", node(second, compute(100)), &[r1]);
    builder.node("to 0", node(second, send(0)), &[f1]);
    let r0 = builder.node("from 1", node(first, receive(1)), &[f0]);
    builder.node("b0", node(first, compute(200)), &[r0]);
    let graph = builder.finish().expect("a good graph");
    let result = run_it(&graph, &scenario(&one_switch(), &json!({"chunks": 1})), 1);
    // 100 + 10 + 100 + 10 + 200.
    assert_eq!(result.step_time_us, 420.0);
    // Means over the ranks of both stages, which compute 300 and 100, and stand still for 20 and 10 of their
    // own messages.
    assert_eq!(result.compute_us, 200.0);
    assert_eq!(result.exposed_us["pipeline"], 15.0);
    assert_eq!(result.waiting_us, 205.0);
    let path: Vec<_> = result.critical_path.iter().map(|e| (e.what, e.time_us)).collect();
    let expected = [
        ("compute", 100.0),
        ("communication", 10.0),
        ("compute", 100.0),
        ("communication", 10.0),
        ("compute", 200.0),
    ];
    assert_eq!(path, expected);
}

/// A straggler is an actor of its own; the others wait for it.
#[test]
fn others_wait_for_a_straggler() {
    let mut builder = Builder::default();
    let slow = builder.actor(Actor { name: "rank 0".to_owned(), ranks: vec![Rank(0)] });
    let others =
        builder.actor(Actor { name: "others".to_owned(), ranks: (1..8).map(Rank).collect() });
    let group = builder.group(Group {
        name: "dp".to_owned(),
        parts: whole(&[8]),
        ranks: Vec::new(),
        actors: vec![slow, others],
    });
    for (actor, us) in [(slow, 150), (others, 100)] {
        let node = |work| Node { actor, work, tensor: None, pass: Pass::Unknown };
        let id = builder.node("work", node(Work::Compute { time: Time::from_us(us) }), &[]);
        let work = Work::Collective {
            operation: Operation::AllReduce,
            bytes: Bytes::new(8_000_000),
            group,
            purpose: Purpose::Data,
        };
        builder.node("sum", node(work), &[id]);
    }
    let graph = builder.finish().expect("a good graph");
    let result = run_it(&graph, &scenario(&one_switch(), &json!({"chunks": 1})), 2);
    assert_eq!(result.step_time_us, 290.0);
    assert_eq!(result.actors[1].waiting_us, 50.0);
    assert_eq!(result.actors[0].waiting_us, 0.0);
    assert_eq!(result.actors[1].exposed_communication_us, 140.0);
}

/// What ends a step is exposed, whether or not anything computes after it.
#[test]
fn a_collective_at_the_end_is_exposed() {
    let mut builder = Builder::default();
    let actor =
        builder.actor(Actor { name: "ranks".to_owned(), ranks: (0..8).map(Rank).collect() });
    let group = builder.group(Group {
        name: "dp".to_owned(),
        parts: whole(&[8]),
        ranks: Vec::new(),
        actors: vec![actor],
    });
    let node = |work| Node { actor, work, tensor: None, pass: Pass::Unknown };
    let id = builder.node("work", node(Work::Compute { time: Time::from_us(100) }), &[]);
    let work = Work::Collective {
        operation: Operation::AllReduce,
        bytes: Bytes::new(8_000_000),
        group,
        purpose: Purpose::Data,
    };
    builder.node("sum", node(work), &[id]);
    let graph = builder.finish().expect("a good graph");
    for network_model in ["dims", "links"] {
        let mut scenario = scenario(&one_switch(), &json!({"chunks": 1}));
        scenario.network_model =
            serde_json::from_value(json!(network_model)).expect("a network model");
        for iterations in [1, 3] {
            let result = run_it(&graph, &scenario, iterations);
            assert_eq!(result.compute_us, 100.0, "{network_model}, {iterations}");
            assert_eq!(result.waiting_us, 0.0, "{network_model}, {iterations}");
            let rest = result.step_time_us - 100.0;
            assert!(
                (result.exposed_us["data"] - rest).abs() < 1e-6,
                "{network_model}, {iterations}"
            );
        }
    }
}

fn platform() -> Value {
    json!({"name": "3D", "dimensions": [
        {"kind": "ring", "size": 4, "links": 2, "bandwidth": "200 Gb/s", "latency": "20 ns"},
        {"kind": "fully_connected", "size": 4, "links": 3, "bandwidth": "100 Gb/s",
         "latency": "700 ns"},
        {"kind": "switch", "size": 8, "links": 1, "bandwidth": "400 Gb/s", "latency": "1700 ns"},
    ]})
}

/// Any policy; those that take long to plan one time in eight of theirs, else the first of the list.
fn any_policy() -> impl Strategy<Value = &'static str> {
    (0..chunk::ALL.len(), 0..8).prop_map(|(policy, turn)| {
        let rare = chunk::ALL[policy].is_expensive() && turn > 0;
        chunk::ALL[if rare { 0 } else { policy }].tag()
    })
}

/// Every tensor scheduler, with small values of the keys that it reads.
fn any_tensor_policy() -> impl Strategy<Value = Value> {
    const KEYS: [(&str, &str); 5] = [
        ("bucket", "10 MB"),
        ("threshold", "8 MB"),
        ("cycle", "100 us"),
        ("partition", "1 MB"),
        ("credit", "4 MB"),
    ];
    (0..tensor::ALL.len()).prop_map(|policy| {
        let policy = tensor::ALL[policy];
        let mut tree = json!({ "policy": policy.tag() });
        for (key, value) in KEYS.iter().filter(|(key, _)| policy.reads().contains(key)) {
            tree[*key] = json!(value);
        }
        tree
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One all-reduce and nothing else is the collective's simulation, for every policy and order.
    #[test]
    fn one_collective_takes_as_long_as_on_its_own(
        policy in any_policy(),
        order in (0..queue::ALL.len()).prop_map(|order| queue::ALL[order].tag()),
        chunks in 1u32..40,
        bytes in 1_000u64..50_000_000,
        active in prop::option::of(1u32..4),
    ) {
        let schedule =
            json!({"policy": policy, "order": order, "chunks": chunks, "active_chunks": active});
        let alone = json!({
            "schema_version": 1, "fabric": platform(), "schedule": schedule,
            "collective": [{"kind": "all_reduce", "size": format!("{bytes} B")}],
        });
        let alone = CollectiveScenario::from_json(&alone.to_string()).expect("a scenario");
        let alone =
            simulate(&alone, None, false, &mut |_, _| ControlFlow::Continue(())).expect("it runs");
        let graph = data_parallel(&[4, 4, 8], &[(1, 1, bytes)]);
        let step = run_it(&graph, &scenario(&platform(), &schedule), 1);
        prop_assert!((step.step_time_us - alone.time_us - 2.0).abs() < 1e-6);
        prop_assert_eq!(step.dimensions.len(), 3);
        for (ours, theirs) in step.dimensions.iter().zip(&alone.dimensions) {
            prop_assert_eq!(ours.bytes_per_npu, theirs.bytes_per_npu);
        }
    }

    /// A step's parts add up; it is no faster than with an ideal schedule, and that no faster than
    /// with infinite bandwidth... but for latency; and never slower than everything in turn.
    #[test]
    fn a_step_lies_between_its_bounds(
        layers in prop::collection::vec((1u64..300, 1u64..300, 1_000u64..20_000_000), 1..6),
        tensor in any_tensor_policy(),
        policy in any_policy(),
    ) {
        let graph = data_parallel(&[4, 4, 8], &layers);
        let schedule = json!({"policy": policy, "chunks": 16, "tensor": tensor});
        let mut scenario = scenario(&platform(), &schedule);
        let real = run_it(&graph, &scenario, 4);
        let sum = real.compute_us + real.exposed_communication_us + real.waiting_us;
        prop_assert!((sum - real.step_time_us).abs() < 1e-3, "{sum} of {}", real.step_time_us);
        let compute = layers.iter().map(|(f, b, _)| f + b).sum::<u64>() as f64;
        let crosses = tensor::named(&real.tensor_policy).expect("listed").crosses_barrier();
        // Where iterations overlap, a window of three holds part of a fourth.
        let off = if crosses { compute / 3.0 } else { 1e-3 };
        prop_assert!((real.compute_us - compute).abs() <= off);
        prop_assert!(crosses || real.step_time_us >= real.bound_step_time_us * (1.0 - 1e-9));
        scenario.job.what_if = Some(allrail_simulate::scenario::WhatIf::InfiniteBandwidth);
        let infinite = run_it(&graph, &scenario, 4);
        // What is ready waits for the next cycle, and how long depends on when a step began.
        let cycles = tensor::named(&real.tensor_policy).expect("listed").reads().contains(&"cycle");
        let slack = if cycles { 100.0 } else { 1e-6 } + if crosses { off } else { 0.0 };
        prop_assert!(infinite.step_time_us <= real.step_time_us + slack);
        let path: f64 = real.critical_path.iter().map(|entry| entry.time_us).sum();
        prop_assert!((path - real.steps_us[3]).abs() < 1e-3, "{path} of {:?}", real.steps_us);
        // The same again gives the same.
        scenario.job.what_if = None;
        let again = run_it(&graph, &scenario, 4);
        prop_assert_eq!(again.steps_us, real.steps_us);
    }
}

/// Two all-reduces of 140 us at once; after the first issued come 100 us of computing, after the other 300.
#[test]
fn of_a_trace_what_has_the_higher_priority_goes_first_where_that_is_asked_for() {
    let step = |order: &str, priorities: [i32; 2]| {
        let mut builder = Builder::default();
        let ranks = (0..8).map(Rank).collect();
        let actor = builder.actor(Actor { name: "ranks".to_owned(), ranks });
        let parts = whole(&[8]);
        let group = Group { name: "all".to_owned(), parts, ranks: Vec::new(), actors: vec![actor] };
        let group = builder.group(group);
        for (priority, time) in priorities.into_iter().zip([100, 300]) {
            let (operation, bytes) = (Operation::AllReduce, Bytes::new(8_000_000));
            let sum = Work::Collective { operation, bytes, group, purpose: Purpose::Other };
            let node = |work| Node { actor, work, tensor: None, pass: Pass::Unknown };
            let sum = builder.node("sum", node(sum), &[]);
            builder.prioritise(sum, priority);
            let time = Time::from_us(time);
            builder.node("after", node(Work::Compute { time }), &[sum]);
        }
        let schedule = json!({"policy": "baseline", "chunks": 4, "collective_order": order});
        let graph = builder.finish().expect("a graph");
        run_it(&graph, &scenario(&one_switch(), &schedule), 1).step_time_us
    };
    // First 140 for one, at 280 both are over; the other order lets the long computing begin first.
    assert_eq!(step("explicit", [0, 0]), 580.0);
    assert_eq!(step("explicit", [-1, 2]), 540.0);
    assert_eq!(step("explicit", [2, -1]), 580.0);
    assert_eq!(step("fifo", [-1, 2]), 580.0, "nobody asked for it");
}

/// A packet of 96 bytes has 32 of header: a quarter of the bandwidth is gone, and results say so.
#[test]
fn headers_take_their_part_of_a_dimension() {
    let graph = data_parallel(&[8], &[(100, 200, 8_000_000)]);
    let of = |bandwidth: &str, header: &str| {
        let fabric = json!({"name": "switch", "dimensions": [{"kind": "switch", "size": 8, "links": 1,
            "bandwidth": bandwidth, "latency": "0 ns", "payload": "96 B", "header": header}]});
        run_it(&graph, &scenario(&fabric, &json!({"chunks": 1})), 1)
    };
    let (framed, plain) = (of("100 GB/s", "32 B"), of("75 GB/s", "0 B"));
    assert_eq!(framed.step_time_us, plain.step_time_us);
    let (framed, plain) = (&framed.dimensions[0], &plain.dimensions[0]);
    assert_eq!((framed.bytes_per_npu, framed.bandwidth_gbps), (14_000_000, 600.0));
    assert_eq!(framed.header_bytes_per_npu, 14_000_000 / 3 + 1);
    assert_eq!((plain.bytes_per_npu, plain.header_bytes_per_npu), (14_000_000, 0));
    assert_eq!(framed.utilisation, plain.utilisation);
}
