//! The allocation and the failure table that a prototype printed for the mixes of `placement`, and
//! what this program gives: means within 2 points, medians within 4, failure medians within 5; the
//! traffic across upper levels. The published figures take the trace's sizes as numbers of boards.

use std::ops::ControlFlow;

use allrail_fabric::placement::{Choice, Unit};
use allrail_jobs::placement::{Histogram, Options, Study, Upper, read_floor};

/// Boards of the grid's side, NPUs of the board's side.
type Mesh = (u32, u32);

fn histogram(name: &str) -> Histogram {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/allrail/presets/mixes");
    let text = std::fs::read_to_string(format!("{folder}/{name}.yaml")).expect("a preset");
    let rows: Vec<(u64, u64)> = text
        .lines()
        .skip_while(|line| !line.starts_with("jobs:"))
        .filter_map(|line| line.strip_prefix("  ")?.split_once(": "))
        .map(|(size, jobs)| (size.parse().expect("a size"), jobs.parse().expect("jobs")))
        .collect();
    Histogram::new(&rows).expect("a histogram")
}

fn study(name: &str, (side, npus): Mesh, options: Options, count: u64, failed: u64) -> Vec<Row> {
    let fabric = serde_json::json!({ "topology": "hammingmesh", "board": [npus, npus],
                                     "grid": [side, side], "switch_radix": 64 });
    let mut floor = read_floor(&fabric).expect("a mesh");
    floor.leaves = allrail_fabric::placement::Leaves::of(side, side, 16);
    let histogram = histogram(name);
    let study = Study {
        floor,
        histogram,
        unit: Unit::Boards,
        count,
        options,
        failed,
        mover: None,
        seed: 0,
    };
    let found = study.run(&mut |_, _| ControlFlow::Continue(())).expect("a study").expect("whole");
    found.mixes.iter().map(|mix| (100.0 * mix.utilisation, mix.upper)).collect()
}

type Row = (f64, Option<Upper>);

fn mean(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.0).sum::<f64>() / rows.len() as f64
}

