//! Plans are saved, loaded and edited by hand; what does not hold together is refused by name.

use crate::common::*;
use allrail_collective::{CollectivePlan, Operation};
use allrail_schedule::Order;
use serde_json::{Value, json};

/// Two chunks that take the dimensions in opposite orders, and more.
fn good() -> CollectivePlan {
    let fabric = switches(&[(4, "12 GB/s"), (2, "4 GB/s")]);
    planned(&request(fabric, Operation::AllReduce, "64 MB", "themis"))
}

fn load(value: &Value) -> Result<CollectivePlan, String> {
    let plan: CollectivePlan =
        serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())?;
    plan.check().map_err(|error| error.to_string())?;
    Ok(plan)
}

#[test]
fn a_plan_survives_being_saved_and_loaded() {
    for operation in Operation::ALL {
        for order in Order::all() {
            let fabric = switches(&[(4, "12 GB/s"), (2, "4 GB/s"), (3, "7 Gb/s")]);
            let mut request = request(fabric, operation, "64 MB", "themis");
            (request.order, request.chunks) = (order, 7);
            let plan = planned(&request);
            let saved = serde_json::to_value(&plan).expect("plain data");
            assert_eq!(load(&saved), Ok(plan));
        }
    }
}

type Edit = fn(&mut Value);

fn list<'a>(plan: &'a mut Value, pointer: &str) -> &'a mut Vec<Value> {
    plan.pointer_mut(pointer).and_then(Value::as_array_mut).expect("a list")
}

