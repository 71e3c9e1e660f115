//! ASTRA-sim's training loops: the step graph takes as long as a plain state machine of the loop.
//!
//! Both run on a network without contention, where a collective takes a nanosecond a byte and 100 ns
//! for each dimension that it spans. The state machine keeps a clock and, like ASTRA-sim, a state
//! (forward, weight gradient, input gradient, forward again) and a layer index.

use allrail_formats::astra_sim::{AstraSim, Layer, LayerPass, Loop, Options, build};
use allrail_workload::{NodeId, Part, StepGraph, Work};
use proptest::prelude::*;
use serde_json::json;

const SIZES: [u32; 3] = [4, 2, 8];

fn cost(bytes: u64, parts: &[Part]) -> u64 {
    bytes + 100 * parts.len() as u64
}

/// When each of some iterations' last node is over, and how long the engine computed in each.
fn evaluate(graph: &StepGraph, iterations: usize) -> (Vec<u64>, u64) {
    let mut ends = Vec::new();
    let mut before: Vec<u64> = vec![0; graph.len()];
    let mut engine = 0;
    let mut computed = 0;
    for iteration in 0..iterations {
        let mut over = vec![0u64; graph.len()];
        for id in graph.ids() {
            let ready = |over: &[u64], ids: &[NodeId]| {
                ids.iter().map(|id| over[id.index()]).max().unwrap_or(0)
            };
            let mut start = ready(&over, graph.after(id));
            if iteration > 0 {
                let carried: Vec<NodeId> =
                    graph.carried().iter().filter(|(n, _)| *n == id).map(|(_, b)| *b).collect();
                start = start.max(ready(&before, &carried));
            }
            over[id.index()] = match graph.node(id).work {
                Work::Compute { time } if graph.is_delay(id) => start + time.as_ps() / 1000,
                Work::Compute { time } => {
                    computed += time.as_ps() / 1000;
                    engine = start.max(engine) + time.as_ps() / 1000;
                    engine
                }
                Work::Collective { bytes, group, .. } => {
                    start + cost(bytes.count(), &graph.groups()[group.index()].parts)
                }
                other => panic!("a loop has no {other:?}"),
            };
        }
        ends.push(over.iter().copied().max().unwrap_or(0).max(ends.last().copied().unwrap_or(0)));
        before = over;
    }
    (ends, computed)
}

/// The loop as ASTRA-sim runs it, step by step.
struct Machine<'a> {
    file: &'a AstraSim,
    now: u64,
    last: u64,
    computed: u64,
    /// When each layer's collectives are over: forward, input gradient, weight gradient.
    over: Vec<[u64; 3]>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Forward,
    Weight,
    Input,
    Again,
}

