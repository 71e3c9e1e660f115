"""What is known of a prediction's own error: of computing, of the network, of both together.

- *Computing*: `accuracy.csv` has the ratio of measured to predicted time of training runs that
  were published (`allrail reproduce runs`). Of those on the same device, in the same precision and
  launched the same way, if there are enough, else on the same device in that precision however it
  is launched, nine of ten are between the two numbers. They are of whole steps, in which
  computing is most, and are taken for what is not communication here.
- *Network*: how much shorter and longer the step is with the fabric's `error`; unknown without.
- *Together*: the root of the sum of the squares, as if the two had nothing to do with each other.
  Without the network's, a lower limit.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allrail.scenario import Scenario

_TABLE = Path(__file__).with_name("accuracy.csv")
_FEW = 5
"""Runs: of fewer nothing is said."""
_CHOSEN = {"h100_96gb_500w": ", one of its rates chosen with them in view"}
"""Devices whose figures the runs themselves have decided, in part."""
_OUTSIDE = 0.05
"""Of the runs, on each side: nine of ten are within."""


@dataclass(frozen=True, slots=True)
class Bar:
    """How far off something may be, as parts of the predicted time.

    Attributes:
        low: Below 0 where it may be shorter.
        high: Above 0 where it may be longer.
    """

    low: float
    high: float

    @property
    def told(self) -> str:
        """Both in percent."""
        return f"{100 * self.low:+.1f} to {100 * self.high:+.1f} %"


@dataclass(frozen=True, slots=True)
class Computing:
    """What compared runs say of computing.

    Attributes:
        runs: How many were compared; 0 where none was.
        what: What is alike of them, or why there are none.
        bar: Nine of ten of them; None without any.
    """

    runs: int
    what: str
    bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a step's error.

    Attributes:
        computing: Of computing alone, from compared runs.
        network: Of the step, by the fabric's `error`; None where nobody measured it.
        together: Of the step; None where nothing is known of computing.
    """

    computing: Computing
    network: Bar | None
    together: Bar | None

    def tree(self) -> dict[str, Any]:
        """It as plain values."""
        return asdict(self)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Known:
        """Return it from plain values.

        Args:
            tree: As of `tree`.
        """
        one = tree["computing"]
        return cls(
            Computing(one["runs"], one["what"], _bar(one["bar"])),
            _bar(tree["network"]),
            _bar(tree["together"]),
        )

    @property
    def told(self) -> str:
        """The error line."""
        computing, network = self.computing, self.network
        said = "unknown, " + computing.what
        if computing.bar is not None:
            said = f"{computing.bar.told} ({computing.what})"
        net = "unknown, nobody measured it"
        if network is not None:
            net = f"{network.told} of the step, as far as the fabric's `error` is measured"
        both = "unknown"
        if self.together is not None:
            both = self.together.told + (" or more" if network is None else "")
        return f"error: computing {said}; network {net}; together {both}"


def known_of(
    scenario: Scenario, *, step: float, exposed: float, low: float | None, high: float | None
) -> Known:
    """Return what is known of the error of a step's prediction.

    Args:
        scenario: What was simulated.
        step: Its time.
        exposed: Of that, the communication that is not hidden, in the same unit.
        low: The step with the fabric's `error` at its best; None where it has none.
        high: The same at its worst.
    """
    network = None if low is None or high is None else Bar(low / step - 1, high / step - 1)
    computing = computing_of(scenario)
    together = None
    if computing.bar is not None:
        share = max(0.0, 1 - exposed / step) if step else 1.0
        net = network or Bar(0.0, 0.0)
        together = Bar(
            -math.hypot(share * min(0.0, computing.bar.low), net.low),
            math.hypot(share * max(0.0, computing.bar.high), net.high),
        )
    return Known(computing, network, together)


