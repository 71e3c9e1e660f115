//! Calls: every kind, from any root, several at a time; and what differs between ranks.

use std::sync::Arc;

use allrail_collective::Operation;
use allrail_collective::rank::shard;
use allrail_engine::{Asked, Dtype};
use allrail_runtime::{CallOf, FaultKind, Node, RuntimeError};
use serde_json::{Value, json};

use crate::cluster::{Held, LONG, connected, links, over};

fn call(node: &Node, operation: Operation, root: u32, held: &mut Held) -> u64 {
    let call = CallOf {
        operation,
        root,
        dtype: held.dtype,
        priority: 0,
        name: None,
        asked: Asked::default(),
    };
    let elements = held.elements();
    // SAFETY: every test keeps what it has submitted until it is done, or the node is closed.
    unsafe { node.call(&call, held.pointer(), elements) }.expect("it is taken")
}

fn started(sizes: &[u32], more: &serde_json::Value) -> Vec<Arc<Node>> {
    let nodes = connected(sizes, more);
    nodes.iter().for_each(|node| node.start().expect("it starts"));
    nodes
}

/// Element `i` of what a rank brings.
fn brought(rank: u32, i: u64) -> i64 {
    i64::from(rank) * 1_000_000 + i as i64
}

/// What a rank must hold after it; none where that is scratch.
fn wanted(
    operation: Operation,
    (root, ranks, elements): (u32, u32, u64),
    rank: u32,
    i: u64,
) -> Option<i64> {
    let owner = (0..ranks).find(|place| shard(elements, *place, ranks).contains(&i));
    let sum = || (0..ranks).map(|rank| brought(rank, i)).sum();
    match operation {
        Operation::AllReduce => Some(sum()),
        Operation::ReduceScatter => (owner == Some(rank)).then(sum),
        Operation::AllGather => owner.map(|owner| brought(owner, i)),
        Operation::Broadcast => Some(brought(root, i)),
        Operation::AllToAll => {
            let owner = owner?;
            let offset = i - shard(elements, owner, ranks).start;
            Some(brought(owner, shard(elements, rank, ranks).start + offset))
        }
    }
}

fn check_all(sizes: &[u32]) {
    let nodes = started(sizes, &json!({"chunks": 2, "smallest_chunk": "1 KiB"}));
    let ranks = nodes.len() as u32;
    let mut jobs = Vec::new();
    for operation in Operation::ALL {
        let roots = if operation == Operation::Broadcast { ranks } else { 1 };
        for (root, elements) in (0..roots).flat_map(|root| [0, 12, 1008, 60_000].map(|n| (root, n)))
        {
            jobs.push((operation, root, elements / u64::from(ranks) * u64::from(ranks)));
        }
    }
    std::thread::scope(|scope| {
        for (rank, node) in (0..).zip(&nodes) {
            let jobs = &jobs;
            scope.spawn(move || {
                let content = |elements: u64| -> Vec<u8> {
                    (0..elements).flat_map(|i| brought(rank, i).to_le_bytes()).collect()
                };
                let mut held: Vec<Held> =
                    jobs.iter().map(|job| Held::new(Dtype::Int64, &content(job.2))).collect();
                let numbers: Vec<u64> = jobs
                    .iter()
                    .zip(&mut held)
                    .map(|((operation, root, _), held)| call(node, *operation, *root, held))
                    .collect();
                for ((job, held), number) in jobs.iter().zip(&held).zip(numbers) {
                    assert!(node.wait_call(number, LONG).expect("no fault"), "{job:?}");
                    let (operation, root, elements) = *job;
                    for (i, bytes) in (0..).zip(held.content().as_chunks::<8>().0) {
                        let is = i64::from_le_bytes(*bytes);
                        let wanted = wanted(operation, (root, ranks, elements), rank, i);
                        assert!(wanted.is_none_or(|wanted| wanted == is), "{job:?} {rank} {i}");
                    }
                }
            });
        }
    });
}

#[test]
fn every_kind_of_call_is_right_from_any_root() {
    check_all(&[4]);
    check_all(&[3, 2]);
}

