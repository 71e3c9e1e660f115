//! Backward passes in two halves: zero-bubble pipelines and `DualPipe`.

use crate::common::*;
use allrail_workload::{ActorId, NodeId, Purpose, StepGraph, Work};
use serde_json::{Value, json};

fn named(graph: &StepGraph, name: &str) -> NodeId {
    graph.ids().find(|id| graph.name(*id) == name).unwrap_or_else(|| panic!("{name}"))
}

fn cut(schedule: &str, tp: u32) -> Value {
    json!({"pp": 4, "dp": 2, "tp": tp, "microbatches": 8, "schedule": schedule})
}

#[test]
fn halves_keep_as_much_as_1f1b_and_copies_twice_the_parameters() {
    let memory = |schedule: &str| built(job(cut(schedule, 1)), &[8]).memory;
    let [whole, halves, both] = ["1f1b", "zero_bubble", "dual_pipe"].map(memory);
    // Qi et al., §2.2: the peak is that of 1F1B's first stage, of any stage.
    assert!(halves.activations >= whole.activations);
    assert!(halves.activations.count() < whole.activations.count() * 5);
    assert!(both.parameters.count() >= 2 * whole.parameters.count() * 9 / 10);
    // Of equal stages: p microbatches, and p + 1.
    let layer = json!({"name": "layer", "repeat": 4, "flops": 1000, "parameters": 10,
        "output": 500, "forward": "1 ms", "backward": "2 ms"});
    let kept = |schedule: &str| {
        let mut value = job(cut(schedule, 1));
        value["model"] = json!({"layers": [layer]});
        built(value, &[8]).memory.activations.count()
    };
    assert_eq!(kept("zero_bubble"), kept("1f1b"));
    assert_eq!(4 * kept("dual_pipe"), 5 * kept("1f1b"), "DeepSeek-V3, table 2: p + 1");
}

#[test]
fn weights_wait_and_inputs_go_on() {
    for tp in [1, 2] {
        let graph = built(job(cut("zero_bubble", tp)), &[8 * tp]).graph;
        // The stage before waits for the gradient of the inputs, not for that of the weights.
        let send = named(&graph, "layer3.feed_forward gradient 5 send");
        let ends: Vec<&str> = graph.after(send).iter().map(|id| graph.name(*id)).collect();
        assert!(ends.iter().all(|name| !name.contains("weights")), "{ends:?}");
        for id in graph.ids() {
            let name = graph.name(id);
            if !name.contains("gradient") || graph.node(id).tensor.is_none() {
                continue;
            }
            let after = graph.after(id)[0];
            assert!(graph.name(after).ends_with("backward 7 of weights"), "{name}");
        }
        // The last of four stages is three microbatches behind with them.
        let weights = named(&graph, "layer7.attention backward 0 of weights");
        let before = |name: &str| named(&graph, name) < weights;
        assert!(before("layer6.attention backward 3 of inputs"));
        assert!(!before("layer6.attention backward 4 of inputs"));
    }
}

/// Exchanges of tokens that pass while the other kind of pass computes.
fn hidden(schedule: &str) -> usize {
    let mut value =
        job(json!({"pp": 2, "dp": 1, "ep": 2, "microbatches": 8, "schedule": schedule}));
    value["model"]["transformer"]["experts"] = json!({"count": 8, "top_k": 2});
    let graph = built(value, &[4]).graph;
    let computes = |id: &NodeId| {
        let node = graph.node(*id);
        node.actor == ActorId(0) && matches!(node.work, Work::Compute { .. })
    };
    let is_hidden = |id: NodeId| {
        let (Some(before), Some(after)) = (
            graph.after(id).iter().max(),
            graph.ids().filter(computes).find(|other| graph.after(*other).contains(&id)),
        ) else {
            return false;
        };
        let between = graph.ids().filter(|other| other > before && *other < after);
        between.filter(computes).any(|other| graph.node(other).pass != graph.node(id).pass)
    };
    let all = collectives(&graph, ActorId(0)).into_iter();
    all.filter(|c| c.3 == Purpose::Expert && is_hidden(c.0)).count()
}

#[test]
fn what_one_pass_exchanges_passes_beside_the_other_s_computing() {
    // Five pairs of passes of four layers, which exchange tokens twice in either; not at all their ends.
    let found = hidden("dual_pipe");
    assert!((60..=80).contains(&found), "{found}");
    assert!(hidden("chimera") < 10);
}

#[test]
fn tied_tables_meet_whichever_end_is_first() {
    for schedule in ["1f1b", "zero_bubble", "interleaved"] {
        let mut value = job(cut(schedule, 1));
        value["model"]["transformer"]["tied"] = json!(true);
        let built = built(value, &[8]);
        let table = 256 * 64 * 2;
        let sends = built.graph.ids().filter(|id| {
            let work = built.graph.node(*id).work;
            matches!(work, Work::Send { bytes, purpose: Purpose::Data, .. } if bytes.count() == table)
        });
        assert_eq!(sends.count(), 2, "{schedule}");
        length(&built.graph);
        // Both ends reduce the table over their replicas.
        assert_eq!(bytes(&built.graph, Purpose::Data), 2 * built.model.parameters() + table);
    }
}

#[test]
fn numbers_that_a_schedule_cannot_take_are_refused() {
    for (cut, field, why) in [
        (
            json!({"pp": 4, "microbatches": 6, "schedule": "dual_pipe"}),
            "microbatches",
            "two for every",
        ),
        (json!({"pp": 2, "microbatches": 5, "schedule": "dual_pipe"}), "microbatches", "each way"),
        (
            json!({"pp": 1, "schedule": "zero_bubble", "virtual_stages": 2}),
            "virtual_stages",
            "one piece",
        ),
    ] {
        let mut value = job(cut);
        value["batch_per_replica"] = json!(30);
        let error = refused(value, &[4]);
        assert_eq!(error.field, format!("workload.parallelism.{field}"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}
