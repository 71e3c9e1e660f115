//! The laws of the engine's loopback driver, over sockets and threads: the same jobs, from the same seeds,
//! and the same checks of what every rank holds; seeds take turns over what ranks may have between them. `LAW_SEEDS` says how many, `LAW_FIRST_SEED` where they begin.
//!
//! What the loopback's adversary decides, here the machine does: which thread runs when, how a stream of
//! bytes is cut, how much a socket takes.

#[path = "../../../engine/tests/it/loopback/contents.rs"]
#[allow(dead_code, reason = "shared with the loopback driver, which has more laws")]
mod contents;
#[path = "../../../engine/tests/it/loopback/draw.rs"]
#[allow(dead_code, reason = "shared with the loopback driver, which has more laws")]
mod draw;
#[path = "../../../engine/tests/it/loopback/faults.rs"]
#[allow(dead_code, reason = "shared with the loopback driver, which has more laws")]
mod faults;
#[path = "../../../engine/tests/it/loopback/job.rs"]
#[allow(dead_code, reason = "shared with the loopback driver, which has more laws")]
mod job;
#[path = "../../../engine/tests/it/loopback/plans.rs"]
#[allow(dead_code, reason = "shared with the loopback driver, which has more laws")]
mod plans;

use std::sync::Arc;
use std::time::Instant;

use allrail_engine::engine::{Engine, Stopped};
use allrail_runtime::{CallOf, Fault, Node, Registered, RuntimeError, replay};
use serde_json::{Value, json};

pub(crate) use self::job::{Job, Transport};

use self::contents::GUARD;
use self::faults::TakenFor;
use crate::cluster::{LONG, connect_with, links, settings};

/// What became of a rank.
#[derive(Default)]
pub(crate) struct RankOutcome {
    /// Of each tensor what its memory was after each exchange, with the guards before and behind it.
    pub(crate) results: Vec<Vec<Vec<u8>>>,
    /// Only the loopback driver fills these.
    pub(crate) stopped: Option<Stopped>,
    pub(crate) left: Vec<Vec<u8>>,
    pub(crate) notes: Vec<String>,
    pub(crate) fault: Option<Fault>,
}

fn bind(job: &Job, rank: u32, link: &Value) -> Arc<Node> {
    let (engine, plans, peers) = job.engine_of(rank);
    let mut more = link.clone();
    more["records"] = json!(1 << 16);
    let settings = settings(rank, &job.sizes, &more);
    Arc::new(Node::with_engine(settings, engine, plans, peers).expect("a free port"))
}

/// Memory whose guards are part of it.
fn pointer(memory: &mut [u8]) -> *mut u8 {
    memory[GUARD..].as_mut_ptr()
}