/// One rank calls something else: all ranks end with one error that says so.
#[test]
fn a_call_that_differs_is_named_on_every_rank() {
    let nodes = started(&[3], &json!({}));
    let mut held: Vec<Held> = (0..3)
        .map(|rank| Held::new(if rank == 1 { Dtype::Int32 } else { Dtype::Float32 }, &[0; 4000]))
        .collect();
    let mut made = Vec::new();
    for (node, held) in nodes.iter().zip(&mut held) {
        let call = CallOf {
            operation: Operation::AllReduce,
            root: 0,
            dtype: held.dtype,
            priority: 0,
            name: None,
            asked: Asked::default(),
        };
        let elements = held.elements();
        // SAFETY: it is kept until the nodes are closed.
        made.push(unsafe { node.call(&call, held.pointer(), elements) });
    }
    let wait = |(node, made): (&Arc<Node>, Result<u64, RuntimeError>)| match made
        .and_then(|number| node.wait_call(number, LONG))
    {
        Err(RuntimeError::Fault(fault)) => {
            assert_eq!((fault.kind, fault.rank), (FaultKind::Differs, None));
            fault.what
        }
        other => panic!("{other:?}"),
    };
    let texts: Vec<String> = nodes.iter().zip(made).map(wait).collect();
    for text in texts {
        assert!(text.starts_with("call 0 differs between ranks: rank "), "{text}");
        let calls = ["float32", "int32"]
            .map(|dtype| format!(" calls all_reduce of 1000 elements of {dtype}"));
        assert!(calls.iter().all(|call| text.contains(call)), "{text}");
    }
    nodes.iter().for_each(|node| node.close());
}

#[test]
fn what_cannot_be_called_is_refused_before_it_counts() {
    let nodes = started(&[2], &json!({}));
    let mut held = Held::new(Dtype::Float32, &[0; 40]);
    let mut refused = |operation, root, elements, offset: usize| {
        let call = CallOf {
            operation,
            root,
            dtype: Dtype::Float32,
            priority: 0,
            name: None,
            asked: Asked::default(),
        };
        // SAFETY: it is refused, and touches nothing.
        let made = unsafe { nodes[0].call(&call, held.pointer().wrapping_add(offset), elements) };
        made.expect_err("it cannot be").to_string()
    };
    assert!(refused(Operation::Broadcast, 2, 10, 0).contains('2'));
    refused(Operation::AllToAll, 0, 9, 0);
    assert!(refused(Operation::AllReduce, 0, u64::MAX, 0).contains("no such memory"));
    let mut others: Vec<Held> = (0..2).map(|_| Held::new(Dtype::Float32, &[0; 40])).collect();
    let numbers: Vec<u64> = nodes
        .iter()
        .zip(&mut others)
        .map(|(node, held)| call(node, Operation::AllReduce, 0, held))
        .collect();
    assert_eq!(numbers, [0, 0]);
    assert!(nodes[0].wait_call(0, LONG).expect("no fault"));
    assert!(nodes[0].wait_call(1, LONG).is_err());
    assert!(nodes[1].wait_call(0, LONG).expect("no fault"));
}

/// One rank is far ahead, with more than the other keeps of what comes early: it waits, and all is right.
#[test]
fn who_is_ahead_waits_where_there_is_no_room() {
    links().iter().for_each(who_is_ahead_waits_over);
}

fn who_is_ahead_waits_over(link: &Value) {
    let nodes = started(&[2], &over(link, &json!({"early": "64 KiB"})));
    let content = vec![1u8; 1 << 18];
    std::thread::scope(|scope| {
        for (rank, node) in nodes.iter().enumerate() {
            let content = &content;
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(200 * rank as u64));
                let mut held: Vec<Held> =
                    (0..40).map(|_| Held::new(Dtype::Uint8, content)).collect();
                let all_reduce = |held| call(node, Operation::AllReduce, 0, held);
                let numbers: Vec<u64> = held.iter_mut().map(all_reduce).collect();
                for (number, held) in numbers.into_iter().zip(&held) {
                    assert!(node.wait_call(number, LONG).expect("no fault"), "{number}");
                    assert!(held.content().iter().all(|byte| *byte == 2));
                }
            });
        }
    });
    nodes.iter().for_each(|node| node.close());
}

fn call_named(node: &Node, name: &str, held: &mut Held) -> Result<u64, RuntimeError> {
    let (operation, dtype) = (Operation::AllReduce, held.dtype);
    let call = CallOf {
        operation,
        root: 0,
        dtype,
        priority: 0,
        name: Some(name),
        asked: Asked::default(),
    };
    let elements = held.elements();
    // SAFETY: as for `call`.
    unsafe { node.call(&call, held.pointer(), elements) }
}

