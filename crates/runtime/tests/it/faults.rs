//! What ends a job: every survivor says the same, in time, and nothing touches its memory after it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_engine::{Asked, Dtype};
use allrail_runtime::{Fault, FaultKind, Node, RuntimeError};
use allrail_schedule::Key;
use serde_json::{Value, json};

use crate::cluster::{
    Held, LONG, bind, connect_with, connected, links, over, register, started, submit, wait,
};

fn fault(node: &Node, key: Key, generation: u64) -> Fault {
    match node.wait(key, generation, LONG) {
        Err(RuntimeError::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

/// Rank 0 of three, in a process of its own that can be killed or stopped.
struct Rank0(Child);

const AS_RANK_0: &str = "ALLRAIL_TEST_RANK_0";

impl Rank0 {
    /// Sends a signal by name.
    fn signal(&self, name: &str) {
        let (signal, process) = (format!("-{name}"), self.0.id().to_string());
        let status = Command::new("kill").args([signal, process]).status();
        assert!(status.expect("`kill` runs").success());
    }
}

impl Drop for Rank0 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process runs; a test that has nothing to do otherwise.
#[test]
fn rank_0_in_a_process_of_its_own() {
    let Ok(more) = std::env::var(AS_RANK_0) else { return };
    let node = bind(0, &[3], &serde_json::from_str(&more).expect("settings"));
    eprintln!("{}", node.addresses()[0]);
    let mut table = String::new();
    std::io::stdin().read_line(&mut table).expect("a table");
    let table: Vec<Vec<String>> = serde_json::from_str(&table).expect("a table");
    let nodes = [node];
    connect_with(&nodes, &table);
    let _tensors = started(&nodes, 100_000);
    std::thread::sleep(LONG);
}

/// Ranks 1 and 2 here, rank 0 elsewhere; all have started, and rank 0 submits nothing.
fn with_rank_0(more: &Value) -> (Rank0, Vec<Arc<Node>>, Vec<(Key, Held)>) {
    let name = "faults::rank_0_in_a_process_of_its_own";
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args([name, "--exact", "--nocapture"])
        .env(AS_RANK_0, more.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut address = String::new();
    let mut output = BufReader::new(child.stderr.take().expect("its output"));
    output.read_line(&mut address).expect("its address");
    let nodes: Vec<Arc<Node>> = (1..3).map(|rank| bind(rank, &[3], more)).collect();
    let mut table = vec![vec![address.trim().to_owned()]];
    table.extend(nodes.iter().map(|node| node.addresses().to_vec()));
    let mut input = child.stdin.take().expect("its input");
    writeln!(input, "{}", json!(table)).expect("it reads");
    connect_with(&nodes, &table);
    let mut tensors = started(&nodes, 100_000);
    for (node, (key, held)) in nodes.iter().zip(&mut tensors) {
        submit(node, *key, held);
    }
    (Rank0(child), nodes, tensors)
}

#[test]
fn a_process_that_is_killed_is_named_by_all_others_at_once() {
    let mut slowest = Duration::ZERO;
    for round in 0..21 {
        let (rank_0, nodes, tensors) = with_rank_0(&links()[round % 3]);
        std::thread::sleep(Duration::from_millis(10));
        let begun = Instant::now();
        rank_0.signal("KILL");
        for (node, (key, _)) in nodes.iter().zip(&tensors) {
            let fault = fault(node, *key, 0);
            assert_eq!((fault.kind, fault.rank), (FaultKind::Died, Some(0)), "{fault}");
            assert_eq!(fault.tensor.as_deref(), Some("weight"));
            assert_eq!(fault.what, "rank 0 is lost: its process has ended without a word");
        }
        slowest = slowest.max(begun.elapsed());
    }
    // 0.1 s is asked, which a machine that does ten other things may not keep; a minute is how long a rank may be silent.
    eprintln!("the slowest of 21 deaths was told after {slowest:?}");
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
}

#[test]
fn a_process_that_is_stopped_is_given_up_in_time_and_not_before() {
    let links = links();
    std::thread::scope(|scope| {
        for link in &links {
            scope.spawn(|| stopped_over(link));
        }
    });
}

fn stopped_over(link: &Value) {
    let more = over(link, &json!({"timeouts": {"heartbeat": "20 ms", "silent": "3 s"}}));
    let (rank_0, nodes, tensors) = with_rank_0(&more);
    std::thread::sleep(Duration::from_secs(4));
    assert!(nodes.iter().all(|node| node.fault().is_none()), "it lives as long as it beats");
    rank_0.signal("STOP");
    let begun = Instant::now();
    for (node, (key, _)) in nodes.iter().zip(&tensors) {
        let fault = fault(node, *key, 0);
        assert_eq!((fault.kind, fault.rank), (FaultKind::Silent, Some(0)), "{fault}");
    }
    let waited = begun.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
}

#[test]
fn who_leaves_early_is_named_and_who_leaves_in_the_end_is_not_missed() {
    links().iter().for_each(who_leaves_over);
}

fn who_leaves_over(link: &Value) {
    let nodes = connected(&[3], link);
    let mut tensors = started(&nodes, 1000);
    for (node, (key, held)) in nodes.iter().zip(&mut tensors) {
        submit(node, *key, held);
    }
    // Whoever is done may close, as slow as the others are.
    for (node, (key, _)) in nodes.iter().zip(&tensors) {
        wait(node, *key, 0).expect("all take part");
        if node.settings().rank == 1 {
            node.close();
        }
    }
    let others = [0, 2];
    for rank in others {
        let (node, (key, held)) = (&nodes[rank], &mut tensors[rank]);
        let elements = held.elements();
        // SAFETY: it is kept until the nodes are closed.
        let fault = match unsafe { node.submit(*key, held.pointer(), elements) } {
            Ok(generation) => fault(node, *key, generation),
            // The other has found out before.
            Err(RuntimeError::Fault(fault)) => fault,
            Err(other) => panic!("{other}"),
        };
        assert_eq!((fault.kind, fault.rank), (FaultKind::Left, Some(1)), "{fault}");
        assert!(fault.what.contains("exchange 2 of tensor `weight`"), "{fault}");
    }
}

#[test]
fn another_shape_or_type_is_named_on_every_rank() {
    let wrong = [(Dtype::Int32, 400, "of int32"), (Dtype::Float32, 404, "with layout")];
    for ((dtype, bytes, what), link) in wrong.into_iter().cycle().zip(links()) {
        let nodes = connected(&[3], &link);
        let mut tensors: Vec<(Key, Held)> = Vec::new();
        for (rank, node) in nodes.iter().enumerate() {
            let (dtype, bytes) = if rank == 2 { (dtype, bytes) } else { (Dtype::Float32, 400) };
            let held = Held::new(dtype, &vec![0; bytes]);
            tensors.push((register(node, "weight", &held, 0), held));
            node.start().expect("it starts");
        }
        let mut texts = Vec::new();
        for (node, (key, held)) in nodes.iter().zip(&mut tensors) {
            let elements = held.elements();
            // SAFETY: it is kept until the nodes are closed.
            let made = unsafe { node.submit(*key, held.pointer(), elements) };
            match made.and_then(|generation| node.wait(*key, generation, Duration::ZERO)) {
                Ok(_) | Err(RuntimeError::Fault(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        for (node, (key, _)) in nodes.iter().zip(&tensors) {
            let end = Instant::now() + LONG;
            while node.fault().is_none() && Instant::now() < end {
                let _ = node.wait(*key, 0, Duration::from_millis(10));
            }
            let fault = node.fault().expect("it ends");
            assert!(fault.to_string().starts_with("`weight` differs between ranks"), "{fault}");
            texts.push(fault.what);
        }
        assert!(texts.iter().all(|text| text.contains(what)), "{what}: {texts:?}");
        nodes.iter().for_each(|node| node.close());
    }
}

#[test]
fn calls_out_of_turn_and_memory_that_is_taken_are_refused() {
    let nodes = connected(&[2], &json!({}));
    let mut tensors = started(&nodes, 100);
    let (key, held) = &mut tensors[0];
    assert!(matches!(nodes[0].start(), Err(RuntimeError::OutOfTurn { .. })));
    assert!(nodes[0].connect(&[], &mut || true).is_err());
    let elements = held.elements();
    // SAFETY: refused, or kept until it is done.
    let mut try_submit = |elements, offset: usize| unsafe {
        nodes[0].submit(*key, held.pointer().wrapping_add(offset), elements)
    };
    let error = try_submit(elements - 1, 0).expect_err("another size").to_string();
    assert!(error.contains("registered with 100 elements"), "{error}");
    assert_eq!(try_submit(elements, 0), Ok(0));
    assert!(try_submit(elements, 0).is_err(), "it is under way");
    let call = allrail_runtime::CallOf {
        operation: allrail_collective::Operation::AllReduce,
        root: 0,
        dtype: Dtype::Float32,
        priority: 0,
        name: None,
        asked: Asked::default(),
    };
    // SAFETY: it is refused, as this memory is in use.
    let taken = unsafe { nodes[0].call(&call, held.pointer().wrapping_add(396), 1) };
    assert!(taken.expect_err("taken").to_string().contains("some of this memory"));
    let (key, held) = &mut tensors[1];
    submit(&nodes[1], *key, held);
    for (node, (key, _)) in nodes.iter().zip(&tensors) {
        wait(node, *key, 0).expect("all take part");
    }
    nodes[0].close();
    nodes[0].close();
    let closed = nodes[0].wait(tensors[0].0, 1, Duration::ZERO);
    assert!(closed.is_err(), "{closed:?}");
}
