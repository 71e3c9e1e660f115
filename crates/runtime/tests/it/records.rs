//! What nodes record: it drives an engine alone to the same decisions, tells who waits for whom, and is written
//! when a fault ends the job.

use std::time::Duration;

use allrail_collective::Operation;
use allrail_engine::engine::Event;
use allrail_engine::{Asked, Dtype};
use allrail_runtime::{CallOf, FaultKind, Node, Record, Registered, RuntimeError, What};
use serde_json::{Value, json};

use crate::cluster::{Held, LONG, connected, register, settings, started, submit, wait};

/// Not power of two, several partitions, chunks and dimensions.
const SIZES: [usize; 5] = [70_000, 5, 300_001, 64, 9_000];

fn tensors(node: &Node) -> Vec<(allrail_schedule::Key, Held)> {
    let mut all = Vec::new();
    for (place, size) in (0..).zip(SIZES) {
        let held = Held::new(Dtype::Float32, &vec![0; 4 * size]);
        all.push((register(node, &format!("tensor {place}"), &held, place), held));
    }
    all
}

fn registered() -> impl Iterator<Item = Registered> {
    (0..).zip(SIZES).map(|(place, size)| Registered {
        name: format!("tensor {place}"),
        dtype: "float32".to_owned(),
        shape: vec![size as u64],
        place,
        ..Registered::default()
    })
}

