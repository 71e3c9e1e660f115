"""What a row measured, in one unit, and the same of a prediction.

Tokens a second and GPU where the table has them; else what follows from batch, sequence and step
time; else TFLOP/s in the row's own kind, or what follows from its utilisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allrail_reproduce.runs.table import Run

TOKENS = "tokens/s/GPU"


@dataclass(frozen=True)
class Sizes:
    """What the formulas of FLOPs need, of one model.

    Attributes:
        layers: How many.
        hidden: The width.
        vocabulary: Words.
        tokens: Of a sample.
        parameters: Of the model, as the table has them.
        model_flops: FLOPs of a token, forward and backward, by allrail's count.
        again: FLOPs of a token that are computed again.
    """

    layers: int
    hidden: int
    vocabulary: int
    tokens: int
    parameters: float
    model_flops: float
    again: float


def megatron_flops(sizes: Sizes) -> float:
    """FLOPs of a token with everything computed again: 96·l·h²·(1 + s/6h + V/16lh).

    Narayanan et al., SC'21, section 5.1.
    """
    width, layers = sizes.hidden, sizes.layers
    bracket = 1 + sizes.tokens / (6 * width) + sizes.vocabulary / (16 * layers * width)
    return 96 * layers * width**2 * bracket


KINDS: tuple[tuple[str, Callable[[Sizes], float]], ...] = (
    ("size_b", lambda sizes: 8 * sizes.parameters),
    ("96bslh2", megatron_flops),
    ("full recompute", megatron_flops),
    ("hardware", lambda sizes: sizes.model_flops + sizes.again),
    ("hfu", lambda sizes: sizes.model_flops + sizes.again),
    ("", lambda sizes: sizes.model_flops),
)
"""Words of a kind of TFLOP/s, and FLOPs of a token by it; the first that fits."""


def flops_per_token(kind: str, sizes: Sizes) -> float:
    """Return the FLOPs of a token by a kind of TFLOP/s.

    Args:
        kind: The table's cell.
        sizes: Of the model.
    """
    for words, formula in KINDS:
        if words in kind.lower():
            return formula(sizes)
    raise AssertionError(kind)


@dataclass(frozen=True)
class Measured:
    """What a row measured.

    Attributes:
        value: How much.
        unit: Of what.
        kind: Of its FLOPs, where it is TFLOP/s.
    """

    value: float
    unit: str
    kind: str = ""


def measured_of(run: Run, peak: float | None) -> Measured | None:
    """Return what a row measured; None where it measured nothing.

    Args:
        run: The line.
        peak: FLOP/s of its device, for what is given as utilisation.
    """
    tokens = run.measured("tokens_per_s_per_gpu")
    if tokens:
        return Measured(tokens, TOKENS)
    step, gpus = run.measured("step_s"), run.count("gpus")
    batch, length = run.count("global_batch"), run.count("sequence_length")
    if step and gpus and batch and length:
        return Measured(batch * length / step / gpus, TOKENS)
    kind = run.results.get("tflops_kind", "")
    tflops = run.measured("tflops_per_gpu")
    if tflops:
        return Measured(tflops, "TFLOP/s", kind)
    for column, name in (("mfu_pct", "model"), ("hfu_pct", "hfu")):
        used = run.measured(column)
        if used and peak:
            return Measured(used / 100 * peak / 1e12, "TFLOP/s", name)
    return None
