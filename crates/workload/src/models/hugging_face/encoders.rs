//! Encoders, of words and of pictures: a row a type, and what no row can say.

use super::config::Config;
use super::row::Flag::{Key, No, Yes};
use super::row::{Ends, GPT, LLAMA, Positions, QueryKey, Read, Row};
use crate::models::transformer::{Head, TransformerSpec};

/// A BERT: norms behind both parts and behind the embedding, types of token.
const BERT: Row = Row {
    end_norms: [Yes, No],
    biases: [Yes; 4],
    ends: Ends::Encoder { pooler: true },
    read: types,
    ..GPT
};

/// Norms before both parts, and one behind the last layer.
const BEFORE: Row = Row { end_norms: [No, Yes], ..BERT };

pub(super) static ENCODERS: &[Row] = &[
    Row { types: &["bert", "roberta", "xlm-roberta", "camembert", "data2vec-text"], ..BERT },
    Row {
        types: &["ernie"],
        read: |config, spec| {
            types(config, spec)?;
            if config.flag(&["use_task_id"], false) {
                spec.token_types += config.needed(&["task_type_vocab_size"])?.min(1 << 26);
            }
            Ok(())
        },
        ..BERT
    },
    Row { types: &["big_bird"], biases: [Key("use_bias"), Yes, Yes, Yes], read: big_bird, ..BERT },
    Row { types: &["megatron-bert", "xlm-roberta-xl"], ..BEFORE },
    Row { types: &["roberta-prelayernorm"], end_norms: [Yes, Yes], ..BERT },
    Row {
        types: &["electra"],
        ends: Ends::Encoder { pooler: false },
        read: |config, spec| {
            spec.token_types = config.size(&["type_vocab_size"])?.unwrap_or(2);
            spec.embedding_size = config.size(&["embedding_size"])?;
            spec.biases.embedding = true;
            Ok(())
        },
        ..BERT
    },
    Row {
        types: &["distilbert"],
        ends: Ends::Encoder { pooler: false },
        read: super::row::nothing,
        ..BERT
    },
    Row {
        types: &["mpnet"],
        read: |config, spec| {
            spec.relative_positions =
                config.needed(&["relative_attention_num_buckets"])?.min(1 << 20);
            untied(config, spec)
        },
        ..BERT
    },
    Row {
        types: &["layoutlm"],
        read: |config, spec| {
            types(config, spec)?;
            // Tables of left, upper, right and lower edges share two; widths and heights have one each.
            let edges = config.needed(&["max_2d_position_embeddings"])?.min(1 << 20);
            spec.token_types = spec.token_types.saturating_add(4 * edges);
            pooled(spec);
            Ok(())
        },
        ..BERT
    },
    Row {
        types: &["nomic_bert"],
        gated: Yes,
        biases: [No, No, No, Yes],
        positions: Positions::Rotary,
        ends: Ends::Encoder { pooler: false },
        read: |config, spec| {
            spec.token_types = config.size(&["type_vocab_size"])?.unwrap_or(2);
            Ok(())
        },
        ..BERT
    },
    Row { types: &["jina_embeddings_v3"], positions: Positions::Rotary, ..BERT },
    Row {
        types: &["eurobert"],
        biases: [Key("attention_bias"), Key("attention_bias"), Key("mlp_bias"), Key("mlp_bias")],
        ends: Ends::Encoder { pooler: false },
        read: |_, spec| {
            // A plain map to words.
            if spec.head == Head::Masked {
                spec.head = Head::Language;
            }
            spec.causal = Some(false);
            Ok(())
        },
        ..LLAMA
    },
    Row {
        types: &["modernbert"],
        biases: [
            Key("attention_bias"),
            Key("attention_bias"),
            Key("mlp_bias"),
            Key("decoder_bias"),
        ],
        ends: Ends::Encoder { pooler: false },
        read: modern,
        ..LLAMA
    },
    Row {
        types: &["vit"],
        biases: [Key("qkv_bias"), Yes, Yes, Yes],
        positions: Positions::Fixed,
        ends: Ends::Picture { pooler: true },
        ..GPT
    },
    Row {
        types: &["deit"],
        biases: [Key("qkv_bias"), Yes, Yes, Yes],
        positions: Positions::Fixed,
        ends: Ends::Picture { pooler: true },
        read: |_, spec| {
            // A second learned token, for a teacher.
            (spec.token_types, spec.positions) = (2, spec.positions + 1);
            spec.sequence_length += 1;
            Ok(())
        },
        ..GPT
    },
    Row {
        types: &["vit_msn"],
        biases: [Key("qkv_bias"), Yes, Yes, Yes],
        positions: Positions::Fixed,
        ends: Ends::Picture { pooler: false },
        ..GPT
    },
    Row {
        types: &["ijepa"],
        biases: [Key("qkv_bias"), Yes, Yes, Yes],
        positions: Positions::Fixed,
        ends: Ends::Picture { pooler: false },
        read: |_, spec| {
            (spec.token_types, spec.positions) = (0, spec.positions - 1);
            spec.sequence_length -= 1;
            Ok(())
        },
        ..GPT
    },
    Row {
        types: &["esm"],
        end_norms: [No, Yes],
        query_key: QueryKey::Head(No),
        read: |config, spec| {
            spec.norms.embedding = config.flag(&["emb_layer_norm_before"], false);
            if config.text("position_embedding_type") == "rotary" {
                spec.positions = 0;
            }
            // Every class has a head for contacts: a number of each head of each layer.
            spec.others = u64::from(spec.layers).saturating_mul(spec.heads).saturating_add(1);
            Ok(())
        },
        ..BERT
    },
];

fn types(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.token_types = config.size(&["type_vocab_size"])?.unwrap_or(2);
    untied(config, spec)
}

/// The head's bias, where it is not tied, stands beside that of the map to words.
fn untied(_: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    if !spec.tied && matches!(spec.head, Head::Masked | Head::Pretraining) {
        spec.others = spec.others.saturating_add(spec.vocabulary);
    }
    Ok(())
}

fn big_bird(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    types(config, spec)?;
    pooled(spec);
    Ok(())
}

/// Every class has the pooler, whether it is used or not.
fn pooled(spec: &mut TransformerSpec) {
    if spec.head == Head::Masked {
        let pooler = spec.hidden.saturating_mul(spec.hidden.saturating_add(1));
        spec.others = spec.others.saturating_add(pooler);
    }
}

/// ModernBERT's: a gate, norms without what came before the first, and a head with one of its own.
pub(super) fn modern(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    if config.flag(&["norm_bias"], false) {
        spec.norms.parameters = 2;
    }
    // The first layer's norm is the embedding's.
    spec.biases.transform = config.flag(&["classifier_bias"], false);
    if spec.head != Head::None {
        spec.head = Head::Masked;
    }
    spec.causal = Some(config.text("model_type").ends_with("decoder"));
    Ok(())
}
