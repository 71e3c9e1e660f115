"""From cells to a model: a preset where it has experts, otherwise its sizes.

A dense transformer's sizes stand in the table. Whether its feed-forward part is gated and its head
tied is what makes its parameters those of the table (`params_b`); without these, it is what the
family of its name does.
"""

from __future__ import annotations

import re
from typing import Any

from allrail.scenario.models import load_model, model_names
from allrail_reproduce.runs.table import Run

GATED = ("llama", "qwen", "mistral", "mixtral", "deepseek", "gemma", "nemotron-4", "kimi", "olmo")


def model_of(run: Run) -> dict[str, Any] | None:
    """Return the key `model` of a workload; None where neither a preset nor sizes are known.

    Args:
        run: The line.
    """
    name = _plain(run.text("model"))
    preset = max(
        (one for one in model_names() if _plain(one) == name),
        key=len,
        default=None,
    )
    transformer = load_model(preset).get("transformer", {}) if preset is not None else {}
    if "experts" in transformer:
        return {"transformer": transformer, "name": run.text("model")}
    sizes = _sizes(run)
    if sizes is None:
        return _preset(run, transformer)
    return {"transformer": sizes, "name": run.text("model") or "transformer"}


def _preset(run: Run, transformer: dict[str, Any]) -> dict[str, Any] | None:
    """A dense preset, where the table lacks sizes."""
    length = run.count("sequence_length")
    if not transformer or length is None:
        return None
    return {"transformer": transformer | {"sequence_length": length}, "name": run.text("model")}


def _sizes(run: Run) -> dict[str, Any] | None:
    counts = {key: run.count(key) for key in ("layers", "hidden", "heads", "vocab")}
    if any(value is None for value in counts.values()):
        return None
    sizes: dict[str, Any] = {
        "layers": counts["layers"],
        "hidden": counts["hidden"],
        "heads": counts["heads"],
        "vocabulary": counts["vocab"],
        "sequence_length": run.count("sequence_length"),
    }
    kv_heads, inner = run.count("kv_heads"), run.count("ffn")
    if kv_heads is not None:
        sizes["kv_heads"] = kv_heads
    if inner is not None:
        sizes["feed_forward"] = inner
    gated, tied = _form(run, sizes)
    sizes |= {"gated": gated, "tied": tied}
    if gated:
        sizes |= {
            "norms": {"parameters": 1},
            "biases": {"qkv": False, "output": False, "feed_forward": False},
        }
    else:
        # Learned positions and ALiBi alike: nothing is turned.
        sizes["rotary"] = False
    return sizes


def _form(run: Run, sizes: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the feed-forward part is gated, and whether the head is tied."""
    published = run.number("params_b")
    forms = [(gated, tied) for gated in (False, True) for tied in (False, True)]
    if published is None:
        gated = any(family in run.text("model") for family in GATED)
        return gated, not gated
    return min(forms, key=lambda form: abs(_parameters(sizes, *form) - 1e9 * published))


def _parameters(sizes: dict[str, Any], gated: bool, tied: bool) -> float:  # noqa: FBT001
    hidden, heads = sizes["hidden"], sizes["heads"]
    inner = sizes.get("feed_forward", 4 * hidden)
    attention = hidden * hidden * (2 + 2 * sizes.get("kv_heads", heads) / heads)
    layer = attention + (3 if gated else 2) * hidden * inner
    table: float = sizes["vocabulary"] * hidden
    return float(sizes["layers"] * layer + table * (1 if tied else 2))


def _plain(name: str) -> str:
    # Releases of Llama 3 have the same sizes.
    name = re.sub(r"(llama-?3)[.][123]", r"\1", name.lower())
    return re.sub(r"[^a-z0-9]", "", name)
