//! Steps written out: what they become, and what is refused.

use allrail_collective::Operation;
use allrail_core::{Bytes, FieldError, Rank, Time};
use allrail_workload::steps::Steps;
use allrail_workload::{Pass, Peer, Purpose, StepGraph, Work};
use serde_json::{Value, json};

fn pipeline() -> Value {
    json!({
        "ranks": [{ "shard": 2 }, { "stage": 4 }],
        "groups": { "tensor": ["shard"], "pipeline": ["stage"] },
        "classes": { "even": { "stage": "even" }, "odd": { "stage": "odd" } },
        "steps": {
            "even": [
                { "compute": "3 ms", "pass": "forward" },
                { "all_reduce": 1000, "over": "tensor", "for": "tensor", "repeat": 2 },
                { "send": "1 MiB", "over": "pipeline", "to": "next", "for": "pipeline" },
                { "receive": "1 MiB", "over": "pipeline", "from": "next" },
            ],
            "odd": [
                { "compute": "6 ms", "pass": "backward" },
                { "send": "1 MiB", "over": "pipeline", "to": "previous" },
                { "receive": "1 MiB", "over": "pipeline", "from": "previous" },
            ],
        },
    })
}

fn build(steps: &Value) -> Result<StepGraph, FieldError> {
    serde_json::from_value::<Steps>(steps.clone()).expect("its form is right").build()
}

#[test]
fn classes_take_coordinates_and_steps_follow_one_another() {
    let graph = build(&pipeline()).expect("a graph");
    let ranks = |actor: usize| graph.actors()[actor].ranks.clone();
    assert_eq!(ranks(0), [0, 1, 4, 5].map(Rank));
    assert_eq!(ranks(1), [2, 3, 6, 7].map(Rank));
    let ids: Vec<_> = graph.ids().collect();
    assert_eq!(graph.node(ids[0]).work, Work::Compute { time: Time::from_us(3000) });
    assert_eq!(graph.node(ids[0]).pass, Pass::Forward);
    let Work::Collective { operation, bytes, purpose, .. } = graph.node(ids[2]).work else {
        panic!("the second all-reduce")
    };
    let said = (operation, bytes, purpose);
    assert_eq!(said, (Operation::AllReduce, Bytes::new(4000), Purpose::Tensor));
    assert_eq!(graph.after(ids[2]), [ids[1]]);
    let Work::Send { bytes, peer, .. } = graph.node(ids[3]).work else { panic!("a send") };
    assert_eq!((bytes, peer), (Bytes::new(1 << 20), Peer::Next(1)));
    assert_eq!(graph.after(ids[4]), [ids[3]]);
    assert_eq!(graph.after(ids[5]), []);
}

#[test]
fn classes_that_never_meet_have_groups_of_their_own() {
    let mut steps = pipeline();
    steps["steps"]["odd"]
        .as_array_mut()
        .expect("a list")
        .insert(1, json!({ "all_reduce": 5, "over": "tensor" }));
    let graph = build(&steps).expect("they need not agree");
    let actors = |name: &str| -> Vec<usize> {
        let named = graph.groups().iter().filter(|group| group.name == name);
        named.map(|group| group.actors.len()).collect()
    };
    assert_eq!(actors("tensor"), [1, 1], "a stage's shards are of one class");
    assert_eq!(actors("pipeline"), [2], "stages of both classes are in one pipeline");
}