/// Three exchanges of all tensors, with a call beside; what every rank has recorded.
fn recorded(sizes: &[u32], more: &Value) -> Vec<Vec<Record>> {
    let nodes = connected(sizes, more);
    let run = |node: &Node| {
        let mut tensors = tensors(node);
        node.start().expect("it starts");
        let mut shared = Held::new(Dtype::Int32, &[1; 4096]);
        for generation in 0..3 {
            let all_reduce = Operation::AllReduce;
            let call = CallOf {
                operation: all_reduce,
                root: 0,
                dtype: Dtype::Int32,
                priority: 1,
                name: None,
                asked: Asked::default(),
            };
            // SAFETY: it is kept until the call is over.
            let number = unsafe { node.call(&call, shared.pointer(), 1024) }.expect("it is taken");
            for (key, held) in tensors.iter_mut().rev() {
                assert_eq!(submit(node, *key, held), generation);
            }
            assert!(node.wait_call(number, LONG).expect("no fault"));
            tensors.iter().for_each(|(key, _)| wait(node, *key, generation).expect("no fault"));
        }
        node.records()
    };
    let records = std::thread::scope(|scope| {
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(|| run(node))).collect();
        threads.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    nodes.iter().for_each(|node| node.close());
    records
}

#[test]
fn what_was_recorded_drives_an_engine_to_the_same_decisions() {
    for (sizes, more) in [
        (&[3][..], json!({"partition": "64 KiB"})),
        (&[2, 2], json!({"partition": "256 KiB", "policy": "themis", "smallest_chunk": "16 KiB"})),
    ] {
        for (rank, records) in (0..).zip(recorded(sizes, &more)) {
            let settings = settings(rank, sizes, &more);
            let mut engine = allrail_runtime::engine_of(&settings, registered()).expect("plans");
            let same = allrail_runtime::replay(&mut engine, &records);
            let same = same.unwrap_or_else(|differs| panic!("rank {rank}: {differs}"));
            let wanted = records.iter().filter(|one| matches!(one.what, What::Wants(_))).count();
            assert!(same == wanted && same > 100, "{same} of {wanted}");
        }
    }
}

#[test]
fn a_record_that_was_changed_is_noticed() {
    let (sizes, more) = (&[2][..], json!({"partition": "64 KiB"}));
    let records = recorded(sizes, &more).swap_remove(0);
    let replayed = |records: &[Record]| {
        let settings = settings(0, sizes, &more);
        let mut engine = allrail_runtime::engine_of(&settings, registered()).expect("plans");
        allrail_runtime::replay(&mut engine, records)
    };
    assert!(replayed(&records).is_ok());
    type Change = fn(&mut Vec<Record>);
    let place = |records: &[Record], of: fn(&What) -> bool| {
        records.iter().rposition(|one| of(&one.what)).expect("there is one")
    };
    let submission: fn(&What) -> bool = |what| matches!(what, What::Told(Event::Submit { .. }));
    let stage: fn(&What) -> bool = |what| matches!(what, What::Told(Event::StageOver { .. }));
    let (submission, stage) = (place(&records, submission), place(&records, stage));
    for changed in [submission, stage] {
        let mut left_out = records.clone();
        left_out.remove(changed);
        assert!(replayed(&left_out).is_err());
    }
    let changes: [Change; 2] = [
        // Another tensor is submitted first.
        |records| {
            let submissions = (0..records.len())
                .filter(|i| matches!(records[*i].what, What::Told(Event::Submit { .. })));
            let first: Vec<usize> = submissions.take(2).collect();
            records.swap(first[0], first[1]);
        },
        |records| records.retain(|one| !matches!(one.what, What::Settled)),
    ];
    for change in changes {
        let mut changed = records.clone();
        change(&mut changed);
        let differs = replayed(&changed).expect_err("it decides otherwise");
        assert!(differs.to_string().contains("it wanted"), "{differs}");
    }
}

#[test]
fn spans_lie_within_what_they_belong_to() {
    let nodes = connected(&[2, 2], &json!({"partition": "64 KiB"}));
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                let mut tensors = tensors(node);
                node.start().expect("it starts");
                tensors.iter_mut().for_each(|(key, held)| {
                    submit(node, *key, held);
                });
                tensors.iter().for_each(|(key, _)| wait(node, *key, 0).expect("no fault"));
            });
        }
    });
    for node in &nodes {
        let timeline = node.timeline();
        assert_eq!((timeline.exchanges.len(), timeline.lost), (SIZES.len(), 0));
        for exchange in &timeline.exchanges {
            let of = timeline.partitions.iter().filter(|one| one.name == exchange.name);
            let bytes: u64 = of.clone().map(|one| one.bytes).sum();
            let size = timeline.names[exchange.name].strip_prefix("tensor ").expect("a name");
            assert_eq!(bytes, 4 * SIZES[size.parse::<usize>().expect("a number")] as u64);
            for one in of {
                assert!(one.start >= exchange.submitted && one.end <= exchange.done);
            }
        }
        for stage in &timeline.stages {
            let partition = &timeline.partitions[stage.partition];
            assert!(stage.start >= partition.start && stage.end <= partition.end, "{stage:?}");
            assert!(stage.end.is_some_and(|end| end >= stage.start) && stage.dimension < 2);
        }
        let sent: u64 = timeline.stages.iter().map(|one| one.bytes).sum();
        let traffic: u64 = node.report().dimensions.iter().map(|one| one.sent).sum();
        assert!(sent > 0 && sent <= traffic, "{sent} of {traffic}");
    }
}

/// Two of three submit; the other answers, and does nothing.
fn with_a_late_rank(
    more: &Value,
    then: impl Fn(&[std::sync::Arc<Node>], &mut [(allrail_schedule::Key, Held)]),
) {
    let nodes = connected(&[3], more);
    let mut tensors = started(&nodes, 1000);
    for (node, (key, held)) in nodes.iter().zip(&mut tensors).take(2) {
        submit(node, *key, held);
    }
    then(&nodes, &mut tensors);
    nodes.iter().for_each(|node| node.close());
}

const HASTY: &str = r#"{"connect": "20 s", "link": "10 s", "silent": "60 s", "heartbeat": "20 ms",
    "warn": "1 s", "stalled": "1800 s"}"#;

