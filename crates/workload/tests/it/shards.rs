//! ZeRO, FSDP and HSDP: units, shards, and when what travels.

#![allow(clippy::needless_pass_by_value)]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use allrail_collective::Operation;
use allrail_workload::{ActorId, NodeId, Pass, Purpose, StepGraph, Work};
use serde_json::{Value, json};

/// (operation, ranks) to (collectives, bytes) of what replicas exchange.
fn exchanged(graph: &StepGraph) -> BTreeMap<(Operation, u32), (u32, u64)> {
    let mut found = BTreeMap::new();
    for id in graph.ids() {
        if let Work::Collective { operation, bytes, group, purpose: Purpose::Data } =
            graph.node(id).work
        {
            let parts = &graph.groups()[group.index()].parts;
            let ranks = parts.iter().map(|part| part.size).product();
            let entry = found.entry((operation, ranks)).or_insert((0, 0));
            *entry = (entry.0 + 1, entry.1 + bytes.count());
        }
    }
    found
}

fn named(graph: &StepGraph, name: &str) -> NodeId {
    graph.ids().find(|id| graph.name(*id) == name).unwrap_or_else(|| panic!("{name}"))
}

/// A job that updates each parameter when its own gradient is there.
fn one_by_one(parallelism: Value) -> Value {
    let mut value = job(parallelism);
    value["updates"] = json!("each");
    value
}

/// Of the small transformer in fp16.
fn parameters() -> u64 {
    2 * built(job(json!({})), &[1]).model.parameters()
}

#[test]
fn a_block_is_gathered_and_scattered_at_once() {
    let all = parameters();
    // Eight blocks, the embedding and the head.
    let graph = built(job(json!({"zero": 3})), &[8]).graph;
    let expected =
        [((Operation::AllGather, 8), (20, 2 * all)), ((Operation::ReduceScatter, 8), (10, all))];
    assert_eq!(exchanged(&graph), expected.into());
    let graph = built(one_by_one(json!({"zero": 3})), &[8]).graph;
    named(&graph, "layer3 forward parameters");
    let gradient = named(&graph, "layer3 gradient");
    assert!(graph.after(gradient).contains(&named(&graph, "layer3.attention backward")));
    for part in ["attention", "feed_forward"] {
        let update = named(&graph, &format!("layer3.{part} update"));
        assert_eq!(graph.after(update), [gradient]);
        // And the next iteration's gather waits for both.
        let gather = named(&graph, "layer3 forward parameters");
        assert!(graph.carried().contains(&(gather, update)));
    }
}

/// `optimizer.step()`: whatever is cut and how, each update waits for all gradients of its NPU and for the end
/// of its passes. One by one, it waits for its own gradient.
#[test]
fn an_optimizer_steps_when_all_gradients_are_there() {
    let cuts = [
        (json!({}), 8),
        (json!({"microbatches": 4}), 8),
        (json!({"zero": 1}), 8),
        (json!({"zero": 3, "microbatches": 2}), 8),
        (json!({"pp": 2, "microbatches": 4}), 16),
        (json!({"pp": 2, "microbatches": 4, "schedule": "chimera"}), 16),
        (json!({"tp": 2}), 8),
        (json!({"overlap_gradients": false}), 8),
    ];
    for (cut, npus) in cuts {
        let graph = built(job(cut.clone()), &[npus]).graph;
        for actor in (0u32..).zip(graph.actors()).map(|(i, _)| ActorId(i)) {
            let nodes: Vec<NodeId> =
                graph.ids().filter(|id| graph.node(*id).actor == actor).collect();
            let steps: Vec<&NodeId> =
                nodes.iter().filter(|id| graph.name(**id) == "optimizer step").collect();
            let [step] = steps.as_slice() else { panic!("{cut}: {} steps", steps.len()) };
            let before = graph.after(**step);
            for id in &nodes {
                let node = graph.node(*id);
                let name = graph.name(*id);
                if name.ends_with(" update") {
                    assert_eq!(graph.after(*id), [**step], "{cut}: {name}");
                }
                let gradient = matches!(node.work, Work::Collective { purpose: Purpose::Data, .. })
                    && node.pass == Pass::Backward
                    && node.tensor.is_some();
                assert!(!gradient || before.contains(id), "{cut}: {name}");
            }
            let passes = |id: &&NodeId| {
                let node = graph.node(**id);
                matches!(node.work, Work::Compute { .. }) && node.pass == Pass::Backward
            };
            let last = nodes.iter().filter(passes).max().expect("it computes");
            assert!(before.contains(last), "{cut}: {}", graph.name(*last));
        }
        let graph = built(one_by_one(cut), &[npus]).graph;
        assert!(graph.ids().all(|id| graph.name(id) != "optimizer step"));
    }
}

