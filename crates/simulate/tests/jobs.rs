//! Jobs side by side on a `HammingMesh` with failed boards: what each keeps of its bandwidth.

use std::ops::ControlFlow;
use std::sync::Arc;

use allrail_collective::Steps;
use allrail_core::Bytes;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::placement::{Fold, Numbering, Placed};
use allrail_fabric::topologies::GraphTopology;
use allrail_fabric::topologies::hammingmesh::HammingMesh;
use allrail_simulate::jobs::events::{Side, rates};
use allrail_simulate::jobs::loads::Loads;
use allrail_simulate::jobs::{Shares, Work, place, shares};
use allrail_world::World;
use allrail_world::flows::{Flows, Splitting};
use allrail_world::packets::{Packets, Settings};
use serde_json::{Value, json};

/// The preset `alibaba-2020`: sizes in boards, and numbers of jobs.
fn mix() -> Vec<[u64; 2]> {
    let file = "/../../python/allrail/presets/mixes/alibaba-2020.yaml";
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&file[1..]);
    let text = std::fs::read_to_string(file).expect("a preset");
    text.lines()
        .skip_while(|line| !line.starts_with("jobs:"))
        .filter_map(|line| line.strip_prefix("  ")?.split_once(": "))
        .map(|(size, jobs)| [size.parse().expect("a size"), jobs.parse().expect("jobs")])
        .collect()
}

fn mesh(keys: Value) -> HammingMesh {
    let mesh: HammingMesh = serde_json::from_value(keys).expect("its keys");
    mesh.validate().expect("a mesh");
    mesh
}

/// A mix on a mesh, placed as the paper does best, with so many failed boards.
fn placed(mesh: &HammingMesh, failed: u64, seed: u64) -> (HammingMesh, Vec<Placed>) {
    let mut fabric = serde_json::to_value(mesh).expect("plain data");
    fabric["topology"] = json!("hammingmesh");
    let request = json!({ "fabric": fabric, "mix": mix(), "count": 1, "sort": true, "seed": seed,
                          "transpose": true, "aspect": 8, "failed": failed });
    let told = place(request, &mut |_, _| ControlFlow::Continue(())).expect("it fits");
    let map = told.expect("nobody stops it")["map"].clone();
    let failed: Vec<[u32; 2]> = serde_json::from_value(map["failed"].clone()).expect("boards");
    let failed_boards = failed.into_iter().map(|[row, column]| [column, row]).collect();
    let jobs = serde_json::from_value(map["jobs"].clone()).expect("jobs");
    (HammingMesh { failed_boards, ..mesh.clone() }, jobs)
}

fn least(shares: &Shares) -> f64 {
    shares.jobs.iter().map(|job| job.share).fold(f64::INFINITY, f64::min)
}

fn job(job: u32, rows: &[u32], columns: &[u32]) -> Placed {
    Placed { job, rows: rows.to_vec(), columns: columns.to_vec() }
}

/// The jobs as a world runs them.
fn sides(mesh: &HammingMesh, jobs: &[Placed], work: Work, message: Bytes) -> Vec<Side> {
    let numbering = Numbering::new(mesh);
    let grids = jobs.iter().map(|job| numbering.grid(job));
    grids
        .map(|grid| Side { steps: work.steps(grid.rows, grid.columns, message), npus: grid.npus })
        .collect()
}

fn worlds(mesh: &HammingMesh) -> [Box<dyn World>; 2] {
    let graph = Arc::new(mesh.build().expect("it was checked"));
    let routing = mesh.routing(&graph).expect("its own");
    let flows = Flows::new(&graph, Splitting::Ecmp);
    let packets = Packets::new(graph, routing, &Settings::default(), 1).expect("its defaults");
    [Box::new(flows), Box::new(packets)]
}

/// The small cluster of boards of 2 x 2, with 10 failed boards.
fn small() -> HammingMesh {
    mesh(json!({ "board": [2, 2], "grid": [16, 16], "planes": 4 }))
}

/// The same boards; trees of two levels.
fn two_levels(taper: f64) -> HammingMesh {
    mesh(json!({ "board": [2, 2], "grid": [16, 16], "switch_radix": 16, "taper": taper }))
}