def line_of(scenario: Scenario) -> str | None:
    """Return the error line of predictions that were not simulated with the fabric's `error`.

    Args:
        scenario: What was simulated; None comes back without a workload.
    """
    if scenario.workload is None:
        return None
    error = getattr(scenario.fabric, "error", None)
    computing = computing_of(scenario)
    said = f"unknown, {computing.what}"
    if computing.bar is not None:
        said = f"{computing.bar.told} ({computing.what})"
    if error is None:
        return Known(computing, None, computing.bar).told
    low, high = 100 * error / (1 + error), 100 * error
    return (
        f"error: computing {said}; network -{low:.1f} to +{high:.1f} % of what it takes, as far as"
        " the fabric's `error` is measured; together: `allrail simulate`"
    )


def computing_of(scenario: Scenario) -> Computing:
    """Return what compared runs say of how a scenario computes.

    Args:
        scenario: With a workload.
    """
    if scenario.workload is None:
        return Computing(0, "it computes nothing")
    work = scenario.workload.whole
    compute = work.compute
    if compute.device is None:
        return Computing(0, "its times are given, not those of a device")
    if not isinstance(compute.device, str):
        return Computing(0, "no run on this device was compared")
    if any((compute.peak, compute.efficiency, compute.forward, compute.backward)):
        return Computing(0, "its `compute` gives figures of its own")
    return of_device(
        compute.device, bits_of(str(work.precision), compute.recipe), str(compute.launch)
    )


def of_device(device: str, precision: str, launch: str | None = None) -> Computing:
    """Return what compared runs on a device say.

    Args:
        device: Its tag, such as `h100`.
        precision: As of `bits_of`.
        launch: How kernels are launched; None for all ways.
    """
    here = [one for one in _rows() if one["device"] == device]
    same = [one for one in here if one["precision"] == precision]
    alike = [one for one in same if one["launch"] == launch]
    for some, what in (
        (alike, f"{device}, {precision}, launched `{launch}`"),
        (same, f"{device}, {precision}, launched in any way"),
    ):
        if len(some) >= _FEW:
            ratios = sorted(float(one["ratio"]) - 1 for one in some)
            names = " and ".join(sorted({one["software"] for one in some}))
            told = f"{_part(len(some))} of {len(some)} measured runs on {what}: {names}"
            told += _CHOSEN.get(device, "")
            return Computing(
                len(some), told, Bar(quantile(ratios, _OUTSIDE), quantile(ratios, 1 - _OUTSIDE))
            )
    if same:
        return Computing(0, f"{len(same)} on {device} in {precision}: too few runs to tell")
    where = f"{device} in {precision}" if here else device
    return Computing(0, f"no run on {where} was compared")


def bits_of(precision: str, recipe: str = "plain") -> str:
    """Return what a run is compared by: 16 bits are equally fast in either form.

    Args:
        precision: `fp32`, `fp16`, `bf16` or `fp8`.
        recipe: Of products with weights, as in `workload.compute.recipe`.
    """
    if recipe.startswith("fp8") or (recipe == "plain" and precision == "fp8"):
        return "fp8"
    if recipe != "plain":
        return recipe
    return "16 bits" if precision in ("fp16", "bf16") else precision


def lines(found: Iterable[Known | None]) -> list[str]:
    """Return the error lines of several predictions: one each, where they differ.

    Predictions that differ in their numbers alone share a line, with the widest bars.

    Args:
        found: Of each prediction; None where it computes nothing.
    """
    groups: dict[str, list[Known]] = {}
    for one in found:
        if one is not None:
            groups.setdefault(one.computing.what, []).append(one)
    return [_widest(some).told for some in groups.values()]


def _widest(some: Sequence[Known]) -> Known:
    return Known(
        some[0].computing,
        _around(one.network for one in some),
        _around(one.together for one in some),
    )


def _around(bars: Iterable[Bar | None]) -> Bar | None:
    known = [one for one in bars if one is not None]
    if not known:
        return None
    return Bar(min(one.low for one in known), max(one.high for one in known))


def _part(count: int) -> str:
    return "nine of ten" if count >= 10 else "nearly all"


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return a quantile, linear between the two next to it.

    Args:
        ordered: Values, the least first; at least one.
        part: 0 to 1.
    """
    at = part * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def _bar(tree: Mapping[str, float] | None) -> Bar | None:
    return None if tree is None else Bar(tree["low"], tree["high"])


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with _TABLE.open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))
