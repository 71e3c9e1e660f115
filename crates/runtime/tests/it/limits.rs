//! Two that claim one rank, and too few open files: said at once, with what to do.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_runtime::{Node, RuntimeError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::cluster::{bind, settings};

/// Where all but one rank have come, and one of them twice, whoever listens says so, and does not wait.
#[test]
fn a_second_claimant_of_a_rank_is_named_at_once() {
    let more = json!({"timeouts": {"connect": "10 s", "link": "10 s", "silent": "60 s",
        "heartbeat": "1 s", "warn": "60 s", "stalled": "1800 s"}});
    let nodes: Vec<Arc<Node>> = [0, 2, 2].into_iter().map(|rank| bind(rank, &[3], &more)).collect();
    let address = |node: &Arc<Node>| node.addresses().to_vec();
    // Nobody is where rank 1 should be.
    let table = [address(&nodes[0]), vec!["127.0.0.1:9".to_owned()], address(&nodes[1])];
    let began = Instant::now();
    let errors: Vec<RuntimeError> = std::thread::scope(|scope| {
        let connect = |node: &Arc<Node>| {
            let (node, table) = (Arc::clone(node), &table);
            scope.spawn(move || node.connect(table, &mut || true).expect_err("rank 1 is missing"))
        };
        let first = connect(&nodes[0]);
        let others: Vec<_> = nodes[1..].iter().map(connect).collect();
        let error = first.join().expect("no panic");
        assert!(began.elapsed() < Duration::from_secs(8), "it is said at once: {error}");
        std::iter::once(error)
            .chain(others.into_iter().map(|one| one.join().expect("no panic")))
            .collect()
    });
    let text = errors[0].to_string();
    assert!(text.contains("two processes say that they are rank 2: "), "{text}");
    assert!(errors[0].hint().is_some_and(|hint| hint.contains("a rank of its own")));
}

const FEW_FILES: &str = "ALLRAIL_TEST_FEW_FILES";

/// Connects ranks in this process, and starts them: the first error, and after what time it was said.
fn all(ranks: u32, more: &Value) -> Result<(), (Duration, RuntimeError)> {
    let began = Instant::now();
    let nodes: Vec<Arc<Node>> = (0..ranks)
        .map(|rank| Node::bind(settings(rank, &[ranks], more)).map(Arc::new))
        .collect::<Result<_, _>>()
        .map_err(|error| (began.elapsed(), error))?;
    let table: Vec<Vec<String>> = nodes.iter().map(|node| node.addresses().to_vec()).collect();
    std::thread::scope(|scope| {
        let connect = |node: &Arc<Node>| {
            let (node, table) = (Arc::clone(node), &table);
            scope.spawn(move || {
                let made = node.connect(table, &mut || true).and_then(|()| node.start());
                made.map_err(|error| (began.elapsed(), error))
            })
        };
        let all: Vec<_> = nodes.iter().map(connect).collect();
        let ends: Vec<_> = all.into_iter().map(|one| one.join().expect("no panic")).collect();
        // Of those that end because another has, the hint is another.
        let few = |end: &Result<(), (Duration, RuntimeError)>| {
            matches!(end, Err((_, RuntimeError::System { .. })))
        };
        let place = ends.iter().position(few).unwrap_or(0);
        ends.into_iter().nth(place).unwrap_or(Ok(()))
    })
}

/// What the other process runs, which may have few files; a test that has nothing to do otherwise.
#[test]
#[expect(clippy::print_stdout, reason = "the process that has started this one looks for it")]
fn ranks_with_few_files() {
    let Ok(shared) = std::env::var(FEW_FILES) else { return };
    let more = json!({"shared_memory": shared == "true", "timeouts": {"connect": "3 s", "link": "10 s",
        "silent": "60 s", "heartbeat": "1 s", "warn": "60 s", "stalled": "1800 s"}});
    let most = getrlimit(Resource::Nofile).maximum;
    let mut refused = 0;
    for files in (12..400).step_by(9) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: most }).expect("fewer");
        let Err((after, error)) = all(6, &more) else { continue };
        refused += 1;
        assert!(matches!(error, RuntimeError::System { .. }), "{files} files: {error}");
        let hint = error.hint().unwrap_or_default();
        let wanted = hint.split("ulimit -n ").nth(1).and_then(|rest| rest.split('`').next());
        let wanted: u64 = wanted.and_then(|text| text.parse().ok()).expect("a number");
        assert!(after < Duration::from_millis(2500), "{files} files: at once, not after {after:?}");
        // The hint works when it is followed.
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: most }).expect("more");
        all(6, &more).unwrap_or_else(|(_, error)| panic!("{files} files, then {wanted}: {error}"));
    }
    assert!(refused > 3, "{refused}");
    println!("all is said");
}

#[test]
fn too_few_open_files_are_said_at_once_with_the_number_that_is_needed() {
    for shared in ["true", "false"] {
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["limits::ranks_with_few_files", "--exact", "--nocapture"])
            .env(FEW_FILES, shared)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("all is said"), "{said}\n{errors}");
    }
}