/// A hand edit, and what the refusal must name.
const EDITS: &[(&str, Edit, &[&str])] = &[
    (
        "its range of sizes lacks its own",
        |plan| plan["sizes"] = json!({"from": "1 MB", "to": "2 MB"}),
        &["`sizes`", "1 MB to 2 MB", "64 MB"],
    ),
    (
        "the last stage is lost",
        |plan| drop(list(plan, "/chunks/2/stages").pop()),
        &["chunk 2", "stage 3", "all_gather", "dim1"],
    ),
    (
        "a reduce-scatter is lost",
        |plan| drop(list(plan, "/chunks/2/stages").remove(0)),
        &["chunk 2", "stage 2", "all_gather on dim1"],
    ),
    (
        "all stages are lost",
        |plan| list(plan, "/chunks/3/stages").clear(),
        &["chunk 3", "stage 0", "reduce_scatter", "dim1"],
    ),
    (
        "a stage is there twice",
        |plan| {
            let stages = list(plan, "/chunks/0/stages");
            stages.insert(1, stages[0].clone());
        },
        &["chunk 0", "stage 1", "reduce_scatter on dim1", "twice"],
    ),
    (
        "a stage is on a dimension that the fabric lacks",
        |plan| plan["chunks"][1]["stages"][2]["dimension"] = json!(2),
        &["chunk 1", "stage 2", "dim3"],
    ),
    (
        "a stage is on another stage's dimension",
        |plan| plan["chunks"][0]["stages"][1]["dimension"] = json!(0),
        &["chunk 0", "stage 1", "dim1", "twice"],
    ),
    (
        "a stage does what the collective does not",
        |plan| plan["chunks"][0]["stages"][1]["operation"] = json!("all_to_all"),
        &["chunk 0", "stage 1", "all_to_all on dim2", "no part of all_reduce"],
    ),
    (
        "a gather comes before the last scatter",
        |plan| list(plan, "/chunks/0/stages").swap(1, 3),
        &["chunk 0", "stage 2", "dim2"],
    ),
    (
        "an order leaves a stage out",
        |plan| {
            let order = list(plan, "/dimension_order/1");
            order.retain(|at| at != &json!({"chunk": 1, "stage": 0}));
        },
        &["dim2", "leaves out", "chunk 1, stage 0"],
    ),
    (
        "an order names a stage twice",
        |plan| {
            let order = list(plan, "/dimension_order/0");
            let first = order[0].clone();
            order.push(first);
        },
        &["dim1", "chunk 0, stage 0", "twice"],
    ),
    (
        "an order names a stage of another dimension",
        |plan| {
            let at = list(plan, "/dimension_order/1").remove(0);
            list(plan, "/dimension_order/0").push(at);
        },
        &["order of dim1", "on dim2"],
    ),
    (
        "an order names a chunk that does not exist",
        |plan| list(plan, "/dimension_order/0").push(json!({"chunk": 9, "stage": 0})),
        &["dim1", "chunk 9, stage 0", "does not exist"],
    ),
    (
        "the orders wait for each other in a circle",
        |plan| {
            // Chunk 0 goes from dim1 to dim2 and chunk 1 from dim2 to dim1; each is to go first
            // where it comes last.
            let first = |order: &mut Vec<Value>, at: Value| {
                order.retain(|other| *other != at);
                order.insert(0, at);
            };
            first(list(plan, "/dimension_order/0"), json!({"chunk": 1, "stage": 1}));
            first(list(plan, "/dimension_order/1"), json!({"chunk": 0, "stage": 1}));
        },
        &["circle", "chunk 1, stage 1", "reduce_scatter on dim1"],
    ),
    (
        "a chunk holds other bytes",
        |plan| plan["chunks"][1]["bytes"] = json!("1 MB"),
        &["49000000 bytes", "64000000"],
    ),
    ("a chunk holds none", |plan| plan["chunks"][1]["bytes"] = json!("0 B"), &["chunk 1", "bytes"]),
    ("a chunk is lost", |plan| drop(list(plan, "/chunks").pop()), &["bytes"]),
    ("no chunk is left", |plan| list(plan, "/chunks").clear(), &["no chunk"]),
    (
        "a dimension's order is lost",
        |plan| drop(list(plan, "/dimension_order").pop()),
        &["2 dimensions", "`dimension_order` 1"],
    ),
    ("an algorithm is lost", |plan| drop(list(plan, "/algorithms").pop()), &["`algorithms` has 1"]),
    ("a dimension is named twice", |plan| plan["dimensions"] = json!([0, 0]), &["dim1 twice"]),
    ("a dimension is unknown", |plan| plan["dimensions"] = json!([0, 5]), &["no dim6"]),
    ("the schema is another", |plan| plan["schema_version"] = json!(2), &["schema_version is 2"]),
    ("a key is unknown", |plan| plan["chunks"][0]["colour"] = json!("red"), &["colour"]),
    (
        "the fabric is no fabric",
        |plan| plan["fabric"]["dimensions"][0]["size"] = json!(1),
        &["fabric.dimensions[0].size"],
    ),
];

#[test]
fn an_edit_that_breaks_the_plan_is_refused_by_name() {
    let saved = serde_json::to_value(good()).expect("plain data");
    assert_eq!(visits(&good().chunks[0].stages), [0, 1, 1, 0]);
    assert_eq!(visits(&good().chunks[1].stages), [1, 0, 0, 1]);
    for (what, edit, names) in EDITS {
        let mut edited = saved.clone();
        edit(&mut edited);
        let error = load(&edited).expect_err(what);
        for name in *names {
            assert!(error.contains(name), "{what}: `{error}` does not name `{name}`");
        }
    }
}

/// Not every edit is a mistake: a gather's order need not mirror the scatter's.
#[test]
fn an_edit_that_keeps_the_plan_whole_is_taken() {
    let mut request = request(
        switches(&[(4, "12 GB/s"), (2, "4 GB/s")]),
        Operation::AllReduce,
        "1 MB",
        "baseline",
    );
    request.chunks = 1;
    let mut edited = serde_json::to_value(planned(&request)).expect("plain data");
    list(&mut edited, "/chunks/0/stages").swap(2, 3);
    assert!(load(&edited).is_err(), "the orders still name the old places");
    edited["dimension_order"][0][1]["stage"] = json!(2);
    edited["dimension_order"][1][1]["stage"] = json!(3);
    let loaded = load(&edited).expect("whole");
    assert_eq!(visits(&loaded.chunks[0].stages), [0, 1, 0, 1]);
}
