//! What comes before the first layer and behind the last, of words and of pictures.

use super::config::{Config, wrong};
use super::row::{Ends, Read};
use crate::models::transformer::{Head, TransformerSpec};

/// The head, by the type and by the class that `architectures` names.
pub(super) fn ends(config: &Config<'_>, spec: &mut TransformerSpec, ends: Ends) -> Read {
    let name = config.architecture();
    match ends {
        Ends::Words => {
            // `LlamaModel` ends with the last layer; `GPT2LMHeadModel` does not.
            let bare = ["Model", "Encoder"].iter().any(|end| name.ends_with(end));
            let headed =
                ["LMHead", "MTModel", "DoubleHeads"].iter().any(|part| name.contains(part));
            let bare = bare && (!headed || name == "FSMTModel");
            // A stack beside an encoder has the head's table anyway.
            if bare && spec.decoder_layers == 0 {
                spec.head = Head::None;
            }
        }
        Ends::Encoder { pooler } => {
            spec.causal =
                (name.contains("CausalLM") || name.contains("LMHeadModel")).then_some(true);
            let masked =
                ["ForMaskedLM", "WithLMHead", "WithLMHeadModel", "LMHeadModel", "CausalLM"];
            spec.head = if name.ends_with("ForPreTraining") && pooler {
                Head::Pretraining
            } else if masked.iter().any(|one| name.ends_with(one)) {
                Head::Masked
            } else if name.ends_with("ForPreTraining") {
                // Which words were replaced: a dense layer, and one number of each token.
                spec.others = spec.hidden.saturating_mul(spec.hidden + 2).saturating_add(1);
                Head::None
            } else if name.contains("For") || !pooler {
                Head::None
            } else {
                Head::Pooler
            };
        }
        Ends::Picture { pooler } => picture(config, spec, pooler)?,
    }
    Ok(())
}

/// Patches before, a class or a pooled token behind.
fn picture(config: &Config<'_>, spec: &mut TransformerSpec, pooler: bool) -> Read {
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
    spec.biases.head = true;
    let name = config.architecture();
    (spec.head, spec.vocabulary) = if name.ends_with("ForImageClassification") {
        let labels = config.get("id2label").and_then(|(_, names)| names.as_object());
        let labels = labels.map(|names| names.len() as u64);
        (Head::Classifier, labels.or(config.size(&["num_labels"])?).unwrap_or(2))
    } else if name.contains("For") {
        let hint = "describe the model as `transformer` instead";
        return Err(wrong("architectures", name, "what follows its last layer is not read", hint));
    } else if pooler {
        (Head::Pooler, 0)
    } else {
        (Head::None, 0)
    };
    Ok(())
}