#[test]
fn every_job_keeps_what_it_has_alone_beside_failed_boards() {
    let large = mesh(json!({ "board": [4, 4], "grid": [8, 8], "planes": 4 }));
    let cases = [(small(), 10), (large, 4), (two_levels(0.0), 10)];
    for (empty, failed) in cases {
        let mut jobs = 0;
        for seed in 0..5 {
            let (mesh, placed) = placed(&empty, failed, seed);
            assert_eq!(mesh.failed_boards.len() as u64, failed);
            for work in [Work::AllReduce, Work::AllToAll] {
                let found = shares(&mesh, &placed, work).expect("jobs keep to their boards");
                assert_eq!(found.jobs.len(), placed.len());
                let least = least(&found);
                assert!(least >= 0.97, "{:?} {work:?} seed {seed}: {least}", empty.board);
                assert!(found.jobs.iter().all(|job| job.share < 1.0 + 1e-9));
                jobs += found.jobs.len();
            }
        }
        assert!(jobs > 100, "{jobs} jobs are no mixes");
    }
}

#[test]
fn fewer_uplinks_leave_less() {
    let of = |taper| {
        let (mesh, jobs) = placed(&two_levels(taper), 10, 3);
        shares(&mesh, &jobs, Work::AllReduce).expect("jobs keep to their boards")
    };
    let [whole, half, quarter] = [0.0, 0.5, 0.75].map(|taper| {
        let found = of(taper);
        assert!(found.above_leaves > 0.05, "{}", found.above_leaves);
        for job in &found.jobs {
            // The place costs something, and then the others.
            assert!(job.together <= job.in_place * (1.0 + 1e-9), "{job:?}");
        }
        found.jobs.iter().map(|job| job.together).sum::<f64>() / found.jobs.len() as f64
    });
    assert!(whole > half * 1.01 && half > quarter * 1.01, "{whole} {half} {quarter}");
    assert!(least(&of(0.75)) < 0.9, "a test that sees no interference shows nothing");
}

#[test]
fn the_order_of_jobs_changes_nothing_and_one_job_has_all() {
    let (mesh, mut jobs) = placed(&two_levels(0.75), 6, 1);
    let forward = shares(&mesh, &jobs, Work::AllReduce).expect("they run");
    jobs.reverse();
    let mut backward = shares(&mesh, &jobs, Work::AllReduce).expect("they run");
    backward.jobs.reverse();
    for (one, other) in forward.jobs.iter().zip(&backward.jobs) {
        assert_eq!((one.job, one.algorithm), (other.job, other.algorithm));
        assert!((one.together / other.together - 1.0).abs() < 1e-9, "{one:?} {other:?}");
    }
    let block = job(0, &[0, 1, 2], &[0, 1, 2]);
    for work in [Work::AllReduce, Work::AllToAll] {
        let empty = two_levels(0.75);
        let alone = shares(&empty, std::slice::from_ref(&block), work).expect("it runs");
        assert_eq!((alone.jobs[0].share, alone.jobs[0].in_place), (1.0, alone.jobs[0].alone));
    }
}

/// Jobs whose columns are far apart, so that their rings share uplinks.
fn spread() -> (HammingMesh, Vec<Placed>) {
    let keys = json!({ "board": [2, 2], "grid": [8, 4], "switch_radix": 8, "taper": 0.75,
                       "rows": "per_accelerator", "failed_boards": [[3, 1]] });
    let rows: Vec<u32> = (0..4).collect();
    let jobs = vec![
        job(0, &rows, &[0, 2, 4, 6]),
        job(1, &[0, 2], &[1, 5]),
        job(2, &rows, &[7]),
        job(3, &[0, 2, 3], &[3]),
        job(4, &[1], &[1, 5]),
    ];
    (mesh(keys), jobs)
}

