"""Compare parameters by type, class and configuration."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import library

from allrail import _core

MOST = 2
"""Configurations of other sizes than the default that are tried for each type."""


@dataclass
class Verdict:
    """Of one type.

    Attributes:
        equal: Configurations and classes whose counts are equal.
        wrong: Those whose counts differ: class, theirs, ours.
        refused: Why allrail does not read it, with the hint.
        misled: Of refusals that say which `model_type` to set: what that type counts, where the
            class has another number: the type, theirs, ours (None where it is refused, too).
        unbuilt: Why the library cannot build it.
    """

    equal: int = 0
    wrong: list[tuple[str, int, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    misled: list[tuple[str, int, int | None]] = field(default_factory=list)
    unbuilt: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        """One word for it."""
        if self.wrong:
            return "differs"
        if self.equal:
            return "equal"
        return "refused" if self.refused else "unbuilt"


def configurations(kind: str) -> Iterator[Any]:
    """The default of a type with few layers, and others of small sizes with flags turned over."""
    cls = library.CONFIG_MAPPING[kind]
    plain = cls()
    few = {
        name: 5
        for name in (
            "num_hidden_layers",
            "encoder_layers",
            "decoder_layers",
            "num_layers",
            "num_decoder_layers",
        )
        if hasattr(plain, name)
    }
    few |= {"num_experts_per_tok": 2} if hasattr(plain, "num_experts_per_tok") else {}
    few |= {"head_dim": plain.hidden_size // plain.num_attention_heads} if kind == "helium" else {}
    yield lambda: cls(**few)
    draw = random.Random(kind)
    for _ in range(MOST):
        sizes = _sizes(kind, plain, draw)
        yield lambda sizes=sizes: cls(**sizes)


def _sizes(kind: str, plain: Any, draw: random.Random) -> dict[str, Any]:
    """Sizes, and flags that change which parameters there are."""
    heads, groups, head = draw.choice([(4, 2, 16), (8, 8, 16), (8, 4, 8), (6, 1, 32)])
    wide = heads * head
    known = set(plain.to_dict()) | set(type(plain).attribute_map or {})
    experts = draw.choice([4, 8])
    layers = draw.choice([2, 4, 6])
    drawn: dict[str, Any] = {
        "hidden_size": wide,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "num_kv_heads": groups,
        "num_hidden_layers": layers,
        "intermediate_size": draw.choice([48, 96, 200]),
        "moe_intermediate_size": draw.choice([24, 40]),
        "shared_expert_intermediate_size": draw.choice([32, 56]),
        "vocab_size": draw.choice([300, 512]),
        "max_position_embeddings": draw.choice([64, 130]),
        "type_vocab_size": draw.choice([1, 3]),
        "num_experts": experts,
        "num_local_experts": experts,
        "n_routed_experts": experts,
        "moe_num_experts": experts,
        "num_experts_per_tok": 2,
        "n_shared_experts": draw.choice([1, 2]),
        "moe_topk": 2,
        "encoder_layers": layers,
        "decoder_layers": draw.choice([1, 3]),
        "num_decoder_layers": draw.choice([1, 3]),
        "encoder_ffn_dim": 72,
        "decoder_ffn_dim": 40,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": draw.choice([heads, 2]),
        "ffn_dim": 88,
        "d_ff": 88,
        "d_kv": 12,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if kind == "gpt_neo":
        drawn["attention_types"] = [[["global", "local"], layers // 2]]
    if kind == "helium":  # its last map is of the model's width
        drawn["head_dim"] = head
    elif draw.random() < 0.5:
        drawn["head_dim"] = draw.choice([head, 2 * head])
    for flag in FLAGS:
        if isinstance(getattr(plain, flag, None), bool):
            drawn[flag] = draw.random() < 0.5
    drawn["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    return {key: value for key, value in drawn.items() if key in known}


FLAGS = (
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "use_bias",
    "qkv_bias",
    "use_qkv_bias",
    "bias",
    "use_qk_norm",
    "qk_layernorm",
    "use_parallel_residual",
    "new_decoder_architecture",
    "parallel_attn",
    "multi_query",
    "alibi",
    "lm_head_bias",
    "norm_bias",
    "decoder_bias",
    "classifier_bias",
    "enable_bias",
    "do_layer_norm_before",
    "use_post_norm",
    "attention_out_bias",
    "use_task_id",
    "gating",
)
"""Keys whose value decides which parameters there are."""


def counted(
    kind: str, unbuilt: list[str] | None = None
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """A type's classes and configurations: the class, its parameters, what is saved.

    Args:
        kind: The model type.
        unbuilt: Takes what the library cannot build, if it is wanted.
    """
    try:
        drawn = list(configurations(kind))
    except Exception as error:  # noqa: BLE001, its class has no configuration without sizes
        if unbuilt is not None:
            unbuilt.append(f"{type(error).__name__}: {error}"[:160])
        return
    for make in drawn:
        for name in library.classes(kind):
            try:
                config = make()
                config.architectures = [name]
                theirs = library.parameters(name, config)
            except Exception as error:  # noqa: BLE001, whatever the library says
                if unbuilt is not None:
                    unbuilt.append(f"{name}: {type(error).__name__}: {error}"[:160])
                continue
            saved = json.loads(config.to_json_string(use_diff=True))
            # The classes leave out modules that predict more tokens, which allrail does not.
            saved.pop("num_nextn_predict_layers", None)
            yield name, theirs, saved


def judge(kind: str) -> Verdict:
    """Compare one type."""
    verdict = Verdict()
    for name, theirs, saved in counted(kind, verdict.unbuilt):
        try:
            _, _, ours = _core.hugging_face(json.dumps(saved))
        except _core.InputError as error:
            told = json.loads(str(error.args[0]))
            verdict.refused.append(
                f"{told['field']} {told['value']}: {told['why']}; {told['hint']}"
            )
            verdict.misled += misled(saved, told, theirs)
            continue
        if ours == theirs:
            verdict.equal += 1
        else:
            verdict.wrong.append((name, theirs, ours))
    return verdict


def misled(
    saved: dict[str, Any], told: dict[str, str], theirs: int
) -> list[tuple[str, int, int | None]]:
    """What a hint's `model_type` counts, where the class has another number; None if it is refused.

    Args:
        saved: The configuration.
        told: Its refusal: value and hint.
        theirs: Parameters of the class.
    """
    named = re.search(r"set (?:its text model's )?`model_type` to `([^`]+)`", told["hint"])
    if named is None:
        return []
    parts = [
        key for key in library.TEXT if (saved.get(key) or {}).get("model_type") == told["value"]
    ]
    renamed = {"model_type": named[1]}
    for key in parts:
        renamed = {key: {**saved[key], **renamed}}
    try:
        _, _, ours = _core.hugging_face(json.dumps({**saved, **renamed}))
    except _core.InputError:
        return [(named[1], theirs, None)]
    return [] if ours == theirs else [(named[1], theirs, ours)]


def report(kinds: list[str]) -> int:
    """Print a line a type and the sum; 1 if a count differs."""
    words: Counter[str] = Counter()
    for kind in kinds or library.kinds():
        verdict = judge(kind)
        words[verdict.word] += 1
        told = ""
        if verdict.wrong:
            name, theirs, ours = verdict.wrong[0]
            tried = len(verdict.wrong) + verdict.equal
            told = f"{len(verdict.wrong)} of {tried}: {name} {theirs}, here {ours - theirs:+d}"
        elif verdict.equal:
            told = f"{verdict.equal} configurations" + (
                f", {len(verdict.refused)} refused: {verdict.refused[0]}" if verdict.refused else ""
            )
        elif verdict.refused or verdict.unbuilt:
            told = (verdict.refused or verdict.unbuilt)[0]
        if verdict.misled:
            words["refused with a hint that counts otherwise"] += 1
            name, theirs, ours = verdict.misled[0]
            off = "refused" if ours is None else f"{ours - theirs:+d}"
            told = f"as a `{name}` {theirs}, here {off}: {told}"
        print(f"{kind:28} {verdict.word:8} {' '.join(told.split())[:150]}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(words.items())))
    return 1 if words["differs"] else 0