#[test]
fn background_steps_are_not_waited_for() {
    let steps = json!({
        "ranks": [{ "rank": 4 }],
        "groups": { "all": ["rank"] },
        "steps": { "rank": [
            { "compute": "1 ms", "name": "a" },
            { "all_reduce": 10, "over": "all", "tensor": 1, "background": true },
            { "compute": "1 ms", "name": "b" },
            { "compute": "1 ms", "name": "c", "after": ["a"] },
            { "compute": "1 ms", "after": [] },
        ] },
    });
    let graph = build(&steps).expect("a graph");
    let ids: Vec<_> = graph.ids().collect();
    // An update of no time follows a gradient's collective.
    assert_eq!(graph.node(ids[1]).tensor, Some(1));
    assert_eq!(graph.node(ids[2]).pass, Pass::Update);
    assert_eq!(graph.after(ids[2]), [ids[1]]);
    assert_eq!(graph.after(ids[3]), [ids[0]]);
    assert_eq!(graph.after(ids[4]), [ids[0]]);
    assert_eq!(graph.after(ids[5]), []);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let change = |pointer: &str, value: Value| {
        let mut steps = pipeline();
        *steps.pointer_mut(pointer).expect("it is there") = value;
        build(&steps).expect_err(pointer)
    };
    let table = [
        ("/ranks", json!([]), "ranks", "one axis at least"),
        ("/ranks/0", json!({ "a": 1, "b": 2 }), "ranks[0]", "one axis"),
        ("/ranks/0", json!({ "stage": 2 }), "ranks[1]", "already"),
        ("/ranks/0", json!({ "shard": 0 }), "ranks.shard", "1 to"),
        ("/groups/tensor/0", json!("shrad"), "groups.tensor", "no such axis"),
        ("/groups/tensor", json!(["shard", "shard"]), "groups.tensor", "twice"),
        ("/classes/odd", json!({ "stage": 4 }), "classes.odd.stage", "0 to 3"),
        ("/classes/odd", json!({ "row": 1 }), "classes.odd.row", "no such axis"),
        ("/classes/odd", json!({ "stage": [0, 1] }), "classes.odd", "also in class `even`"),
        ("/classes/odd", json!({ "stage": [] }), "classes.odd", "no rank"),
        ("/classes", json!({}), "classes", "which ranks"),
        ("/classes", json!({ "even": { "stage": "even" } }), "steps", "no such class"),
        ("/steps/even/0", json!({}), "steps.even[0]", "0 things"),
        ("/steps/even/1/over", json!("all"), "steps.even[1].over", "no such group"),
        ("/steps/even/1/over", json!(null), "steps.even[1].over", "missing"),
        ("/steps/even/1/repeat", json!(0), "steps.even[1].repeat", "1 to"),
        ("/steps/even/1/all_reduce", json!(u64::MAX), "steps.even[1]", "more bytes"),
        ("/steps/even/2/to", json!("nxt"), "steps.even[2].to", "no peer"),
        ("/steps/even/2/to", json!(null), "steps.even[2].to", "missing"),
    ];
    for (pointer, value, field, why) in table {
        let error = change(pointer, value);
        assert!(error.field.ends_with(field), "{pointer}: {}", error.field);
        assert!(error.why.contains(why), "{pointer}: {}", error.why);
        assert!(!error.hint.is_empty(), "{pointer}");
    }
    let more = [
        (json!({ "compute": "1 ms", "over": "tensor" }), "belong to communication"),
        (json!({ "compute": "1 ms", "tensor": 1 }), "belongs to a collective"),
        (json!({ "all_reduce": 1, "over": "tensor", "to": "next" }), "belong to messages"),
        (json!({ "send": 1, "over": "tensor", "from": "next" }), "a send has `to`"),
        (json!({ "compute": "1 ms", "after": ["x"] }), "has that name"),
        (json!({ "compute": "1 ms", "send": 1 }), "2 things"),
    ];
    for (step, why) in more {
        let mut steps = pipeline();
        steps["steps"]["even"][0] = step.clone();
        let error = build(&steps).expect_err("refused");
        assert!(error.why.contains(why), "{step}: {}", error.why);
    }
    let mut steps = pipeline();
    steps["steps"]["even"][0]["name"] = json!("a");
    steps["steps"]["even"][1]["name"] = json!("a");
    assert!(build(&steps).expect_err("refused").why.contains("that name"));
}
