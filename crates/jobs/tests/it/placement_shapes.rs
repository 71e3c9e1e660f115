//! Jobs that ask for a shape, such as `2x4`.

use std::ops::ControlFlow;

use allrail_core::{Bandwidth, Bytes, FieldError};
use allrail_fabric::placement::{Choice, Floor, Request, Shape};
use allrail_jobs::placement::{
    Mover, Options, defragment, place, place_mixes, read_floor, run_queue,
};
use serde_json::{Value, json};

fn mesh(side: u32, failed: &[[u32; 2]]) -> Floor {
    read_floor(&json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [side, side],
                         "failed_boards": failed }))
    .expect("a mesh")
}

fn asks(rows: u32, columns: u32) -> Request {
    Shape { rows, columns }.into()
}

const TRANSPOSE: Options =
    Options { choice: Choice { transpose: true, aspect: None }, sort: false, locality: false };

/// As in SC'22, Fig. 5: sub-meshes of a 4 x 4 mesh some of whose boards have failed. A job's rows and columns
/// need not be neighbours.
#[test]
fn shaped_jobs_fit_around_failed_boards() {
    // Failed, as column and row: row 0 lacks column 1, row 2 lacks columns 1 and 2.
    let floor = mesh(4, &[[1, 0], [1, 2], [2, 2]]);
    let mut free = floor.empty();
    let jobs = [asks(2, 4), asks(2, 2)];
    let placement = place(&floor, &mut free, &jobs, Options::default());
    let blocks: Vec<[&[u32]; 2]> =
        placement.jobs.iter().map(|job| [&job.rows[..], &job.columns[..]]).collect();
    assert_eq!(blocks, [[&[1, 3][..], &[0, 1, 2, 3]], [&[0, 2], &[0, 3]]]);
    assert_eq!(free.free(), 1);
}

#[test]
fn a_shape_is_kept_and_transposed_only_if_asked() {
    let wide = |options: Options| {
        let floor = mesh(4, &[]);
        let placement = place(&floor, &mut floor.empty(), &[asks(2, 4); 2], options);
        assert!(placement.left_out.is_empty());
        placement.jobs.iter().map(|job| (job.rows.len(), job.columns.len())).collect::<Vec<_>>()
    };
    // A number of 8 boards would be 4 x 2.
    assert_eq!(wide(Options::default()), [(2, 4), (2, 4)]);
    let floor = mesh(4, &[[0, 0], [1, 1], [2, 2]]);
    assert!(taken_on(&floor, TRANSPOSE).is_empty(), "three rows and three columns lack a board");
    let floor = mesh(4, &[[0, 0], [0, 1], [0, 2]]);
    assert!(taken_on(&floor, Options::default()).is_empty());
    let [job] = &taken_on(&floor, TRANSPOSE)[..] else { panic!("it fits upright") };
    assert_eq!((job.rows.len(), job.columns.len()), (4, 2));
    // `aspect` is for jobs that ask for a number.
    let longer = Options { choice: Choice { transpose: false, aspect: Some(8) }, ..TRANSPOSE };
    assert!(taken_on(&floor, longer).is_empty());
}

fn taken_on(floor: &Floor, options: Options) -> Vec<allrail_jobs::placement::Placed> {
    place(floor, &mut floor.empty(), &[asks(2, 4)], options).jobs
}

#[test]
fn jobs_that_move_keep_their_shapes() {
    let mover = Mover::new(Bytes::new(1), Bandwidth::from_bytes_per_second(1).expect("not 0"));
    let mover = mover.expect("a second");
    let mut moved = 0;
    // Twelve jobs fill a mesh, every third leaves, and one comes that asks for what is left.
    for turn in 0..12usize {
        let sides = [(1, 3), (2, 1), (1, 2), (1, 1), (1, 4), (2, 2)];
        let requests: Vec<Request> = (0..12)
            .map(|job| sides[(turn + job * 5 + job / 6) % 6])
            .map(|(rows, columns)| asks(rows, columns))
            .chain([asks(2, 3)])
            .collect();
        let floor = mesh(5, &[]);
        let mut free = floor.empty();
        let mut placement = place(&floor, &mut free, &requests[..12], Options::default());
        for at in (0..placement.jobs.len()).rev().filter(|at| at % 3 == turn % 3) {
            free.release(&placement.jobs.remove(at).block());
        }
        let asked = |job: u32| requests[job as usize];
        let options = Options::default();
        let made = defragment(&floor, &mut free, &mut placement, 12, &asked, options, mover);
        moved += made.map_or(0, |made| made.moves.len());
        for job in &placement.jobs {
            assert_eq!(asks(job.rows.len() as u32, job.columns.len() as u32), asked(job.job));
        }
    }
    assert!(moved > 0, "none of these cases moves a job");
}