fn run_rank(job: &Job, rank: u32, node: &Node) -> RankOutcome {
    let tensors = job.tensors.len();
    let mut outcome = RankOutcome { results: vec![Vec::new(); tensors], ..RankOutcome::default() };
    let mut memory: Vec<Vec<u8>> = vec![Vec::new(); tensors];
    let mut tickets = vec![0; tensors];
    let wait = |tensor: usize, generation: usize, ticket: u64| -> Result<(), RuntimeError> {
        let done = match job.calls {
            true => node.wait_call(ticket, LONG)?,
            false => node.wait(job.key_of(rank, tensor), generation as u64, LONG)?,
        };
        assert!(done, "rank {rank} waits for ever for {tensor}: {:?}", node.report());
        Ok(())
    };
    let mut run = || -> Result<(), RuntimeError> {
        for (generation, tensor) in &job.submissions[rank as usize] {
            let (generation, tensor) = (*generation, *tensor);
            if generation > 0 {
                wait(tensor, generation - 1, tickets[tensor])?;
                outcome.results[tensor].push(memory[tensor].clone());
            }
            memory[tensor] = contents::memory(job, (generation, tensor), rank);
            let at = pointer(&mut memory[tensor]);
            let TakenFor { dtype, elements, operation, root, .. } = job.taken_for(rank, tensor);
            let priority = job.tensors[tensor].priority;
            let key = job.key_of(rank, tensor);
            let unused = job.unused.contains(&(generation, rank, tensor));
            let name = job.named.then(|| job.name(tensor));
            let name = name.as_deref();
            // SAFETY: it is left alone until it is done, or the node is closed.
            tickets[tensor] = unsafe {
                match (job.calls, unused) {
                    (true, _) => node.call(
                        &CallOf {
                            operation,
                            root,
                            dtype,
                            priority,
                            name,
                            asked: allrail_engine::Asked::default(),
                        },
                        at,
                        elements,
                    )?,
                    (false, true) => node.unused(key, at, elements)?,
                    (false, false) => node.submit(key, at, elements)?,
                }
            };
        }
        for tensor in 0..tensors {
            let last = job.submissions[rank as usize].iter().filter(|one| one.1 == tensor).count();
            if last > 0 {
                wait(tensor, last - 1, tickets[tensor])?;
                outcome.results[tensor].push(memory[tensor].clone());
            }
        }
        Ok(())
    };
    match run() {
        Ok(()) => {}
        Err(RuntimeError::Fault(fault)) => outcome.fault = Some(fault),
        Err(other) => panic!("rank {rank}: {other}"),
    }
    if outcome.fault.is_some() || job.submissions[rank as usize].is_empty() {
        // What is under way stays until nobody can touch it.
        node.close();
    }
    outcome.notes = node.report().notes;
    outcome
}

/// The tensors of a rank, each rank's in an order of its own.
fn registered(job: &Job, rank: u32) -> impl Iterator<Item = Registered> {
    let mut numbers: Vec<usize> = (0..job.tensors.len()).filter(|_| !job.calls).collect();
    if !job.calls {
        numbers.rotate_left(rank as usize % job.tensors.len());
    }
    numbers.into_iter().map(move |number| {
        let TakenFor { name, dtype, elements, .. } = job.taken_for(rank, number);
        Registered {
            name,
            dtype: dtype.name().to_owned(),
            shape: vec![elements],
            strides: Vec::new(),
            place: number as u32,
            group: job.engine.as_ref().and_then(|setup| setup.groups[number]),
        }
    })
}

/// What a rank has recorded, told to an engine alone, brings the same decisions: nothing else decides, whether
/// ranks agree on what has happened or see it each for themselves.
fn decides_alike_again(job: &Job, rank: u32, node: &Node, has_ended: bool) {
    let (settings, plans, _) = job.engine_of(rank);
    let mut engine = Engine::new(settings, plans).expect("as before");
    for tensor in registered(job, rank) {
        engine.register(tensor.registration().expect("it is dense")).expect("as before");
    }
    assert_eq!(node.timeline().lost, 0, "more places for records are needed");
    let same = replay(&mut engine, &node.records());
    let same = same.unwrap_or_else(|differs| panic!("rank {rank}: {differs}"));
    // Another rank's fault may be heard of before anything was decided.
    assert!(same > 0 || has_ended || job.submissions[rank as usize].is_empty());
}

