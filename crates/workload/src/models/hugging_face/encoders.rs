//! Keys that encoders read, of words and of pictures, and T5.

use super::{Config, POSITIONS, wrong};
use crate::error::WorkloadError;
use crate::models::transformer::{Head, Norms, TransformerSpec};

/// What follows an encoder.
fn encoder_head(config: &Config<'_>) -> Head {
    let name = config.architecture();
    if name.ends_with("ForPreTraining") {
        Head::Pretraining
    } else if name.ends_with("ForMaskedLM") || name.ends_with("WithLMHead") {
        Head::Masked
    } else if name.contains("For") {
        Head::None
    } else {
        Head::Pooler
    }
}

pub(super) fn bert(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.positions = config.needed(POSITIONS)?;
    spec.token_types = config.size(&["type_vocab_size"])?.unwrap_or(2);
    spec.norms = Norms { embedding: true, last: false, ..Norms::default() };
    spec.head = encoder_head(config);
    spec.biases.head = true;
    Ok(())
}

pub(super) fn distilbert(
    config: &Config<'_>,
    spec: &mut TransformerSpec,
) -> Result<(), WorkloadError> {
    spec.positions = config.needed(POSITIONS)?;
    spec.norms = Norms { embedding: true, last: false, ..Norms::default() };
    spec.head = match encoder_head(config) {
        Head::Masked => Head::Masked,
        _ => Head::None,
    };
    spec.biases.head = true;
    Ok(())
}

pub(super) fn vit(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let (image, side) = (config.needed(&["image_size"])?, config.needed(&["patch_size"])?);
    if side == 0 || image < side || image > 1 << 16 {
        let hint = "patches of 16 x 16 pixels cover a picture of 224 x 224";
        return Err(wrong("patch_size", side, "no patch fits the picture", hint));
    }
    let colours = config.size(&["num_channels"])?.unwrap_or(3).min(1 << 20);
    spec.patch = Some(side * side * colours);
    // A learned token stands before the patches.
    spec.token_types = 1;
    spec.positions = (image / side).pow(2) + 1;
    spec.sequence_length = spec.positions;
    spec.biases.qkv = config.flag(&["qkv_bias"], true);
    let name = config.architecture();
    (spec.head, spec.vocabulary) = if name.ends_with("ForImageClassification") {
        let labels = config.get("id2label").and_then(|(_, names)| names.as_object());
        let labels = labels.map(|names| names.len() as u64);
        spec.biases.head = true;
        (Head::Classifier, labels.or(config.size(&["num_labels"])?).unwrap_or(2))
    } else if name.contains("For") {
        let hint = "describe the model as `transformer` instead";
        return Err(wrong("architectures", name, "what follows its last layer is not read", hint));
    } else {
        (Head::Pooler, 0)
    };
    Ok(())
}

pub(super) fn t5(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.decoder_layers = match config.value(&["num_decoder_layers"]) {
        Some(_) => config.small(&["num_decoder_layers"])?,
        None => spec.layers,
    };
    spec.gated = config.text("feed_forward_proj").starts_with("gated");
    let buckets = config.size(&["relative_attention_num_buckets"])?.unwrap_or(32);
    spec.relative_positions = 2 * buckets.min(1 << 20);
    if config.size(POSITIONS)?.is_none() {
        spec.sequence_length = 512;
    }
    Ok(())
}
