//! All-reduces over grids: proved, steps equal to messages, closed forms equal to counts.

use std::collections::BTreeMap;

use allrail_collective::grid::{ALL, GridAllReduce, named};
use allrail_collective::steps::Sized;
use allrail_collective::verify::verify;
use allrail_collective::{CollectiveError, Operation, Steps};
use allrail_core::{Bandwidth, Bytes, FieldError, Time};

const SHAPES: [(u32, u32); 16] = [
    (2, 2),
    (4, 2),
    (2, 4),
    (2, 3),
    (3, 2),
    (3, 3),
    (4, 4),
    (5, 3),
    (3, 5),
    (1, 6),
    (6, 1),
    (1, 2),
    (8, 4),
    (4, 8),
    (9, 3),
    (5, 5),
];

/// All pairs that the algorithms accept.
pub(crate) fn cases(shapes: &[(u32, u32)]) -> Vec<(&'static dyn GridAllReduce, u32, u32)> {
    let of_shape = |&(rows, columns): &(u32, u32)| {
        let accepted = ALL.iter().filter(move |a| a.check(rows, columns).is_ok());
        accepted.map(move |algorithm| (*algorithm, rows, columns))
    };
    shapes.iter().flat_map(of_shape).collect()
}

pub(crate) fn sends(steps: &dyn Steps, rank: u32, step: u32) -> Vec<(u32, Bytes)> {
    let mut out = Vec::new();
    steps.sends(rank, step, &mut out);
    out
}

pub(crate) fn sorted(mut sends: Vec<(u32, Bytes)>) -> Vec<(u32, Bytes)> {
    sends.sort_unstable();
    sends
}

