//! Experts: room for tokens, nodes that a token visits, dense layers before them, and modules behind.

#![allow(clippy::needless_pass_by_value)]

use std::collections::BTreeMap;

use crate::common::*;
use allrail_collective::Operation;
use allrail_workload::{ActorId, Built, Purpose, Work};
use serde_json::{Value, json};

fn experts(parallelism: Value) -> Value {
    let mut value = job(parallelism);
    value["model"]["transformer"]["experts"] = json!({"count": 16, "top_k": 4, "first_dense": 2});
    value
}

/// (group, bytes) of exchanges of tokens, with how often.
fn exchanges(built: &Built) -> BTreeMap<(String, u64), u32> {
    let mut found = BTreeMap::new();
    for id in built.graph.ids() {
        if let Work::Collective { operation: Operation::AllToAll, bytes, group, purpose } =
            built.graph.node(id).work
        {
            assert_eq!(purpose, Purpose::Expert);
            let name = built.graph.groups()[group.index()].name.clone();
            *found.entry((name, bytes.count())).or_insert(0) += 1;
        }
    }
    found
}

/// Of a token each visit's, of 8 samples in fp16.
const VISIT: u64 = 8 * 32 * 64 * 2;

#[test]
fn the_first_layers_are_dense() {
    let built = built(experts(json!({"ep": 4, "dp": 2})), &[8]);
    let with: Vec<&str> = built
        .model
        .layers
        .iter()
        .filter(|layer| layer.experts.is_some())
        .map(|layer| layer.name.as_str())
        .collect();
    assert_eq!((with.len(), with[0]), (6, "layer2.feed_forward"));
    assert_eq!(exchanges(&built), [(("ep".to_owned(), 4 * VISIT), 6 * 4)].into());
    let tensors = built.model.layers.iter().find(|layer| layer.name == "layer1.feed_forward");
    assert_eq!(tensors.expect("dense").flops.forward, 2 * 32 * 2 * 64 * 256);
}

#[test]
fn a_token_goes_once_to_each_of_its_nodes() {
    let of =
        |limit: Value| built(experts(json!({"ep": 16, "dp": 1, "expert_nodes": limit})), &[4, 4]);
    let near = || "ep in a node".to_owned();
    let far = || "ep over nodes".to_owned();
    for (limit, once) in [(1, 1), (2, 2), (4, 4)] {
        let built = of(json!(limit));
        let expected = [((near(), 4 * VISIT), 24), ((far(), once * VISIT), 24)];
        assert_eq!(exchanges(&built), expected.into());
        // Out over nodes first, home within the node first.
        let all = collectives(&built.graph, ActorId(0)).into_iter();
        let order: Vec<bool> = all
            .filter(|c| c.3 == Purpose::Expert)
            .map(|(id, ..)| match built.graph.node(id).work {
                Work::Collective { group, .. } => {
                    built.graph.groups()[group.index()].name.ends_with("node")
                }
                _ => false,
            })
            .collect();
        let turns = [false, true, true, false];
        assert!(order.chunks(4).all(|chunk| chunk == turns), "{order:?}");
    }
    assert_eq!(exchanges(&of(Value::Null)), [(("ep".to_owned(), 4 * VISIT), 24)].into());
}

#[test]
fn room_is_computed_and_sent_and_counts_to_hfu_alone() {
    let of = |room: Value| built(experts(json!({"ep": 4, "dp": 2, "capacity_factor": room})), &[8]);
    let (even, plain) = (of(json!(1.0)), of(Value::Null));
    assert_eq!(exchanges(&even), exchanges(&plain));
    assert_eq!(even.work, plain.work);
    let (more, less) = (of(json!(1.5)), of(json!(0.5)));
    assert_eq!(exchanges(&more), [(("ep".to_owned(), 6 * VISIT), 24)].into());
    assert_eq!(exchanges(&less), [(("ep".to_owned(), 2 * VISIT), 24)].into());
    let [none, wide, tight] = [&plain, &more, &less].map(|built| built.work.expect("known"));
    assert_eq!(none.flops, wide.flops, "the model needs no padding");
    assert!(tight.flops < none.flops, "what is dropped is not computed");
    // Six layers, half of four visits more, two matrices of 64 × 256: forward and twice backward.
    let each = f64::from(2 * 32 * 2 * 2 * 64 * 256);
    assert_eq!(wide.recomputed, 3.0 * 6.0 * each * wide.samples as f64);
    let time = |built: &Built| compute(&built.graph, ActorId(0)).as_s();
    let longer = time(&more) - time(&plain);
    // At 1 GFLOP/s, a rank of eight an eighth.
    assert!((longer - wide.recomputed / 8.0 / 1e9).abs() < 1e-8, "{longer}");
    assert!(more.memory.activations > plain.memory.activations);
}

#[test]
fn deepseeks_module_predicts_one_token_more() {
    let mut config = json!({"model_type": "deepseek_v3", "hidden_size": 7168,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129_280,
        "max_position_embeddings": 163_840, "tie_word_embeddings": false});
    let of = |config: &Value| {
        let mut value = job(json!({"ep": 64, "pp": 2, "microbatches": 8}));
        value["model"] = json!({"hugging_face": config});
        value["compute"] = json!({"peak": "1000 TFLOP/s"});
        built(value, &[8, 16])
    };
    let plain = of(&config);
    config["num_nextn_predict_layers"] = json!(1);
    let module = of(&config);
    let parameters = (module.model.parameters() - plain.model.parameters()) as f64;
    // 11.5 billion of its own (README_WEIGHTS.md of DeepSeek-V3).
    assert!((parameters / 11.5e9 - 1.0).abs() < 0.015, "{parameters}");
    assert!(module.notes.iter().all(|note| !note.contains("num_nextn_predict_layers")));
    let names: Vec<&str> =
        module.model.layers.iter().rev().take(5).map(|layer| layer.name.as_str()).collect();
    let expected = ["head", "mtp0.head", "mtp0.feed_forward", "mtp0.attention", "mtp0.projection"];
    assert_eq!(names, expected);
    let last = |built: &Built| built.model.layers.last().expect("a head").flops.forward;
    let own = module.model.forward_flops() - plain.model.forward_flops();
    assert!(own > last(&plain), "it has the head again");
    // Of the pipeline's layers it is one: 62 are even over two stages, 61 are not.
    let uneven = |built: &Built| built.notes.iter().any(|note| note.starts_with("stages have"));
    assert_eq!((uneven(&plain), uneven(&module)), (true, false));
}

#[test]
fn what_experts_cannot_do_is_refused() {
    for (value, field, why) in [
        (experts(json!({"ep": 4, "expert_nodes": 2})), "expert_nodes", "lies on 1 node"),
        (experts(json!({"ep": 16, "expert_nodes": 5})), "expert_nodes", "lies on 4 nodes"),
        (experts(json!({"ep": 16, "expert_nodes": 0})), "expert_nodes", "lies on 4 nodes"),
        (experts(json!({"capacity_factor": 0.0})), "capacity_factor", "some tokens"),
        (experts(json!({"capacity_factor": 4.5})), "capacity_factor", "all at most"),
        (job(json!({"capacity_factor": 1.5})), "capacity_factor", "no experts"),
    ] {
        let error = refused(value, &[4, 4]);
        assert_eq!(error.field, format!("workload.parallelism.{field}"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut encoder = job(json!({}));
    encoder["model"]["transformer"]["next_tokens"] = json!(1);
    encoder["model"]["transformer"]["head"] = json!("pooler");
    assert_eq!(refused(encoder, &[1]).field, "workload.model.next_tokens");
}
