"""What would shorten a training step most, of what can be bought or switched on.

A `Lever` is one change and how much of the step it saves. Where an assumption was simulated
(`dim2_x2`, `no_straggler`) its gain is that result; elsewhere it is an upper limit, derived from
how the step's time is spent, and the words say *at most*:

- a dimension of twice the bandwidth saves half of the critical path's time on it;
- twice the microbatches, or two pieces of the model a stage, halve a pipeline's bubble, which is
  (p − 1)/(v·m) of the computing (Narayanan et al., SC'21, §2.2);
- without recomputation computing takes MFU/HFU of its time;
- a switch that overlaps communication saves no more than what is exposed of it;
- a better schedule saves no more than the distance to the lower bound, nor than what is exposed.

Infinite bandwidth can be neither bought nor switched on: it is the limit of what a network can
gain and is told as that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail.base.units import show_bandwidth, show_percent, show_size
from allrail.results.training_result import TrainingResult

LEAST = 1e-3
"""A gain of less is not told."""
MOST = 3
"""Levers in a summary."""
LIMIT = "infinite_bandwidth"


@dataclass(frozen=True, slots=True)
class Lever:
    """One change.

    Attributes:
        text: What to buy or to switch on.
        gain: How much shorter the step is, as a share of it.
        simulated: Whether that was simulated; otherwise it is an upper limit.
    """

    text: str
    gain: float
    simulated: bool

    @property
    def words(self) -> str:
        """It as part of a sentence."""
        most = "" if self.simulated else "at most "
        return f"{self.text} ({most}{show_percent(self.gain)} of the step)"


def levers(
    result: TrainingResult,
    *,
    what_ifs: Sequence[Mapping[str, Any]],
    scenario: Mapping[str, Any],
) -> list[Lever]:
    """Return what would shorten a step, the most first.

    Args:
        result: Of the step as it is.
        what_ifs: Assumptions about it, as entries of `what_ifs` in `result.json`.
        scenario: What was simulated, as plain values.
    """
    simulated = {str(one["name"]): 1 - 1 / float(one["speedup"]) for one in what_ifs}
    found = [
        *_dimensions(result, simulated),
        *_pipeline(result, scenario),
        *_recomputation(result),
        *_overlap(result, scenario),
        *_schedule(result, simulated),
    ]
    if "no_straggler" in simulated:
        text = "no rank that is slower than the others"
        found.append(Lever(text, simulated["no_straggler"], simulated=True))
    return sorted((one for one in found if one.gain >= LEAST), key=lambda one: -one.gain)


def advice(
    result: TrainingResult,
    *,
    what_ifs: Sequence[Mapping[str, Any]],
    scenario: Mapping[str, Any],
) -> list[str]:
    """Return the sentences of a summary: what does not fit, what would help, and the limit.

    Args:
        result: Of the step as it is.
        what_ifs: Assumptions about it, as entries of `what_ifs` in `result.json`.
        scenario: What was simulated, as plain values.
    """
    said = _not_fitting(result)
    found = levers(result, what_ifs=what_ifs, scenario=scenario)[:MOST]
    if found:
        first, *others = (one.words for one in found)
        then = f"; then {' and '.join(others)}" if others else ""
        said.append(f"What would help most: {first}{then}.")
    else:
        computing = show_percent(result.compute_us / result.step_time_us)
        said.append(
            f"What would help: no change of network, layout or schedule that is looked at gains "
            f"{show_percent(LEAST)}; {computing} of the step is computing."
        )
    for one in what_ifs:
        if one["name"] == LIMIT:
            gain = show_percent(1 - 1 / float(one["speedup"]))
            said.append(f"Infinite bandwidth, the limit of any network, would save {gain}.")
    return said


def _not_fitting(result: TrainingResult) -> list[str]:
    memory = result.memory
    if memory is None or memory.fits is not False or memory.capacity is None:
        return []
    largest = max(memory.items(), key=lambda part: part[1])[0]
    switches = {
        "activations": "more recomputation, smaller microbatches or more tensor parallelism",
        "optimizer": "`zero: 1` or more, or more pipeline stages",
        "gradients": "`zero: 2` or more, or more pipeline stages",
        "parameters": "`zero: 3`, or more tensor or pipeline parallelism",
    }
    help_it = f"; {switches[largest]} would help" if largest in switches else ""
    needs, has = show_size(memory.needed), show_size(memory.capacity)
    return [f"It does not fit: an NPU needs {needs} and has {has}. Most is {largest}{help_it}."]


def _dimensions(result: TrainingResult, simulated: Mapping[str, float]) -> list[Lever]:
    found = []
    for one in result.dimensions:
        name = f"{one.name}_x2"
        on_path = sum(
            part.share
            for part in result.critical_path
            if part.what == "communication" and part.dimension == one.name
        )
        gain = simulated.get(name, on_path / 2)
        text = f"twice the bandwidth of {one.name}, now {show_bandwidth(one.bandwidth_gbps)}"
        found.append(Lever(text, gain, simulated=name in simulated))
    return found


def _layout(scenario: Mapping[str, Any]) -> Mapping[str, Any]:
    work = scenario.get("workload")
    layout = work.get("parallelism") if isinstance(work, Mapping) else None
    return layout if isinstance(layout, Mapping) else {}


def _pipeline(result: TrainingResult, scenario: Mapping[str, Any]) -> list[Lever]:
    layout = _layout(scenario)
    if int(layout.get("pp") or 1) < 2 or result.waiting_us <= 0:
        return []
    ways = "twice the microbatches"
    if layout.get("schedule", "1f1b") in ("1f1b", "gpipe"):
        ways += ", or `schedule: interleaved`,"
    text = f"{ways} against the pipeline's bubble"
    return [Lever(text, result.waiting_us / result.step_time_us / 2, simulated=False)]


def _recomputation(result: TrainingResult) -> list[Lever]:
    found = result.throughput
    if found is None or not found.mfu or not found.hfu:
        return []
    again = 1 - found.mfu / found.hfu
    text = "no recomputation, if memory holds the activations"
    return [Lever(text, again * result.compute_us / result.step_time_us, simulated=False)]


def _overlap(result: TrainingResult, scenario: Mapping[str, Any]) -> list[Lever]:
    layout = _layout(scenario)
    step = result.step_time_us
    found = []
    if layout.get("overlap_gradients") is False:
        text = "`overlap_gradients: true`"
        found.append(Lever(text, result.exposed_us.data / step, simulated=False))
    if layout.get("sp") and not layout.get("async_tp"):
        text = "`async_tp: true`"
        found.append(Lever(text, result.exposed_us.tensor / step, simulated=False))
    return found


def _schedule(result: TrainingResult, simulated: Mapping[str, float]) -> list[Lever]:
    if "ideal_schedule" in simulated:
        text = "an ideal schedule of the same communication"
        return [Lever(text, simulated["ideal_schedule"], simulated=True)]
    if result.bound_step_time_us <= 0:
        return []
    above = 1 - result.bound_step_time_us / result.step_time_us
    gain = min(above, result.exposed_communication_us / result.step_time_us)
    text = "a better schedule of the same communication, which `allrail tune` looks for"
    return [Lever(text, gain, simulated=False)]