fn prove(cases: &[(&'static dyn GridAllReduce, u32, u32)]) {
    for (algorithm, rows, columns) in cases {
        let program = algorithm.program(*rows, *columns);
        let proof = verify(&program, Operation::AllReduce)
            .unwrap_or_else(|violation| panic!("{algorithm:?} {rows}x{columns}: {violation}"));
        let cost = algorithm.cost(*rows, *columns);
        assert_eq!((proof.ranks, proof.steps), (rows * columns, cost.steps), "{algorithm:?}");
        assert_eq!(program.step_count(), cost.steps as usize, "an empty step: {algorithm:?}");
        let busiest = (0..proof.ranks).map(|rank| program.blocks_sent(rank)).max().unwrap_or(0);
        assert_eq!(
            busiest * cost.sent.1,
            cost.sent.0 * u64::from(program.blocks),
            "{algorithm:?} {rows}x{columns}"
        );
    }
}

#[test]
fn every_algorithm_is_proved_on_every_shape_that_it_accepts() {
    let cases = cases(&SHAPES);
    prove(&cases);
    for algorithm in ALL {
        assert!(cases.iter().filter(|case| case.0.tag() == algorithm.tag()).count() >= 8);
    }
}

#[test]
#[ignore = "seconds: the proof keeps every block of every rank"]
fn every_algorithm_is_proved_on_larger_grids() {
    prove(&cases(&[(16, 8), (12, 9), (16, 16)]));
}

#[test]
fn steps_are_the_messages_of_the_program() {
    for (algorithm, rows, columns) in cases(&SHAPES) {
        let program = algorithm.program(rows, columns);
        // A byte too few: the last block is padded.
        let size = Bytes::new(u64::from(program.blocks) * 1000 - 1);
        let oracle = Sized { program: &program, block: Bytes::new(1000) };
        let steps = algorithm.steps(rows, columns, size);
        assert_eq!((steps.ranks(), steps.steps()), (oracle.ranks(), oracle.steps()));
        for rank in 0..oracle.ranks() {
            for step in 0..oracle.steps() {
                let what = format!("{algorithm:?} {rows}x{columns}, rank {rank}, step {step}");
                // They leave together: their order says nothing.
                let expected = sorted(sends(&oracle, rank, step));
                assert_eq!(sorted(sends(&*steps, rank, step)), expected, "{what}");
                assert_eq!(steps.expected(rank, step), oracle.expected(rank, step), "{what}");
            }
        }
    }
}

#[test]
fn alike_steps_are_alike_and_runs_are_as_long_as_they_can_be() {
    for (algorithm, rows, columns) in cases(&SHAPES) {
        let steps = algorithm.steps(rows, columns, Bytes::new(1 << 20));
        let all = |step| -> Vec<_> {
            (0..steps.ranks()).map(|rank| sends(&*steps, rank, step)).collect()
        };
        let same: Vec<bool> = (1..steps.steps()).map(|step| all(step) == all(step - 1)).collect();
        let mut claimed = vec![false; same.len()];
        let mut end = 0;
        for run in steps.alike() {
            assert!(run.start >= end && run.len() > 1 && run.end <= steps.steps(), "{run:?}");
            end = run.end;
            claimed[run.start as usize..run.end as usize - 1].fill(true);
        }
        assert_eq!(claimed, same, "{algorithm:?} {rows}x{columns}");
    }
}

#[test]
fn runs_of_rings_and_phases() {
    let alike = |tag: &str, rows, columns| {
        let steps = named(tag).expect("known").steps(rows, columns, Bytes::new(1 << 20));
        steps.alike().iter().map(|run| (run.start, run.end)).collect::<Vec<_>>()
    };
    assert_eq!(alike("ring", 32, 32), [(0, 2046)]);
    assert_eq!(alike("rings", 32, 32), [(0, 2046)]);
    assert_eq!(alike("hierarchical", 8, 4), [(0, 3), (3, 17), (17, 20)]);
    assert_eq!(alike("torus", 8, 8), [(0, 7), (7, 21), (21, 28)]);
    assert_eq!(alike("torus", 8, 4), [(0, 3), (3, 7), (7, 13), (13, 17), (17, 20)]);
    // With K = 16 segments and H = 4 levels: filling, full, running out.
    assert_eq!(alike("tree", 4, 4), [(7, 16)]);
}

/// (Bytes on the busiest link, sum over steps of the busiest) from the messages on a torus with
/// sides of 3 or more, in which all are between neighbours.
fn link_load(steps: &dyn Steps, rows: u32, columns: u32) -> (u64, u64) {
    let mut whole: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut in_step = 0;
    for step in 0..steps.steps() {
        let mut here: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for rank in 0..steps.ranks() {
            for (to, bytes) in sends(steps, rank, step) {
                let apart = |a: u32, b: u32, size: u32| a.abs_diff(b).min(size - a.abs_diff(b));
                let hops = apart(rank / columns, to / columns, rows)
                    + apart(rank % columns, to % columns, columns);
                assert_eq!(hops, 1, "from {rank} to {to}");
                *here.entry((rank, to)).or_default() += bytes.count();
                *whole.entry((rank, to)).or_default() += bytes.count();
            }
        }
        in_step += here.values().max().copied().unwrap_or(0);
    }
    (whole.values().max().copied().unwrap_or(0), in_step)
}

#[test]
fn bytes_on_the_links_of_a_torus_are_the_closed_forms() {
    let shapes =
        [(3, 3), (4, 4), (5, 3), (3, 5), (4, 6), (8, 4), (4, 8), (9, 3), (16, 8), (16, 16), (7, 9)];
    for (algorithm, rows, columns) in cases(&shapes) {
        let Some(link) = algorithm.cost(rows, columns).link else { continue };
        let size = 8 * u64::from(rows * columns) * 64;
        let steps = algorithm.steps(rows, columns, Bytes::new(size));
        let (bytes, in_step) = link_load(&*steps, rows, columns);
        let what = format!("{algorithm:?} {rows}x{columns}");
        assert_eq!(bytes * link.bytes.1, link.bytes.0 * size, "{what}: on the busiest link");
        assert_eq!(in_step * link.in_step.1, link.in_step.0 * size, "{what}: in step");
    }
}

/// `HammingMesh` (SC'22, Section V), counted exactly: two rings and the 2D algorithm on a square load
/// their links alike; other shapes cost more.
#[test]
fn the_published_loads() {
    let load = |tag: &str, rows, columns| {
        let bytes = named(tag).expect("known").cost(rows, columns).link.expect("a form").bytes;
        bytes.0 as f64 / bytes.1 as f64
    };
    for (rows, columns, published) in [(8, 4, 0.547), (9, 3, 0.593), (16, 8, 0.527)] {
        assert!((load("torus", rows, columns) - published).abs() < 5e-4, "{rows}x{columns}");
    }
    for side in [4, 8, 16, 32, 64, 128] {
        let p = f64::from(side * side);
        for (tag, factor) in [("rings", 0.5), ("torus", 0.5), ("ring", 1.0)] {
            assert!((load(tag, side, side) - factor * (p - 1.0) / p).abs() < 1e-12, "{tag}");
        }
    }
}

#[test]
fn times_and_shares() {
    let cost = named("rings").expect("known").cost(32, 32);
    let (latency, link) = (Time::from_ns(20), "50 GB/s".parse::<Bandwidth>().expect("a bandwidth"));
    // 2046 · 20 ns + (1 GiB / 2) · 1023/1024 / 50 GB/s.
    let time = cost.time(Bytes::new(1 << 30), latency, link).expect("a time");
    assert_eq!(time, Time::from_ps(2046 * 20_000 + (1023 << 19) * 20));
    let share = |tag: &str| named(tag).expect("known").cost(32, 32).share_of_peak();
    assert_eq!(share("rings"), Some(1024.0 / 1023.0));
    assert_eq!(share("torus"), share("rings"));
    assert_eq!(share("ring"), Some(512.0 / 1023.0));
    assert_eq!(share("tree"), None);
    assert_eq!(cost.time(Bytes::new(u64::MAX), Time::from_ps(u64::MAX), link), None);
}

#[test]
fn large_grids_need_no_memory_for_messages() {
    for algorithm in ALL {
        let steps = algorithm.steps(128, 128, Bytes::new(1 << 34));
        let (mut all, mut out) = (0, Vec::new());
        for step in (0..steps.steps()).step_by(997) {
            for rank in 0..steps.ranks() {
                out.clear();
                steps.sends(rank, step, &mut out);
                all += out.len();
            }
        }
        assert!(all > 0, "{algorithm:?}");
    }
}

#[test]
fn what_is_no_grid_for_an_algorithm_is_refused() {
    let refused = |tag: &str, rows, columns| match named(tag).expect("known").check(rows, columns) {
        Err(CollectiveError::Field(FieldError { field, value, why, hint })) => {
            assert_eq!(
                (field.as_str(), value),
                ("traffic.algorithm", format!("{tag} on {rows}x{columns}"))
            );
            assert!(!hint.is_empty());
            why
        }
        other => panic!("{tag} on {rows}x{columns}: {other:?}"),
    };
    assert!(refused("rings", 96, 4).contains("gcd(96, 3) is 3"));
    assert!(refused("torus", 1, 8).contains("2 rows"));
    assert!(refused("hierarchical", 8, 1).contains("2 rows and 2 columns"));
    assert!(refused("ring", 1, 1).contains("fewer than 2"));
    assert!(refused("tree", 0, 4).contains("fewer than 2"));
    assert!(refused("ring", 1 << 16, 1 << 16).contains("at most"));
    assert!(refused("rings", 1 << 15, 1 << 15).contains("at most"));
    let unknown = named("rnigs").expect_err("unknown");
    let CollectiveError::UnknownAlgorithm { known, .. } = unknown else { panic!("{unknown}") };
    let all = ["rings", "torus", "ring", "ring_unidirectional", "hierarchical", "tree"];
    assert_eq!(known, all);
}
