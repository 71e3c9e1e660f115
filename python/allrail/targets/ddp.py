"""The buckets of PyTorch's `DistributedDataParallel`: its caps, and what lies in which bucket.

A scenario that schedules tensors otherwise has no buckets: then the caps are those that the
simulator finds the fastest of `CAPS`.
"""

from __future__ import annotations

from typing import Any

from allrail import _core
from allrail.base.units import show_count
from allrail.simulation.api import simulate, simulate_many
from allrail.targets.decision import Decision

ABOUT = "the bucket caps of DistributedDataParallel, and the buckets"

CAPS = ("0.1 MB", "0.25 MB", "0.5 MB", "1.6 MB", "6 MB", "25 MB")
"""Tried where the scenario names none."""

_USUAL = (1.0, 25.0)
"""MiB of the first bucket and of the others where nobody says any (torch's `distributed.py`). A cap
that is said holds for the first one, too."""

SAME = 1.001
"""Steps that differ by less are as fast."""


def _tree(decision: Decision, schedule: dict[str, object]) -> dict[str, Any]:
    """The scenario with another schedule, nothing issued in turn: buckets wait for gradients."""
    compat = {key: one for key, one in decision.tree.get("compat", {}).items() if key != "issue"}
    return decision.tree | {"schedule": schedule, "compat": compat}


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: DDP cannot do it.
    """
    decision.needs("ddp")
    if decision.reads("bucket"):
        cap = decision.tensor.get("bucket", "25 MiB")
        first = decision.tensor.get("first_bucket", "1 MiB")
        why = "as the scenario has them"
    else:
        trees = [_tree(decision, _with(decision, cap)) for cap in CAPS]
        results = simulate_many(trees, progress=decision.progress)
        steps = [one.step_time_us for one in results]
        # Of those as fast, the largest: fewer calls.
        cap = first = [
            cap for cap, step in zip(CAPS, steps, strict=True) if step <= SAME * min(steps)
        ][-1]
        tried = ", ".join(f"{cap}: {step / 1e3:.2f}" for cap, step in zip(CAPS, steps, strict=True))
        why = f"the fastest of (ms a step) {tried}"
    tree = _tree(decision, _with(decision, cap, first))
    tree["workload"] = {**decision.workload, "iterations": 1}
    result = simulate(tree, timeline=True, progress=decision.progress)
    buckets: dict[int, tuple[str, int]] = {}
    for one in result.timeline or ():
        if one.communication is not None and one.purpose == "data":
            buckets.setdefault(one.communication, (one.name, one.bytes or 0))
    caps = [_core.parse_quantity("size", one) / 2**20 for one in (first, cap)]
    hook = _hook(decision)
    lines = [
        decision.title(),
        f"# {why}\n\n",
        f"from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import {hook}\n"
        * bool(hook),
        "from torch.nn.parallel import DistributedDataParallel\n\n\n",
        "def wrap(module, **keywords):\n",
        '    """Wrap a module of this job."""\n',
        *_made(caps, hook),
        "\n\n",
        f"# {show_count(len(buckets), 'bucket')}, as they close: bytes, and what closes it.\n",
    ]
    lines += [
        f"# {size:>12,} {name.removesuffix(' gradient')}\n" for name, size in buckets.values()
    ]
    return {"ddp_buckets.py": "".join(lines)}


def _made(caps: list[float], hook: str) -> list[str]:
    """The lines that make the wrapped module, of the first bucket's cap and the others'."""
    first, cap = caps
    if caps == list(_USUAL):
        said = ""  # what DDP does where nothing is said
    elif first == cap:
        said = f"bucket_cap_mb={cap:.6g}, "
    else:
        # The last of the list holds for all that follow; torch 2.15 has it, 2.6 has not.
        said = f"bucket_cap_mb_list=[{first:.6g}, {cap:.6g}], "
    made = f"DistributedDataParallel(module, {said}**keywords)"
    if not hook:
        return [f"    return {made}\n"]
    lines = [f"made = {made}", f"made.register_comm_hook(None, {hook})", "return made"]
    return [f"    {line}\n" for line in lines]


def _hook(decision: Decision) -> str:
    """What makes gradients of fp32 travel in 16 bits, where the scenario has them so; or empty."""
    precision, summed = decision.workload["precision"], decision.workload.get("gradient_precision")
    return f"{summed}_compress_hook" if precision == "fp32" and summed in ("fp16", "bf16") else ""


def _with(decision: Decision, cap: str, first: str | None = None) -> dict[str, object]:
    tensor = {"policy": "ddp", "bucket": cap, "first_bucket": first or cap}
    return {**decision.schedule, "tensor": tensor}