#[test]
fn parameters_are_gathered_for_every_microbatch_or_once_a_step() {
    let all = parameters();
    let gathers = |more: Value| {
        let mut cut = json!({"zero": 3, "microbatches": 4});
        cut.as_object_mut().expect("a mapping").extend(more.as_object().expect("one").clone());
        exchanged(&built(job(cut), &[8]).graph)[&(Operation::AllGather, 8)]
    };
    assert_eq!(gathers(json!({})), (4 * 20, 8 * all));
    assert_eq!(gathers(json!({"reshard": false})), (40, 4 * all));
    assert_eq!(gathers(json!({"reshard": false, "reduce": "step"})), (10, all));
    // A block that is computed again is gathered with that.
    assert_eq!(gathers(json!({"recompute": "full"})), (4 * 20, 8 * all));
    let memory = |cut: Value| built(job(cut), &[8]).memory;
    let whole = memory(json!({})).parameters;
    assert_eq!(memory(json!({"zero": 3, "reshard": false})).gathered, whole);
    let model = built(job(json!({})), &[1]).model;
    let unit: u64 = model.layers[1..3].iter().map(|layer| 2 * layer.all_parameters()).sum();
    let embedding = 2 * model.layers[0].all_parameters();
    for (prefetch, at_once) in [(0, [unit, 0, 0]), (1, [unit, unit, 0]), (2, [unit; 3])] {
        assert!(embedding < unit, "the largest units are blocks");
        let found = memory(json!({"zero": 3, "prefetch": prefetch}));
        assert_eq!(found.gathered.count(), at_once.iter().sum::<u64>());
        assert_eq!(found.parameters.count(), all / 8);
    }
}

#[test]
fn parameters_are_gathered_so_many_blocks_ahead() {
    for (prefetch, waits) in [(0, "layer3"), (1, "layer2"), (2, "layer1")] {
        let graph = built(job(json!({"zero": 3, "prefetch": prefetch})), &[8]).graph;
        let gather = named(&graph, "layer4 forward parameters");
        let last = named(&graph, &format!("{waits}.feed_forward forward"));
        assert_eq!(graph.after(gather), [last], "{prefetch}");
        let gather = named(&graph, "layer3 backward parameters");
        let waits = ["layer4", "layer5", "layer6"][prefetch];
        let last = named(&graph, &format!("{waits}.attention backward"));
        assert_eq!(graph.after(gather), [last], "{prefetch}");
    }
}

#[test]
fn gradients_of_every_microbatch_travel_where_shards_have_no_room_for_sums() {
    let all = parameters();
    let scatters = |cut: Value, npus: u32| {
        let graph = built(job(cut), &[npus]).graph;
        let found: Vec<(u32, u64)> = exchanged(&graph)
            .into_iter()
            .filter(|((operation, _), _)| *operation == Operation::ReduceScatter)
            .map(|(_, counts)| counts)
            .collect();
        found
    };
    assert_eq!(scatters(json!({"zero": 3, "microbatches": 4}), 8), [(40, 4 * all)]);
    assert_eq!(scatters(json!({"zero": 3, "microbatches": 4, "reduce": "step"}), 8), [(10, all)]);
    assert_eq!(scatters(json!({"zero": 1, "microbatches": 4}), 8), [(18, all)]);
    // A pipeline's stages sum up to their last microbatch.
    assert_eq!(scatters(json!({"zero": 3, "pp": 2, "microbatches": 4}), 16), [(10, all)]);
    let graph = built(one_by_one(json!({"zero": 2, "microbatches": 2})), &[8]).graph;
    let update = named(&graph, "layer3.attention update");
    let both = ["layer3.attention gradient", "layer3.attention gradient of microbatch 0"];
    let both: BTreeSet<NodeId> = both.iter().map(|name| named(&graph, name)).collect();
    assert_eq!(graph.after(update).iter().copied().collect::<BTreeSet<_>>(), both);
    let gradients = |cut: Value| built(job(cut), &[8]).memory.gradients.count();
    assert_eq!(gradients(json!({"zero": 3, "microbatches": 4})), all / 8);
    assert_eq!(gradients(json!({"zero": 3, "microbatches": 4, "reduce": "step"})), all);
}

#[test]
fn shards_lie_near_and_copies_far() {
    let all = parameters();
    for zero in [1, 2, 3] {
        let built = built(job(json!({"zero": zero, "shard": 4})), &[4, 8]);
        let found = exchanged(&built.graph);
        let scattered = found[&(Operation::ReduceScatter, 4)];
        assert_eq!(scattered.1, all);
        assert_eq!(found[&(Operation::AllReduce, 8)], (scattered.0, all / 4));
        assert_eq!(found[&(Operation::AllGather, 4)].1, if zero == 3 { 2 * all } else { all });
        assert_eq!(found.len(), 3);
        for group in built.graph.groups() {
            let inside = group.parts.iter().all(|part| part.dimension.0 == 0);
            assert_eq!(inside, group.name == "shards of dp", "{}", group.name);
        }
    }
    let memory = |shard: u32, npus: u32| {
        let mut value = job(json!({"zero": 3, "shard": shard}));
        value["optimizer"] = json!("adam");
        crate::common::built(value, &[npus]).memory
    };
    assert_eq!(memory(4, 32), memory(4, 4));
}