/// Carries a job out; a rank that ends with a fault is closed, and the others go on as long as they can.
fn run(job: &Job, link: &Value) -> Vec<RankOutcome> {
    let nodes: Vec<Arc<Node>> = (0..job.ranks()).map(|rank| bind(job, rank, link)).collect();
    let table: Vec<Vec<String>> = nodes.iter().map(|node| node.addresses().to_vec()).collect();
    connect_with(&nodes, &table);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&nodes)
            .map(|(rank, node)| {
                scope.spawn(move || {
                    for tensor in registered(job, rank) {
                        node.register(tensor).expect("a tensor of a new name");
                    }
                    node.start().expect("it starts");
                    let outcome = run_rank(job, rank, node);
                    decides_alike_again(job, rank, node, outcome.fault.is_some());
                    outcome
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs jobs of many seeds, and checks what each leaves.
fn law(name: &str, job_of: impl Fn(u64) -> Job, check: impl Fn(&Job, &[RankOutcome], &str)) {
    let first = number("LAW_FIRST_SEED", 0);
    let begun = Instant::now();
    for seed in first..first + number("LAW_SEEDS", 15) {
        let job = job_of(seed);
        let again =
            format!("LAW_FIRST_SEED={seed} LAW_SEEDS=1 cargo test -p allrail-runtime {name}");
        let link = &links()[seed as usize % links().len()];
        check(&job, &run(&job, link), &format!("seed {seed} over {link} ({again})"));
    }
    eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
}

/// The most ranks of a job: each has a thread for each dimension, and one more.
const MOST_RANKS: u32 = 12;

fn right(job: &Job, outcome: &[RankOutcome], what: &str) {
    for (rank, of_rank) in outcome.iter().enumerate() {
        assert_eq!(of_rank.fault, None, "{what}: rank {rank}");
        assert_eq!(of_rank.notes, [""; 0], "{what}: rank {rank}");
    }
    contents::check(job, outcome, None, what);
}

#[test]
fn whatever_ranks_submit_in_any_order_is_exchanged_over_sockets() {
    let job = |seed| Job::engines(seed, MOST_RANKS, Transport::Tagged);
    law("whatever_ranks_submit", job, right);
}

#[test]
fn with_one_order_for_all_tensors_are_exchanged_over_sockets() {
    let job = |seed| Job::engines(seed, MOST_RANKS, Transport::InOrder);
    law("with_one_order_for_all", job, right);
}

#[test]
fn calls_of_any_kind_are_carried_out_over_sockets() {
    law("calls_of_any_kind", |seed| Job::calls(seed, MOST_RANKS), right);
}

#[test]
fn names_are_forgotten_and_used_again_over_sockets() {
    law("names_are_forgotten", |seed| Job::names_used_again(seed, MOST_RANKS), right);
}

/// Where one rank has something else, every rank ends: with its results, or with a fault that is named.
#[test]
fn whoever_has_something_else_is_found_over_sockets() {
    let differs = |seed: u64| {
        let all = (0..).map(|i| Job::faulty_calls(seed + 1000 * i, MOST_RANKS));
        let one = |job: &Job| matches!(job.fault, Some(faults::Fault::Differs(_)));
        all.into_iter().find(one).expect("some job")
    };
    let check = |job: &Job, outcome: &[RankOutcome], what: &str| {
        let faults: Vec<&Fault> = outcome.iter().filter_map(|one| one.fault.as_ref()).collect();
        for fault in &faults {
            assert!(!fault.what.is_empty() && fault.rank.is_none_or(|rank| rank < job.ranks()));
        }
        let done = |one: &RankOutcome| one.results.iter().map(Vec::len).sum::<usize>();
        for (rank, of_rank) in outcome.iter().enumerate() {
            let all = job.submissions[rank].len();
            assert!(of_rank.fault.is_some() || done(of_rank) == all, "{what}: rank {rank}");
        }
    };
    law("whoever_has_something_else", differs, check);
}

/// Groups that are beside each other on a fabric need nothing of each other.
#[test]
fn a_group_that_has_nothing_to_do_may_leave_the_others() {
    let beside = |seed: u64| {
        let all = (0..).map(|i| Job::engines(seed + 1000 * i, MOST_RANKS, Transport::Tagged));
        let group = |job: &Job| job.group(&job.tensors[0].dimensions, 0);
        let job = all.into_iter().find(|job| (group(job).len() as u32) < job.ranks());
        let mut job = job.expect("some job");
        let with_0 = group(&job);
        for rank in (0..job.ranks()).filter(|rank| !with_0.contains(rank)) {
            job.submissions[rank as usize].clear();
        }
        job
    };
    law("a_group_that_has_nothing_to_do", beside, right);
}