fn hasty(more: &Value) -> Value {
    let mut timeouts: Value = serde_json::from_str(HASTY).expect("JSON");
    for (key, value) in more.as_object().into_iter().flatten() {
        timeouts[key] = value.clone();
    }
    json!({"timeouts": timeouts})
}

#[test]
fn who_waits_for_whom_is_said_and_a_slow_rank_is_no_error() {
    with_a_late_rank(&hasty(&json!({})), |nodes, tensors| {
        let key = tensors[0].0;
        let end = std::time::Instant::now() + LONG;
        for node in &nodes[..2] {
            let warnings = loop {
                assert!(!node.wait(key, 0, Duration::from_millis(10)).expect("no fault"));
                let found = node.take_warnings();
                if !found.is_empty() {
                    break found;
                }
                assert!(std::time::Instant::now() < end, "nobody warns");
            };
            let one = &warnings[0];
            assert_eq!((one.tensor.as_str(), warnings.len()), ("weight", 1));
            assert_eq!((one.missing.as_slice(), one.waiting.as_slice()), (&[2][..], &[0, 1][..]));
            assert!(one.to_string().contains("rank 2 did not submit it"), "{one}");
            assert_eq!(node.report().waits_for[0].ranks, [2]);
        }
        assert!(nodes[2].take_warnings().is_empty());
        submit(&nodes[2], tensors[2].0, &mut tensors[2].1);
        nodes.iter().for_each(|node| wait(node, key, 0).expect("it was only late"));
        // How late it was, others hear from the next signs of life.
        let later = loop {
            let report = nodes[0].report();
            let of_2 = report.peers.iter().find(|one| one.rank == 2).expect("it was heard");
            if let Some((name, later)) = of_2.later.last() {
                assert_eq!(name, "weight");
                break *later;
            }
            assert!(std::time::Instant::now() < end, "{report:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(later > 500_000_000, "{later} ns");
        for peer in nodes[0].report().peers {
            let (Some(offset), Some(trip)) = (peer.offset, peer.round_trip) else {
                panic!("{peer:?}")
            };
            assert!(offset.unsigned_abs() <= trip, "one machine has one clock: {offset} of {trip}");
        }
    });
}

#[test]
fn what_waits_for_too_long_ends_with_the_rank_and_the_tensor_and_is_written_down() {
    let folder = std::env::temp_dir().join(format!("allrail-flight-{}", std::process::id()));
    let mut more = hasty(&json!({"stalled": "2 s"}));
    more["flight_recorder"] = json!(folder);
    with_a_late_rank(&more, |nodes, tensors| {
        for node in &nodes[..2] {
            match node.wait(tensors[0].0, 0, LONG) {
                Err(RuntimeError::Fault(fault)) => {
                    assert_eq!((fault.kind, fault.rank), (FaultKind::Stalled, Some(2)));
                    assert_eq!(fault.tensor.as_deref(), Some("weight"));
                }
                other => panic!("{other:?}"),
            }
        }
        // The late rank hears of the end when the others have, and writes then: it has to live on.
        let written = || std::fs::read_dir(&folder).map_or(0, Iterator::count);
        let until = std::time::Instant::now() + LONG;
        while written() < 3 && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let mut ranks = Vec::new();
    for file in std::fs::read_dir(&folder).expect("a folder") {
        let path = file.expect("a file").path();
        assert!(path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flight-")));
        let text = std::fs::read_to_string(path).expect("text");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let rank = lines[0]["rank"].as_u64().expect("a rank");
        assert_eq!(lines[0]["fault"]["kind"], "stalled");
        if rank < 2 {
            assert_eq!(lines[0]["waits_for"][0]["tensor"], "weight");
            assert_eq!(lines[0]["waits_for"][0]["ranks"], json!([2]));
            assert!(lines.iter().any(|line| line["submitted"] == "weight"), "{text}");
        }
        ranks.push(rank);
    }
    std::fs::remove_dir_all(folder).expect("it is removed");
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2], "every rank that is left has written");
}
