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

from allrail.base.errors import InputError
from allrail.base.units import show_number

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
        unit: In which it was given: `s`, `ms` or `us` of a step, `x-ideal`, `tokens/s`,
            `samples/s`, or one of these `/npu`.
        factor: What a step has in that unit: units a second; for rates what a step trains over.
    """

    text: str
    step_s: float
    unit: str = "s"
    factor: float = 1.0

    @property
    def is_time(self) -> bool:
        """Whether a step time was given, not a rate."""
        return self.unit in _SECONDS

    def amount(self, step_s: float) -> float:
        """Return what a step is in the unit that was given.

        Args:
            step_s: The step, seconds.
        """
        return step_s * self.factor if self.is_time else self.factor / step_s

    def words(self, step_s: float) -> str:
        """Return the same with its unit.

        Args:
            step_s: The step, seconds.
        """
        space = "" if self.unit == "x-ideal" else " "
        return f"{show_number(self.amount(step_s))}{space}{self.unit}"

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
    found = _read(text.strip(), ideal, ideal_s)
    if found.step_s < ideal_s * (1 - 1e-9):
        raise InputError(
            f"no bandwidth reaches it: without any time for bytes it is {found.words(ideal_s)}",
            source="--throughput",
            value=text,
            hint="ask for `1x-ideal` or less; more takes less computing, or lower latencies",
        )
    return found


def _read(text: str, ideal: dict[str, Any], ideal_s: float) -> Target:
    if found := _IDEAL.fullmatch(text):
        return Target(text, ideal_s / _positive(found[1], text), "x-ideal", ideal_s)
    if found := _TIME.fullmatch(text):
        seconds = _SECONDS[found[2]]
        return Target(text, _positive(found[1], text) * seconds, found[2], 1 / seconds)
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
        work = float(rate) * ideal_s / (npus if found[3] else 1)
        unit = f"{found[2]}/s{found[3] or ''}"
        return Target(text, work / _positive(found[1], text), unit, work)
    raise InputError(
        "it is no target",
        source="--throughput",
        value=text,
        hint=_meant(text)
        or "such as `0.95x-ideal`, `1.2 s`, `4e6 tokens/s`, `450 tokens/s/npu`, `2000 samples/s`",
    )


def _meant(text: str) -> str:
    """A part of the ideal throughput, as people write it: 95%, 0.95, 0.95x."""
    found = re.fullmatch(_NUMBER + r"\s*(%|x)?", text)
    if found is None:
        return ""
    part = float(found[1]) / (100 if found[2] == "%" else 1)
    return f"did you mean `{show_number(part)}x-ideal`?" if 0 < part <= 1 else ""


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
