"""What is to be reached: a part of the ideal throughput, a step time, or a rate.

| text | the step is at most |
|---|---|
| `0.95x-ideal` | the ideal step / 0.95; ideal: bytes take no time, latencies remain |
| `1.2 s`, `850 ms` | so long |
| `4e6 tokens/s`, `2000 samples/s` | what a step trains over so many a second, of the whole job |
| `450 tokens/s/npu` | the same of an NPU |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from allrail.errors import InputError

_NUMBER = r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)"
_IDEAL = re.compile(_NUMBER + r"\s*x-ideal")
_TIME = re.compile(_NUMBER + r"\s*(s|ms|us)")
_RATE = re.compile(_NUMBER + r"\s*(tokens|samples)/s(/npu)?")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached.

    Attributes:
        text: As it was given.
        step_s: The longest step that reaches it.
    """

    text: str
    step_s: float

    def reached_by(self, step_s: float) -> bool:
        """Whether a step of so many seconds is short enough, but for rounding."""
        return step_s <= self.step_s * (1 + 1e-9)


def read_target(text: str, *, ideal: dict[str, Any]) -> Target:
    """Read what is wanted.

    Args:
        text: See the module.
        ideal: The result of the scenario with infinite bandwidth.

    Raises:
        InputError: It is none of these; the workload does not say how much a step is; it is less
            than what no bandwidth could reach.
    """
    ideal_s = ideal["step_time_us"] / 1e6
    step_s = _step(text.strip(), ideal, ideal_s)
    if step_s < ideal_s * (1 - 1e-9):
        raise InputError(
            f"no bandwidth reaches it: without any time for bytes a step takes {ideal_s:.4g} s",
            source="--throughput",
            value=text,
            hint="ask for `1x-ideal` or less; more takes less computing, or lower latencies",
        )
    return Target(text, step_s)


def _step(text: str, ideal: dict[str, Any], ideal_s: float) -> float:
    if found := _IDEAL.fullmatch(text):
        return ideal_s / _positive(found[1], text)
    if found := _TIME.fullmatch(text):
        return _positive(found[1], text) * _SECONDS[found[2]]
    if found := _RATE.fullmatch(text):
        known = ideal["throughput"] or {}
        npus = int(ideal["npus"])
        samples, tokens = known.get("samples_per_s"), known.get("tokens_per_s_per_npu")
        rate = samples if found[2] == "samples" else tokens and tokens * npus
        if rate is None:
            raise InputError(
                f"the workload does not say how many {found[2]} a step has",
                source="--throughput",
                value=text,
                hint="give a step time such as `1.2 s`, or `0.95x-ideal`",
            )
        wanted = _positive(found[1], text) * (npus if found[3] else 1)
        return float(rate) * ideal_s / wanted
    raise InputError(
        "it is no target",
        source="--throughput",
        value=text,
        hint="such as `0.95x-ideal`, `1.2 s`, `4e6 tokens/s`, `450 tokens/s/npu`, `2000 samples/s`",
    )


def _positive(number: str, text: str) -> float:
    value = float(number)
    if value <= 0 or value == float("inf"):
        raise InputError(
            "it is zero or endless",
            source="--throughput",
            value=text,
            hint="such as `0.95x-ideal`",
        )
    return value
