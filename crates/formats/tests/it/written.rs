//! Steps that a scenario writes out, disturbed as those of a model.

use allrail_core::Rank;
use serde_json::json;

#[test]
fn ranks_of_written_steps_may_be_slow_too() {
    let steps = json!({
        "ranks": [{ "rank": 4 }],
        "groups": { "all": ["rank"] },
        "steps": { "rank": [
            { "compute": "1 ms" },
            { "all_reduce": 10, "over": "all" },
        ] },
    });
    let build = |stragglers: serde_json::Value| {
        let value = json!({"model": {"steps": steps}, "stragglers": stragglers});
        let workload = serde_json::from_value(value).expect("a workload");
        allrail_formats::build(&workload, &[4]).map(|built| built.expect("steps"))
    };
    let alike = build(json!([])).expect("it is right");
    let slow = build(json!([{"ranks": [2], "factor": 3.0}])).expect("it is right");
    assert_eq!((alike.graph.actors().len(), slow.graph.actors().len()), (1, 2));
    assert_eq!(slow.graph.actors()[1].ranks, [Rank(2)]);
    assert_eq!(slow.slow, [1.0, 3.0]);
    assert_eq!(slow.graph.groups()[0].actors.len(), 2);
    let refused = build(json!([{"ranks": [4], "factor": 3.0}])).expect_err("there is no rank 4");
    assert_eq!(refused.field, "workload.stragglers[0].ranks");
}
