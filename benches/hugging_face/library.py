"""What `transformers` knows of a model type: its configuration class and the classes of models."""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import Any

warnings.filterwarnings("ignore")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.auto import modeling_auto as auto  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

transformers.logging.set_verbosity_error()

HEADS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "PRETRAINING", "IMAGE_CLASSIFICATION")
"""Tasks whose classes are built, beside the model without a head."""

TEXT = ("text_config", "llm_config", "language_config", "thinker_config")


@cache
def classes(kind: str) -> tuple[str, ...]:
    """The names of a type's classes, those with a head first."""
    found: list[str] = []
    for task in HEADS:
        name = dict(getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES")).get(kind)
        found += [name] if isinstance(name, str) else list(name or ())
    name = dict(auto.MODEL_MAPPING_NAMES).get(kind)
    found += [name] if isinstance(name, str) else list(name or ())[:1]
    kept = dict.fromkeys(found)
    # A decoder alone of a type that has two stacks is another model.
    if kind in dict(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES):
        kept.pop(dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).get(kind), None)
    return tuple(kept)


def kinds() -> list[str]:
    """Every model type that has a class for words, or for pictures' classes."""
    found: set[str] = set()
    for task in HEADS:
        found |= set(dict(getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES")))
    return sorted(found & set(CONFIG_MAPPING.keys()))


def parameters(name: str, config: Any) -> int:
    """Parameters of a class, shared ones once; of several parts, of text model and head."""
    cls = getattr(transformers, name)
    with torch.device("meta"):
        model = cls._from_config(config) if hasattr(cls, "_from_config") else cls(config)
    whole = {id(one): one.numel() for one in model.parameters()}
    if not any(getattr(config, key, None) is not None for key in TEXT):
        return sum(whole.values())
    named = dict(model.named_modules())
    text = next(
        (named[one] for one in ("model.language_model", "language_model") if one in named), None
    )
    parts = [
        text or model.get_decoder(),
        model.get_input_embeddings(),
        model.get_output_embeddings(),
        named.get("projection_head"),  # before the words, of the whole of ModernVBERT
    ]
    found = {
        id(one): one.numel() for part in parts if part is not None for one in part.parameters()
    }
    return sum(found.values())