#[test]
fn calls_of_a_name_meet_whatever_the_order_of_names() {
    const NAMES: [&str; 5] = ["loss", "weight", "bias", "scale", "step"];
    let more = json!({"chunks": 2, "smallest_chunk": "1 KiB", "named_calls": true});
    let nodes = started(&[3], &more);
    for generation in 0..3u64 {
        let mut jobs = Vec::new();
        let mut plain = [0, 1, 2].map(|_| Held::new(Dtype::Int32, &[0; 4]));
        for (rank, node) in nodes.iter().enumerate() {
            for place in 0..NAMES.len() {
                // Every rank and generation in its own order, before one that has no name.
                let name = (place * (rank + 1) + generation as usize) % NAMES.len();
                let value = (rank as i32 + 1) * (name as i32 + 1);
                let mut held =
                    Held::new(Dtype::Int32, &value.to_ne_bytes().repeat(3000 * name + 1));
                let ticket = call_named(node, NAMES[name], &mut held).expect("it is taken");
                jobs.push((rank, name, ticket, held));
            }
            assert_eq!(call(node, Operation::AllReduce, 0, &mut plain[rank]), generation);
        }
        for node in &nodes {
            assert!(node.wait_call(generation, LONG).expect("no fault"));
        }
        for (rank, name, ticket, held) in jobs {
            assert!(nodes[rank].wait_call(ticket, LONG).expect("no fault"));
            let sum = 6 * (name as i32 + 1);
            let wanted = sum.to_ne_bytes().repeat(3000 * name + 1);
            assert!(held.content() == wanted, "{name} at {rank}");
        }
    }
    let mut first = Held::new(Dtype::Int32, &[0; 4]);
    let mut second = Held::new(Dtype::Int32, &[0; 4]);
    let ticket = call_named(&nodes[0], "loss", &mut first).expect("it is taken");
    let again = call_named(&nodes[0], "loss", &mut second).expect_err("it is under way");
    assert!(again.to_string().contains("loss"), "{again}");
    nodes[2].close();
    let fault = nodes[0].wait_call(ticket, LONG).expect_err("a rank has left");
    assert!(fault.to_string().contains("rank 2 has closed its node"), "{fault}");
    assert!(fault.to_string().contains("`loss`"), "{fault}");
}

#[test]
fn calls_of_a_name_that_differ_end_in_an_error_that_has_it() {
    let nodes = started(&[2], &json!({"named_calls": true}));
    let mut held = [Held::new(Dtype::Int32, &[0; 4000]), Held::new(Dtype::Float32, &[0; 4000])];
    let tickets: Vec<_> =
        nodes.iter().zip(&mut held).map(|(node, held)| call_named(node, "loss", held)).collect();
    for (node, ticket) in nodes.iter().zip(tickets) {
        let wait = ticket.and_then(|ticket| node.wait_call(ticket, LONG));
        let text = wait.expect_err("they differ").to_string();
        let wanted = "`loss` differs between ranks: rank 0 calls all_reduce of 1000 elements of int32, and rank 1 \
                      calls all_reduce of 1000 elements of float32";
        assert_eq!(text, wanted);
    }
    nodes.iter().for_each(|node| node.close());
}

/// No frame is sent where two ranks wait for a broadcast, each from the other: who waits says for what.
#[test]
fn calls_that_differ_without_a_frame_end_in_an_error_too() {
    for name in [None, Some("loss")] {
        let nodes = started(&[3], &json!({"named_calls": true}));
        let mut held: Vec<Held> = (0..2).map(|_| Held::new(Dtype::Uint8, &[0; 24])).collect();
        let asked = Asked { word: "scatter", dtype: "complex64", ..Asked::default() };
        let mut tickets = Vec::new();
        for ((node, held), root) in nodes[1..].iter().zip(&mut held).zip([2, 1]) {
            let (operation, dtype) = (Operation::Broadcast, Dtype::Uint8);
            let call = CallOf { operation, root, dtype, priority: 0, name, asked };
            let elements = held.elements();
            // SAFETY: it is kept until the nodes are closed.
            tickets
                .push(unsafe { node.call(&call, held.pointer(), elements) }.expect("it is taken"));
        }
        let about = name.map_or("call 0".to_owned(), |name| format!("`{name}`"));
        let wanted = format!(
            "{about} differs between ranks: rank 1 calls scatter of 1 element of complex64 per rank from rank 2, and \
             rank 2 calls scatter of 1 element of complex64 per rank from rank 1"
        );
        for (node, ticket) in nodes[1..].iter().zip(tickets) {
            assert_eq!(node.wait_call(ticket, LONG).expect_err("they differ").to_string(), wanted);
        }
        nodes.iter().for_each(|node| node.close());
    }
}