impl Machine<'_> {
    fn phase(&self, layer: usize, which: usize) -> LayerPass {
        let layer = &self.file.layers[layer];
        [layer.forward, layer.input_gradient, layer.weight_gradient][which]
    }

    fn compute(&mut self, layer: usize, which: usize) {
        let time = self.phase(layer, which).compute_ns;
        self.now += time;
        self.computed += time;
    }

    /// The dimensions by the name of the parallelism, as a mask.
    fn involved(&self, layer: usize, which: usize) -> [bool; 3] {
        let own = self.file.layers[layer].parallelism.unwrap_or(self.file.training_loop);
        let weight = which == 2;
        match own {
            Loop::HybridDlrm | Loop::HybridDlrmEnhanced if layer == 0 => [true; 3],
            Loop::Data | Loop::HybridDlrm | Loop::HybridDlrmEnhanced => [weight; 3],
            Loop::Model | Loop::DistributedInference => [!weight; 3],
            Loop::HybridDataModel => [!weight, weight, weight],
            Loop::HybridModelData => [weight, !weight, !weight],
            // A model on 8 NPUs: the first two dimensions.
            _ => [!weight, !weight, weight],
        }
    }

    fn issue(&mut self, layer: usize, which: usize) {
        let phase = self.phase(layer, which);
        let dimensions: Vec<u32> = SIZES
            .iter()
            .zip(self.involved(layer, which))
            .filter(|(_, used)| *used)
            .map(|(size, _)| *size)
            .collect();
        let Some(operation) = phase.collective else { return };
        if dimensions.is_empty() || phase.bytes == 0 {
            return;
        }
        let gathered = if operation.tag() == "all_gather" {
            dimensions.iter().map(|size| u64::from(*size)).product()
        } else {
            1
        };
        let time = phase.bytes * gathered + 100 * dimensions.len() as u64;
        let over = self.now + time + self.file.layers[layer].update_ns;
        self.over[layer][which] = over;
        self.last = self.last.max(over);
    }

    fn wait(&mut self, layer: usize, which: usize) {
        self.now = self.now.max(self.over[layer][which]);
    }

    fn pass(&mut self) {
        let which = self.file.training_loop;
        let options = &self.file.options;
        let dlrm = matches!(which, Loop::HybridDlrm | Loop::HybridDlrmEnhanced);
        let weight_first = dlrm || which == Loop::Data;
        let transformer =
            matches!(which, Loop::HybridTransformer | Loop::HybridTransformerFwdInBckwd);
        let count = self.file.layers.len();
        let (mut state, mut at, mut again) = (State::Forward, 0, false);
        loop {
            match state {
                State::Forward | State::Again => {
                    self.wait(at, 2);
                    self.compute(at, 0);
                    if dlrm {
                        let kind = self.phase(at, 0).collective;
                        if kind.is_some_and(|kind| kind.tag() == "all_to_all") {
                            self.issue(at, 0);
                        } else if at == options.last_bottom_layer {
                            self.wait(0, 0);
                        }
                    } else if which != Loop::Data {
                        self.issue(at, 0);
                        self.wait(at, 0);
                    }
                    at += 1;
                    if state == State::Again {
                        if options.checkpoint_initiates.contains(&at) {
                            state = State::Input;
                        }
                    } else if at == count {
                        if which == Loop::DistributedInference {
                            return;
                        }
                        at -= 1;
                        state = if weight_first { State::Weight } else { State::Input };
                    }
                }
                State::Input => {
                    if options.checkpoint_initiates.contains(&at) && !again {
                        while !options.checkpoints.contains(&at) {
                            at -= 1;
                        }
                        again = true;
                        state = State::Again;
                        continue;
                    }
                    again = false;
                    self.compute(at, 1);
                    if weight_first {
                        if dlrm && at == options.last_bottom_layer + 1 {
                            self.issue(0, 1);
                        }
                        at -= 1;
                    } else if transformer {
                        self.issue(at, 1);
                        self.wait(at, 1);
                    } else if at > 0 {
                        self.issue(at, 1);
                    }
                    state = State::Weight;
                }
                State::Weight => {
                    self.compute(at, 2);
                    if which != Loop::Model {
                        self.issue(at, 2);
                    }
                    if which != Loop::Data && which != Loop::HybridDlrmEnhanced {
                        self.wait(at, 1);
                    }
                    if at == 0 {
                        return;
                    }
                    if !weight_first {
                        at -= 1;
                    }
                    state = State::Input;
                }
            }
        }
    }
}

fn loops() -> impl Strategy<Value = Loop> {
    prop_oneof![
        Just(Loop::Data),
        Just(Loop::Model),
        Just(Loop::HybridDataModel),
        Just(Loop::HybridModelData),
        Just(Loop::HybridTransformer),
        Just(Loop::HybridTransformerFwdInBckwd),
        Just(Loop::HybridDlrm),
        Just(Loop::HybridDlrmEnhanced),
        Just(Loop::HybridCustomized),
        Just(Loop::DistributedInference),
    ]
}

fn phases() -> impl Strategy<Value = LayerPass> {
    let kind = prop_oneof![
        Just(json!(null)),
        Just(json!("all_reduce")),
        Just(json!("all_gather")),
        Just(json!("reduce_scatter")),
        Just(json!("all_to_all")),
    ];
    (0u64..2000, kind, 0u64..3000).prop_map(|(compute_ns, kind, bytes)| {
        serde_json::from_value(
            json!({"compute_ns": compute_ns, "collective": kind, "bytes": bytes}),
        )
        .expect("a phase")
    })
}

