//! Nothing is left of a node, and nothing grows while it runs. Each test is in a process of its own, as others
//! have threads and sockets too.

use serde_json::{Value, json};

use crate::cluster::{bind, connected, links, over, started, submit, wait};

const ALONE: &str = "ALLRAIL_TEST_ALONE";

/// Whether this process is the test's own; else it was run in one, and has passed.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("this test"));
    let command = command.args([name, "--exact", "--test-threads=1"]).env(ALONE, "1");
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    false
}

/// How many threads, open files, and pieces of memory shared with ranks this process has.
fn held() -> [usize; 3] {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("on Linux");
    let shared = maps.lines().filter(|line| line.contains("memfd:allrail")).count();
    [count("/proc/self/task"), count("/proc/self/fd"), shared]
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("on Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a number");
    4096 * pages
}

#[test]
fn nothing_is_left_of_a_node_that_is_closed_dropped_or_broken() {
    if !is_alone("leaks::nothing_is_left_of_a_node_that_is_closed_dropped_or_broken") {
        return;
    }
    let before = held();
    for round in 0..18 {
        let nodes = connected(&[2, 2], &links()[round / 6]);
        assert_eq!(held()[2] > 0, round < 6, "ranks in one process are on one host");
        let mut tensors = started(&nodes, 1000);
        if round % 3 > 0 {
            for (node, (key, held)) in nodes.iter().zip(&mut tensors).take(4 - round % 2) {
                submit(node, *key, held);
            }
        }
        if round % 2 == 0 {
            nodes.iter().for_each(|node| node.close());
        }
        drop(nodes);
        // What was under way may be anything, but its guards are whole.
        tensors.iter().for_each(|(_, held)| drop(held.content().to_vec()));
    }
    // Bound, and connected, and no more.
    drop(bind(0, &[2], &json!({})));
    drop(connected(&[3], &json!({})));
    assert_eq!(held(), before);
}

#[test]
fn nothing_grows_from_step_to_step() {
    if !is_alone("leaks::nothing_grows_from_step_to_step") {
        return;
    }
    links().iter().for_each(steps_over);
}

fn steps_over(link: &Value) {
    let nodes = connected(&[2, 2], &over(link, &json!({"partition": "16 KiB"})));
    let mut tensors = started(&nodes, 20_000);
    let mut step = |generation: u64| {
        for (node, (key, held)) in nodes.iter().zip(&mut tensors) {
            assert_eq!(submit(node, *key, held), generation);
        }
        for (node, (key, _)) in nodes.iter().zip(&tensors) {
            wait(node, *key, generation).expect("no fault");
        }
        nodes.iter().for_each(|node| drop(node.next_completions(std::time::Duration::ZERO)));
    };
    (0..500).for_each(&mut step);
    // Less than a kilobyte a step would be seen. How deep queues are depends on what the machine does beside, so
    // that a longer one than ever before may ask for memory; what grows does so each time.
    let mut seen = vec![(held(), resident())];
    for round in 0..3 {
        (500 + 1500 * round..2000 + 1500 * round).for_each(&mut step);
        let (before, after) = (seen[seen.len() - 1], (held(), resident()));
        assert_eq!(before.0, after.0);
        seen.push(after);
        if after.1 < before.1 + (1 << 20) {
            return;
        }
    }
    panic!("{seen:?}");
}
