"""From cells to how a job computes: precision, recipe, attention, launches, recomputation.

What a cell does not say follows from what it says of the software: PyTorch's FSDP2 comes with
`scaled_dot_product_attention`, Transformer Engine (8 bits and fewer, or a distributed optimizer
on an H100 and later) with cuDNN's attention; a job on A100s that names neither predates fused
attention.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from allrail import _core
from allrail_reproduce.runs.recipes import Recipe, has_recipe, recipe_of_run
from allrail_reproduce.runs.table import Run

DROPOUT = 0.1
"""What Megatron-LM leaves out unless told otherwise (`--attention-dropout`, `--hidden-dropout`);
recipes since fused attention set it to 0."""

BLOCKING = "bloom"
"""Models whose published launch script waits for each kernel (BigScience's `tr11-176B-ml.slurm`
exports `CUDA_LAUNCH_BLOCKING=1`; its log says that without it runs on 20 nodes and more hung)."""

ATTENTION = ("flash", "flash_2", "flash_3")
"""Kinds of fused attention, the slowest first."""

HALF = ("fp16", "half", "float16")


@dataclass
class Software:
    """How a job computes.

    Attributes:
        precision: Of parameters and activations.
        gradients: In what they are reduced.
        compute: Keys of `workload.compute`.
        dropout: The part of activations that is left out.
        sharded: Whether its recipe shards parameters.
        once: Whether a token travels once to a node, however many of its experts are there.
        judged: Whether its memory can be judged: not where parts of layers are computed again, or
            activations are kept by the host.
        recompute: What the table says; None where it says nothing.
        allocator: Whether its published memory is that of PyTorch's allocator (torchtitan logs the
            peak of `reserved_bytes`), and not what `nvidia-smi` shows.
        sums: Whether sums of gradients lie beside the gradients (DeepSpeed's `BF16_Optimizer`).
        early: Whether gradients of inputs are summed behind the gradient of the weights, not beside
            it: Megatron-LM before September 2021, as which jobs count that have neither fused
            attention nor sequence parallelism, and BigScience's fork of it.
        assumed: What the table does not say.
    """

    precision: str
    gradients: str
    compute: dict[str, Any]
    recompute: str | None
    dropout: float = 0.0
    sharded: bool = False
    once: bool = False
    judged: bool = True
    allocator: bool = False
    sums: bool = False
    early: bool = False
    assumed: list[str] = field(default_factory=list)

    def shows(self, memory: Mapping[str, float]) -> float:
        """Return what is shown of memory.

        Args:
            memory: Bytes by kind.
        """
        return sum(memory.values()) - (memory["context"] if self.allocator else 0)


def software_of(run: Run, device: str) -> Software:
    """Return how a run computes.

    Args:
        run: The line.
        device: Its device's tag.
    """
    precision, flags = run.text("precision"), run.text("flags")
    assumed: list[str] = []
    known = known_of(device)
    recipe = recipe_of(precision)
    if has_recipe(run) and recipe == "fp8_delayed":
        recipe = "fp8_tensorwise"
    engine = recipe.startswith(("fp8", "mxfp8", "nvfp4")) and "float8" not in precision
    old = device.startswith(("a100", "v100"))
    torch = run.is_torch or "compile" in flags
    attention, told = _attention(flags, torch=torch, old=old, engine=engine)
    has = _nearest(attention, known.attention)
    if not told or has != attention:
        assumed.append(f"attention {has or 'as fast as all products'}")
    if recipe != "plain" and not known.narrow:
        assumed.append(f"16 bits, as nothing is known of fewer on {device}")
        recipe = "plain"
    fused = "compile" in flags and "no compile" not in flags
    sharding = run.text("sharding")
    megatron = "fsdp" not in sharding
    launch = "compiled" if fused else "fused" if megatron else "eager"
    if "graph" in flags:
        launch = "graph"
    if run.text("model").startswith(BLOCKING):
        launch = "blocking"
        assumed.append("the host waits for each kernel")
    told_recipe = recipe_of_run(run, device)
    if told_recipe is not None:
        launch = _launched(told_recipe)
        assumed.append(f"what Megatron-Bridge {told_recipe.release} sets for this layout")
    dropout = DROPOUT if megatron and has == "unfused" else 0.0
    if dropout:
        assumed.append(f"dropout {dropout}")
    base = "fp16" if any(word in precision for word in HALF) else "bf16"
    if precision.startswith(("fp32", "tf32")):
        base = "fp32"
    return Software(
        precision=base,
        gradients="bf16"
        if has_recipe(run)
        else _gradients(precision, megatron=megatron, base=base),
        compute={
            "device": device,
            "recipe": recipe,
            "launch": launch,
            "loss": _loss(flags, sharding, old=old),
        }
        | ({"attention": has} if has is not None else {}),
        recompute=recompute_of(run.text("activation_recompute"), torch=run.is_torch)
        or _again(run, told_recipe),
        dropout=dropout,
        sharded=told_recipe is not None and told_recipe.sharded,
        once=told_recipe is not None and told_recipe.once,
        judged=told_recipe is None or not (told_recipe.recomputed or told_recipe.offloaded),
        allocator=run.is_torch,
        sums="fp32 grad accumulation" in precision,
        early=megatron and old and has == "unfused" and not run.text("sp").startswith("y"),
        assumed=assumed,
    )


@dataclass(frozen=True)
class Known:
    """What is known of a device.

    Attributes:
        attention: Kinds of fused attention, the slowest first; None where nothing is known of its
            kernels.
        narrow: Whether it computes in 8 bits.
        peak: FLOP/s in 16 bits, by which utilisation is told.
    """

    attention: tuple[str, ...] | None
    narrow: bool
    peak: float


@cache
def known_of(device: str) -> Known:
    """Return what is known of a device.

    Args:
        device: Its tag.
    """
    one = next(one for one in json.loads(_core.devices()) if one["name"] == device)
    kernels = one.get("kernels")
    kinds = None
    if kernels is not None:
        there = {rate["kind"] for rate in kernels["attention"]}
        kinds = tuple(kind for kind in ATTENTION if kind in there)
    peak = 1e12 * float(str(one["peak"]["bf16"]).split()[0])
    return Known(kinds, narrow="fp8" in one["peak"], peak=peak)


def _nearest(kind: str, known: tuple[str, ...] | None) -> str | None:
    """The fastest known kind that is not faster, or the slowest; None where none is timed."""
    if known is None:
        return None
    if kind not in ATTENTION or not known:
        return "unfused"
    not_faster = [one for one in known if ATTENTION.index(one) <= ATTENTION.index(kind)]
    return not_faster[-1] if not_faster else known[0]


def _launched(recipe: Recipe) -> str:
    """How kernels get to the device by a recipe of Megatron-Bridge."""
    if recipe.graphs == "full_iteration":
        return "graph"
    return "graphed_attention" if "attn" in recipe.graphs else "fused"


def _again(run: Run, recipe: Recipe | None) -> str | None:
    """What a recipe of Megatron-Bridge computes again."""
    if recipe is None:
        return None
    if recipe.whole:
        pieces = (run.count("pp") or 1) * (run.count("virtual_stages") or 1)
        return "full" if recipe.whole * pieces >= (run.count("layers") or 1) else "none"
    return "none"


def recipe_of(precision: str) -> str:
    """Return the recipe that a cell of `precision` names."""
    if "nvfp4" in precision:
        return "nvfp4"
    if "mxfp8" in precision or "fp8-mx" in precision.split("variant", maxsplit=1)[0]:
        return "mxfp8"
    if "float8" in precision or "fp8" in precision:
        if "row" in precision:
            return "fp8_rowwise"
        current = ("tensorwise", "current", "-cs", "float8")
        return "fp8_tensorwise" if any(word in precision for word in current) else "fp8_delayed"
    return "plain"


def recompute_of(cell: str, *, torch: bool = False) -> str | None:
    """Return what is recomputed; None where a cell says nothing.

    Args:
        cell: Of `activation_recompute`.
        torch: Whether it is torchtitan's: its `selective` keeps attention and every second product
            and repeats the rest; Megatron's repeats attention alone.
    """
    if not cell:
        return None
    if cell.startswith(("none", "no", "off")):
        return "none"
    if "2nd layer" in cell or "every" in cell:
        return "half"
    if torch and cell.startswith("select"):
        return "alternate"
    if cell.startswith("select"):
        return "selective"
    return "full"


def _attention(flags: str, *, torch: bool, old: bool, engine: bool) -> tuple[str, bool]:
    """The kind, and whether the table says so."""
    if "flashattention-3" in flags or "fa3" in flags:
        return ("flash_2" if old else "flash_3"), True
    if "flashattention-2" in flags or "flashattention2" in flags or "fa2" in flags:
        return "flash_2", True
    if "flash" in flags:
        return "flash", True
    if torch:
        return "flash_2", False
    if engine or not old:
        return "flash_3", False
    return "unfused", False


def _loss(flags: str, sharding: str, *, old: bool) -> str:
    """How the loss is computed.

    torchtitan compiled it from 2025 on (`compiled loss` in the flags); llm-foundry's is
    FlashAttention's (`loss_fn: fused_crossentropy`), Megatron-Bridge's fused
    (`cross_entropy_fusion`).
    """
    if "fsdp2" in sharding:
        return "fused" if "compiled loss" in flags else "unfused"
    return "unfused" if old and "fsdp" not in sharding else "fused"


def _gradients(precision: str, *, megatron: bool, base: str) -> str:
    if "pure" in precision or "bf16 reduce" in precision:
        return "bf16"
    if base == "fp16" and "mixed" not in precision and megatron:
        return "fp16"
    return "fp32"