fn files() -> impl Strategy<Value = AstraSim> {
    let own = prop_oneof![
        Just(Loop::Data),
        Just(Loop::Model),
        Just(Loop::HybridDataModel),
        Just(Loop::HybridModelData)
    ];
    let layer = (phases(), phases(), phases(), 0u64..500, own);
    (loops(), prop::collection::vec(layer, 2..9), any::<u32>()).prop_map(|(which, layers, pick)| {
        let count = layers.len();
        let initiates: Vec<usize> = (1..count).filter(|layer| pick >> layer & 1 == 1).collect();
        let checkpoints: Vec<usize> = (0..count)
            .filter(|layer| *layer == 0 || pick >> (layer + 16) & 1 == 1)
            .filter(|layer| !initiates.contains(layer))
            .collect();
        let recompute = which == Loop::HybridTransformerFwdInBckwd;
        AstraSim {
            training_loop: which,
            options: Options {
                model_parallel: 8,
                checkpoints: if recompute { checkpoints } else { Vec::new() },
                checkpoint_initiates: if recompute { initiates } else { Vec::new() },
                last_bottom_layer: pick as usize % count,
                ..Options::default()
            },
            layers: layers
                .into_iter()
                .map(|(forward, input_gradient, weight_gradient, update_ns, own)| Layer {
                    name: "layer".into(),
                    forward,
                    input_gradient,
                    weight_gradient,
                    update_ns,
                    parallelism: (which == Loop::HybridCustomized).then_some(own),
                })
                .collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_graph_takes_as_long_as_the_state_machine(file in files()) {
        let graph = build(&file, &SIZES).expect("a graph");
        let (ends, computed) = evaluate(&graph, 3);
        let over = vec![[0; 3]; file.layers.len()];
        let mut machine = Machine { file: &file, now: 0, last: 0, computed: 0, over };
        let mut expected = Vec::new();
        for _ in 0..3 {
            machine.pass();
            expected.push(machine.now.max(machine.last));
        }
        prop_assert_eq!(ends, expected);
        prop_assert_eq!(computed, machine.computed);
    }
}

fn one_layer(which: &str, options: &serde_json::Value) -> AstraSim {
    let phase = json!({"compute_ns": 10, "collective": "all_reduce", "bytes": 1000});
    let layer = json!({"name": "a", "forward": phase, "input_gradient": phase,
        "weight_gradient": phase, "update_ns": 7});
    serde_json::from_value(json!({"loop": which, "options": options, "layers": [layer, layer]}))
        .expect("a file")
}

#[test]
fn a_model_that_ends_within_a_dimension_cuts_it() {
    let file = one_layer("HYBRID_TRANSFORMER", &json!({"model_parallel": 16}));
    let graph = build(&file, &[4, 8, 2]).expect("a graph");
    let names: Vec<&str> = graph.groups().iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["16 ranks on dim1, dim2", "4 ranks on dim2, dim3"]);
    let part = |dimension, size, stride| Part {
        dimension: allrail_core::DimensionId(dimension),
        size,
        stride,
    };
    assert_eq!(graph.groups()[0].parts, [part(0, 4, 1), part(1, 4, 1)]);
    assert_eq!(graph.groups()[1].parts, [part(1, 2, 4), part(2, 2, 1)]);
}

#[test]
fn simai_groups_nest_as_megatron_counts_ranks() {
    let mut file = one_layer(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
        &json!({"model_parallel": 4, "expert_parallel": 2, "pipeline_parallel": 2}),
    );
    let over = |what: &str| serde_json::from_value(json!(what)).expect("a group");
    file.layers[1].forward.over = Some(over("experts"));
    file.layers[1].weight_gradient.over = Some(over("expert_replicas"));
    let graph = build(&file, &[4, 8, 2]).expect("a graph");
    let names: Vec<&str> = graph.groups().iter().map(|group| group.name.as_str()).collect();
    // 64 NPUs: 4 a model, 8 replicas a stage (2 of them share experts), 2 stages.
    assert_eq!(names, ["4 ranks on dim1", "2 ranks on dim2", "4 ranks on dim2", "8 ranks on dim2"]);
}

#[test]
fn updates_are_delays_and_embeddings_are_urgent() {
    let mut file = one_layer("HYBRID_DLRM", &json!({"last_bottom_layer": 1}));
    file.layers[0].forward.collective = Some(allrail_collective::Operation::AllToAll);
    let graph = build(&file, &[4, 8]).expect("a graph");
    let urgent: Vec<&str> =
        graph.ids().filter(|id| graph.is_urgent(*id)).map(|id| graph.name(id)).collect();
    assert_eq!(urgent, ["a, forward"]);
    let delays: Vec<u64> = graph
        .ids()
        .filter(|id| graph.is_delay(*id))
        .map(|id| match graph.node(id).work {
            Work::Compute { time } => time.as_ps(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(delays, [7000, 7000, 7000], "one forward and two weight-gradient collectives");
}

#[test]
fn what_cannot_be_run_is_said() {
    let of = |which: &str, options: &serde_json::Value| build(&one_layer(which, options), &[4, 8]);
    let why = |result: Result<StepGraph, allrail_core::FieldError>| {
        let error = result.expect_err("an error");
        (error.field, error.why)
    };
    let field = |name: &str| format!("workload.model.astra_sim.options.{name}");
    let transformer = "HYBRID_TRANSFORMER_FWD_IN_BCKWD";
    for (result, at, said) in [
        (
            of("HYBRID_TRANSFORMER", &json!({"model_parallel": 3})),
            "model_parallel",
            "does not divide",
        ),
        (
            of("HYBRID_TRANSFORMER", &json!({"model_parallel": 0})),
            "model_parallel",
            "does not divide",
        ),
        (of("HYBRID_TRANSFORMER", &json!({"expert_parallel": 64})), "expert_parallel", "divide"),
        (of(transformer, &json!({"checkpoints": [2]})), "checkpoints[0]", "no such layer"),
        (
            of(transformer, &json!({"checkpoint_initiates": [1]})),
            "checkpoint_initiates",
            "below it",
        ),
        (
            of(transformer, &json!({"checkpoint_initiates": [1], "checkpoints": [1]})),
            "checkpoint_initiates",
            "a checkpoint itself",
        ),
        (of("HYBRID_DLRM", &json!({"last_bottom_layer": 2})), "last_bottom_layer", "no such layer"),
        (of("DATA", &json!({"comm_scale": 0.0})), "comm_scale", "positive"),
        (of("DATA", &json!({"compute_scale": -1.0})), "compute_scale", "positive"),
    ] {
        let (found, why) = why(result);
        assert_eq!(found, field(at));
        assert!(why.contains(said), "{why}");
    }
    let (found, reason) = why(of("HYBRID_CUSTOMIZED", &json!({})));
    assert_eq!(found, "workload.model.astra_sim.layers[0].parallelism");
    assert!(reason.contains("its own"), "{reason}");
    let (found, _) = why(of("DATA", &json!({"comm_scale": 1e300})));
    assert!(found.starts_with("workload.model.astra_sim.layers"), "{found}");
}

#[test]
fn times_and_bytes_are_scaled_and_rounded_down() {
    let file = one_layer("DATA", &json!({"compute_scale": 0.41, "comm_scale": 0.0015}));
    let graph = build(&file, &[4]).expect("a graph");
    let works: Vec<Work> = graph.ids().map(|id| graph.node(id).work).collect();
    assert!(matches!(works[0], Work::Compute { time } if time.as_ps() == 4000));
    let bytes = works.iter().find_map(|work| match work {
        Work::Collective { bytes, .. } => Some(bytes.count()),
        _ => None,
    });
    assert_eq!(bytes, Some(1));
}