fn placed(mix: &Value, more: &Value) -> Result<Value, FieldError> {
    let mut request = json!({ "fabric": { "topology": "hammingmesh", "board": [2, 4],
                                          "grid": [4, 4] }, "mix": mix, "count": 3 });
    for (key, value) in more.as_object().expect("keys") {
        request[key] = value.clone();
    }
    let told = place_mixes(request, &mut |_, _| ControlFlow::Continue(()))?;
    Ok(told.expect("nobody stops it"))
}

#[test]
fn mixes_and_queues_take_shapes_in_boards_and_in_npus() {
    let told = placed(&json!([[[2, 4], 1]]), &json!({})).expect("a mix");
    assert_eq!(told["utilisation"]["min"], 1.0);
    assert_eq!(
        told["map"]["sizes"],
        json!([{ "rows": 2, "columns": 4 },
                                             { "rows": 2, "columns": 4 }])
    );
    // 3 x 5 NPUs on boards of 2 x 4 are 2 x 2 boards.
    let told = placed(&json!([[[3, 5], 1]]), &json!({ "unit": "npus" })).expect("a mix");
    assert_eq!(told["map"]["sizes"][0], json!({ "rows": 2, "columns": 2 }));
    // 5 rows fit nowhere; 4 columns do.
    let told = placed(&json!([[[5, 1], 7], [[1, 4], 1]]), &json!({})).expect("a mix");
    assert_eq!(told["sizes_dropped"], 7);
    let trace = json!({ "fabric": { "topology": "hammingmesh", "board": [2, 2], "grid": [4, 4] },
                        "trace": [["0 s", "1 s", [2, 4]], ["0 s", "1 s", 8]] });
    let ran = run_queue(trace, &mut |_, _| ControlFlow::Continue(())).expect("a run");
    assert_eq!(ran.expect("nobody stops it")["makespan_s"], 2.0);
}

#[test]
fn shapes_that_are_none_are_refused() {
    let refused = |mix: Value| placed(&mix, &json!({})).expect_err("it is refused");
    assert_eq!(refused(json!([[[0, 4], 1]])).why, "a job is not empty");
    assert_eq!(refused(json!([[[2, 4], 1], [[2, 4], 2]])).why, "the size stands twice");
    assert!(refused(json!([[[5, 1], 1]])).why.contains("does not fit"));
    let three = json!({ "fabric": { "topology": "torus", "shape": [4, 4, 4] } });
    let error = placed(&json!([[[2, 4], 1]]), &three).expect_err("three dimensions");
    assert!(error.why.contains("three dimensions"), "{error}");
    let told = placed(&json!([[[2, 4, 1], 1]]), &three).expect("a shape of three sides");
    assert_eq!(told["utilisation"]["min"], 1.0);
    assert_eq!(
        (&told["map"]["sizes"][0], &told["fabric"]["sides"]),
        (&json!([2, 4, 1]), &json!([4, 4, 4]))
    );
    let error = placed(&json!([[4, 1], [[2, 4, 1], 1]]), &json!({})).expect_err("two dimensions");
    assert_eq!(error.field, "mix[1].size");
    assert!(error.why.contains("two dimensions"), "{error}");
    let flat = json!({ "fabric": { "topology": "torus", "shape": [4, 4] } });
    let told = placed(&json!([[[2, 4], 1]]), &flat).expect("a torus of two");
    assert_eq!(told["utilisation"]["min"], 1.0);
}