/// By linear interpolation between the sorted values.
fn quantile(rows: &[Row], part: f64) -> f64 {
    let mut sorted: Vec<f64> = rows.iter().map(|row| row.0).collect();
    sorted.sort_by(f64::total_cmp);
    let at = part * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

const fn options(transpose: bool, aspect: bool, sort: bool, locality: bool) -> Options {
    let aspect = if aspect { Some(8) } else { None };
    Options { choice: Choice { transpose, aspect }, sort, locality }
}

const COLUMNS: [(&str, Options); 6] = [
    ("none", options(false, false, false, false)),
    ("+transpose", options(true, false, false, false)),
    ("+aspect", options(true, true, false, false)),
    ("transpose+sort", options(true, false, true, false)),
    ("all+sort", options(true, true, true, false)),
    ("all+sort+locality", options(true, true, true, true)),
];

const ALI: &str = "alibaba-2020";
const FRAC: &str = "alibaba-2020-fractional";
const POW2: &str = "powers-of-two";

/// Mean, median, 1st percentile.
type Cells = [(f64, f64, f64); 5];

const TABLE: [(&str, Mesh, Cells); 10] = [
    (
        ALI,
        (16, 2),
        [
            (85.0, 88., 57.),
            (90.3, 94., 61.),
            (92.0, 96., 61.),
            (98.2, 100., 61.),
            (99.0, 100., 61.),
        ],
    ),
    (
        ALI,
        (8, 4),
        [
            (84.1, 88., 38.),
            (88.5, 100., 38.),
            (89.7, 100., 38.),
            (93.6, 100., 53.),
            (95.1, 100., 53.),
        ],
    ),
    (
        FRAC,
        (16, 2),
        [
            (86.6, 89., 49.),
            (92.2, 97., 61.),
            (94.0, 100., 61.),
            (99.1, 100., 69.),
            (99.6, 100., 84.),
        ],
    ),
    (
        FRAC,
        (8, 4),
        [
            (86.8, 92., 12.),
            (92.9, 100., 38.),
            (94.0, 100., 38.),
            (97.2, 100., 61.),
            (98.0, 100., 61.),
        ],
    ),
    (
        POW2,
        (16, 2),
        [
            (88.9, 94., 50.),
            (94.8, 98., 50.),
            (97.6, 100., 50.),
            (100., 100., 100.),
            (100., 100., 100.),
        ],
    ),
    (
        POW2,
        (8, 4),
        [
            (89.0, 94., 50.),
            (95.7, 100., 50.),
            (97.7, 100., 50.),
            (100., 100., 100.),
            (100., 100., 100.),
        ],
    ),
    (
        ALI,
        (32, 4),
        [
            (91.4, 92., 73.),
            (95.0, 96., 80.),
            (96.8, 98., 85.),
            (100., 100., 100.),
            (100., 100., 100.),
        ],
    ),
    (
        ALI,
        (64, 2),
        [
            (95.3, 96., 89.),
            (97.3, 98., 90.),
            (98.6, 99., 90.),
            (100., 100., 100.),
            (100., 100., 100.),
        ],
    ),
    (
        FRAC,
        (32, 4),
        [
            (92.3, 93., 80.),
            (95.9, 97., 85.),
            (97.7, 99., 90.),
            (100., 100., 100.),
            (100., 100., 100.),
        ],
    ),
    (
        FRAC,
        (64, 2),
        [
            (95.9, 96., 90.),
            (97.8, 98., 90.),
            (98.9, 99., 95.),
            (100., 100., 100.),
            (100., 100., 100.),
        ],
    ),
];

fn check_table(rows: &[(&str, Mesh, Cells)], count: impl Fn(Mesh) -> u64) {
    let mut wrong = Vec::new();
    for &(name, mesh, cells) in rows {
        let last = [cells[4]];
        for ((column, options), cell) in COLUMNS.into_iter().zip(cells.into_iter().chain(last)) {
            let rows = study(name, mesh, options, count(mesh), 0);
            let ours = (mean(&rows), quantile(&rows, 0.5), quantile(&rows, 0.01));
            let line = format!(
                "{name:24} {0:2} x {0:2}  {column:18} {1:5.1} / {2:5.1} / {3:5.1}   published {4:5.1} / {5:3.0} / {6:3.0}",
                mesh.0, ours.0, ours.1, ours.2, cell.0, cell.1, cell.2
            );
            eprintln!("{line}");
            if (ours.0 - cell.0).abs() > 2.0 || (ours.1 - cell.1).abs() > 4.0 {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "beyond 2 (mean) or 4 (median) points:\n{}", wrong.join("\n"));
}

#[test]
fn the_small_clusters_use_what_was_published() {
    check_table(&TABLE[..4], |_| 400);
}

#[test]
#[ignore = "a minute in the dev profile"]
fn all_clusters_use_what_was_published() {
    check_table(&TABLE, |mesh| if mesh.0 == 64 { 200 } else { 1000 });
}

/// Medians for 0, 10, 20, 30, 40 failed boards: sorted, in the order of arrival.
type Medians = [(f64, f64); 5];

const FAILURES: [(&str, Mesh, Medians); 4] = [
    (ALI, (8, 4), [(100., 100.), (63., 63.), (55., 55.), (47., 47.), (58., 58.)]),
    (FRAC, (8, 4), [(100., 100.), (100., 81.), (89., 77.), (99., 85.), (100., 100.)]),
    (ALI, (16, 2), [(100., 96.), (100., 92.), (100., 87.), (100., 85.), (95., 81.)]),
    (FRAC, (16, 2), [(100., 100.), (100., 96.), (100., 95.), (100., 91.), (100., 91.)]),
];

/// On 8 × 8 boards a mix is either whole or lacks one large job: the median jumps between the two with
/// the seed (over twelve seeds from 77 to 89, from 85 to 100, from 50 to 58). So a published median may
/// stand anywhere between our 45 % and 55 % quantiles, give or take 5 points.
#[test]
#[ignore = "half a minute in the dev profile"]
fn failures_leave_what_was_published() {
    let mut wrong = Vec::new();
    for (name, mesh, medians) in FAILURES {
        for (failed, (sorted, arrival)) in (0..).step_by(10).zip(medians) {
            for (sort, published) in [(true, sorted), (false, arrival)] {
                let rows = study(name, mesh, options(true, true, sort, false), 1000, failed);
                let ours = quantile(&rows, 0.5);
                let around = [0.45, 0.55].map(|part| quantile(&rows, part));
                let line = format!(
                    "{name:24} {0:2} x {0:2}  {failed:2} failed, sorted {sort:5}  {ours:5.1} (45 to 55 %: {1:5.1} to {2:5.1})  published {published:5.1}",
                    mesh.0, around[0], around[1]
                );
                eprintln!("{line}");
                if published < around[0] - 5.0 || published > around[1] + 5.0 {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "beyond 5 points:\n{}", wrong.join("\n"));
}

/// All-to-all traffic across leaves of 16 boards, in percent: sorted and in the order of arrival, each
/// without locality and with it.
const UPPER: [(Mesh, [f64; 4]); 2] =
    [((64, 2), [17.8, 30.0, 15.7, 21.8]), ((32, 4), [10.2, 18.7, 7.9, 12.7])];

#[test]
fn little_traffic_crosses_the_upper_levels() {
    for (mesh, published) in UPPER {
        let cases = [(true, false), (false, false), (true, true), (false, true)];
        for ((sort, locality), published) in cases.into_iter().zip(published) {
            let rows = study(ALI, mesh, options(true, true, sort, locality), 60, 0);
            let parts: Vec<Upper> = rows.iter().filter_map(|row| row.1).collect();
            let mean = |of: fn(&Upper) -> f64| {
                100.0 * parts.iter().map(of).sum::<f64>() / parts.len() as f64
            };
            let (ours, rings) = (mean(|part| part.all_to_all), mean(|part| part.rings));
            eprintln!(
                "{0:2} x {0:2}  sorted {sort:5} locality {locality:5}  all-to-all {ours:4.1}  published {published:4.1}  rings {rings:4.1}",
                mesh.0
            );
            // Our locality may be better than the published one, not worse.
            let least = if locality { 0.0 } else { published - 3.0 };
            assert!((least..published + 3.0).contains(&ours), "{ours} is not near {published}");
            assert!(rings < ours, "neighbours are nearer than all others");
        }
    }
}