fn together(
    mesh: &HammingMesh,
    jobs: &[Placed],
    work: Work,
    which: usize,
    steady: u32,
) -> Vec<f64> {
    let sides = sides(mesh, jobs, work, Bytes::new(1 << 18));
    rates(&mut *worlds(mesh).into_iter().nth(which).expect("two"), &sides, steady, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .expect("nothing stalls")
}

#[test]
fn in_the_long_run_messages_in_flows_come_to_the_steady_shares() {
    let (mesh, jobs) = spread();
    let found = shares(&mesh, &jobs, Work::AllReduce).expect("they run");
    assert!(least(&found) < 0.9, "they must be in each other's way");
    let all = together(&mesh, &jobs, Work::AllReduce, 0, 40);
    for ((one, found), rate) in jobs.iter().zip(&found.jobs).zip(all) {
        let alone = together(&mesh, std::slice::from_ref(one), Work::AllReduce, 0, 40)[0];
        let (measured, steady) = (rate / alone, found.together / found.in_place);
        println!("{} {measured} {steady}", found.algorithm);
        assert!((measured / steady - 1.0).abs() < 0.03, "{found:?}: {measured} {steady}");
    }
}

#[test]
fn one_body_in_two_worlds_keeps_97_percent() {
    let mesh = mesh(json!({ "board": [2, 2], "grid": [4, 4], "failed_boards": [[1, 1]] }));
    let jobs = [job(0, &[0, 2], &[0, 3]), job(1, &[1, 3], &[0, 3]), job(2, &[0, 2, 3], &[2])];
    for which in 0..2 {
        let all = together(&mesh, &jobs, Work::AllReduce, which, 4);
        for (one, rate) in jobs.iter().zip(all) {
            let block = job(
                0,
                &(0..one.rows.len() as u32).collect::<Vec<_>>(),
                &(0..one.columns.len() as u32).collect::<Vec<_>>(),
            );
            let empty = HammingMesh { failed_boards: Vec::new(), ..mesh.clone() };
            let alone = together(&empty, &[block], Work::AllReduce, which, 4)[0];
            println!("{which} {} {}", one.job, rate / alone);
            assert!(rate / alone >= 0.97, "world {which}, job {}: {}", one.job, rate / alone);
        }
    }
}

#[test]
fn a_way_over_another_jobs_board_is_an_error() {
    // Three levels; the board between leaves of two pods is a shorter way than the tree.
    let keys =
        json!({ "board": [1, 2], "grid": [12, 2], "switch_radix": 6, "rows": "per_accelerator" });
    let mesh = mesh(keys);
    let apart = [job(0, &[0], &[3, 5])];
    let error = shares(&mesh, &apart, Work::AllReduce).expect_err("a shorter way").to_string();
    assert!(error.contains("which is not its job's"), "{error}");
    shares(&mesh, &[job(0, &[0], &[3, 4, 5])], Work::AllReduce).expect("the board is its own");
}

/// Every shortest path, walked.
fn walk(
    graph: &Graph,
    at: NodeId,
    to: NodeId,
    left: u32,
    path: &mut Vec<u32>,
    all: &mut Vec<Vec<u32>>,
) {
    if at == to {
        all.push(path.clone());
    } else if left > 0 {
        for &(next, link) in graph.neighbours(at) {
            path.push(link);
            walk(graph, next, to, left - 1, path, all);
            path.pop();
        }
    }
}

#[test]
fn loads_are_those_of_all_shortest_paths_walked() {
    let mesh = mesh(json!({ "board": [2, 2], "grid": [4, 2], "switch_radix": 4, "taper": 0.0,
                            "failed_boards": [[2, 1]] }));
    let graph = mesh.build().expect("a mesh");
    let mut loads = Loads::new(&graph);
    for to in [0, 5, 17] {
        let messages: Vec<(u32, f64)> = (0..graph.npus())
            .filter(|&n| n != to && n % 3 == 0)
            .map(|n| (n, f64::from(n + 1)))
            .collect();
        let (mut found, mut expected) =
            (vec![0.0; graph.links() as usize], vec![0.0; graph.links() as usize]);
        loads.add(to, &messages, &|_| true, &mut found).expect("all may pass");
        for &(from, bytes) in &messages {
            let mut all = Vec::new();
            for left in 1.. {
                walk(&graph, NodeId(from), NodeId(to), left, &mut Vec::new(), &mut all);
                if !all.is_empty() {
                    break;
                }
            }
            for path in &all {
                path.iter().for_each(|&link| expected[link as usize] += bytes / all.len() as f64);
            }
        }
        for (link, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (found - expected).abs() < 1e-9 * expected.max(1.0),
                "{link}: {found} {expected}"
            );
        }
    }
}