#[test]
fn what_does_not_overlap_waits_for_all_of_it() {
    for pp in [1, 2] {
        let of = |more: Value| {
            let mut cut = json!({"zero": 1, "pp": pp, "microbatches": 4});
            cut.as_object_mut().expect("a mapping").extend(more.as_object().expect("one").clone());
            built(job(cut), &[8]).graph
        };
        let plain = of(json!({}));
        assert_eq!(plain.actors().len(), pp);
        let split = of(json!({"overlap_gradients": false, "overlap_parameters": false}));
        assert_eq!(exchanged(&plain), exchanged(&split), "the same travels");
        for actor in (0u32..).map(ActorId).take(pp) {
            let last = split.ids().filter(|id| {
                let node = split.node(*id);
                let computes = matches!(node.work, Work::Compute { .. });
                node.actor == actor && computes && node.pass == Pass::Backward
            });
            let last = last.last().expect("it computes");
            let (mut scattered, mut gathered) = (0, 0);
            for (id, operation, _, _) in collectives(&split, actor) {
                match operation {
                    Operation::ReduceScatter => {
                        assert!(split.after(id).contains(&last));
                        scattered += 1;
                    }
                    _ => gathered += 1,
                }
            }
            assert_eq!(scattered, gathered);
            let first = split.ids().find(|id| {
                split.node(*id).actor == actor
                    && matches!(split.node(*id).work, Work::Compute { .. })
            });
            let waits = |graph: &StepGraph| {
                let of = |(node, before): &&(NodeId, NodeId)| {
                    Some(*node) == first && graph.name(*before).ends_with("updated")
                };
                graph.carried().iter().filter(of).count()
            };
            assert_eq!(waits(&split), gathered, "the first pass waits for every layer");
            assert_eq!(waits(&plain), 1, "for its own layer");
        }
    }
}

#[test]
fn experts_are_gathered_with_their_layer() {
    let mut value = job(json!({"zero": 3, "ep": 2, "dp": 4}));
    value["model"]["transformer"]["experts"] = json!({"count": 8, "top_k": 2});
    let built = built(value, &[8]);
    let experts: u64 =
        built.model.layers.iter().filter_map(|l| l.experts).map(|e| 8 * e.parameters).sum();
    let rest = built.model.parameters() - experts;
    let found = exchanged(&built.graph);
    // Forward and backward, two bytes each: half of the experts over their four replicas.
    assert_eq!(found[&(Operation::AllGather, 4)].1, 2 * experts);
    assert_eq!(found[&(Operation::AllGather, 8)].1, 4 * rest);
}

#[test]
fn settings_that_do_nothing_are_refused() {
    for (cut, field, why) in [
        (json!({"reshard": false}), "reshard", "`zero: 3` alone"),
        (json!({"zero": 1, "prefetch": 2}), "prefetch", "`zero: 3` alone"),
        (json!({"zero": 3, "overlap_parameters": false}), "overlap_parameters", "and `zero: 2`"),
        (
            json!({"zero": 3, "microbatches": 2, "overlap_gradients": false}),
            "overlap_gradients",
            "every microbatch",
        ),
        (json!({"pp": 2, "reduce": "microbatch"}), "reduce", "no part"),
        (json!({"shard": 4}), "shard", "without `zero`"),
        (json!({"zero": 3, "shard": 3}), "shard", "no factor of the 16 replicas"),
        (json!({"zero": 3, "shard": 0}), "shard", "no factor"),
    ] {
        let error = refused(job(cut), &[16]);
        assert_eq!(error.field, format!("workload.parallelism.{field}"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut value = job(json!({"zero": 3, "shard": 2, "ep": 2}));
    value["model"]["transformer"]["experts"] = json!({"count": 8, "top_k": 2});
    assert_eq!(refused(value, &[8]).field, "workload.parallelism.shard");
}

#[test]
fn parameters_that_are_cut_each_for_itself_are_copied() {
    let step = |cut: Value| {
        let mut value = job(cut);
        value["compute"] = json!({"device": "a100"});
        built(value, &[8]).graph
    };
    let flat = step(json!({"zero": 3}));
    let graph = step(json!({"zero": 3, "by_parameter": true}));
    assert_eq!(exchanged(&flat), exchanged(&graph));
    let computing = |graph: &StepGraph| -> u64 {
        let of = |id| match graph.node(id).work {
            Work::Compute { time } => time.as_ps(),
            _ => 0,
        };
        graph.ids().map(of).sum()
    };
    // Read and written in two bytes forward and backward, and a gradient once, at 2,039 GB/s.
    let bytes = (2 * 4 + 4) * parameters() / 2;
    let copying = (computing(&graph) - computing(&flat)) as f64 / 1e12;
    assert!((copying / (bytes as f64 / 2039e9) - 1.0).abs() < 0.01, "{copying}");
    let copied = named(&graph, "layer3 forward parameters copied");
    assert!(graph.after(copied).contains(&named(&graph, "layer3 forward parameters")));
    let error = refused(job(json!({"zero": 1, "by_parameter": true})), &[8]);
    assert_eq!(error.field, "workload.parallelism.by_parameter");
}
