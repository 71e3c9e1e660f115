"""Traffic on graph fabrics: `simulate_traffic`, `simulate_traffic_many`, `compare_traffic`.

    result = allrail.simulate_traffic({
        "schema_version": 1,
        "fabric": "hx2mesh-1k",
        "traffic": {"pattern": "all_to_all", "size": "1 MiB"},
    })
    result.share_of_injection, result.time_us

One plane of the fabric is simulated; sizes and bandwidths are over all planes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

from allrail import _core
from allrail.arguments import checked
from allrail.compared import speedup
from allrail.errors import InputError
from allrail.many import FailedRow, Progress, of_fabric, run_many
from allrail.result import _Record, _Whole
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.explain import from_core
from allrail.scenario.overrides import Sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution(_Record):
    """A distribution by nearest rank."""

    min: float
    p1: float
    median: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficResult(_Whole):
    """What traffic came to; the names are those of `--json`.

    Attributes:
        pattern: Who sent to whom.
        world: Which world predicted it.
        npus: NPUs that took part.
        planes: Of the fabric; one is simulated.
        size_bytes: From one NPU to another over all planes, or an NPU's buffer; None in a trace.
        seed: Of everything random.
        time_us: Until the last byte has arrived, µs.
        lower_bound_time_us: No time is below it, µs.
        share_of_injection: Bytes that an NPU sends (incast: that the destination receives) over
            what its cables carry in that time.
        share_of_optimum: Of collectives: what an NPU must send, or receive, over the same; None
            otherwise.
        bytes_per_npu: Sent by an NPU over all planes, on average.
        injection_gbps: What an NPU's cables carry over all planes, Gb/s.
        messages: In one plane.
        phases: all_to_all: how many shift phases there are.
        phases_simulated: all_to_all: how many of them were simulated.
        sample_error: all_to_all in flows, where phases were drawn: the standard error of time and
            share, as a part of them.
        phase_barrier: all_to_all: whether a phase waited for the one before.
        window: Messages of an NPU that may leave at once.
        paths: flows: over which paths.
        algorithm: Of collectives: which one.
        shape: Of collectives: rows and columns of ranks.
        steps: Of collectives but broadcast: how many steps there are.
        steps_simulated: How many of them were simulated.
        segments: broadcast: how many segments go down each tree.
        segments_simulated: broadcast: how many of them were simulated.
        npu_bandwidth_gbps: What each NPU that sends got, over all planes, Gb/s.
        message_latency_us: trace: from leaving to arriving, µs.
        packets: packets: how many, in one plane.
        packet_hops: packets: links that they crossed.
        built: What was built: NPUs, switches, links, routing, channels, buffers, packets.
        simulated_as: Where the simulated graph is not the costed one.
        notes: What was left out, sampled or scaled.
        calibrated: Whether the fabric's numbers were measured.
        host: Measured on this machine; the only part that differs between runs.
        raw: The JSON object that it was made from.
    """

    pattern: str
    world: str
    npus: int
    planes: int
    size_bytes: int | None
    seed: int
    time_us: float
    lower_bound_time_us: float
    share_of_injection: float
    share_of_optimum: float | None = None
    bytes_per_npu: float
    injection_gbps: float
    messages: int
    phases: int | None = None
    phases_simulated: int | None = None
    sample_error: float | None = None
    phase_barrier: bool | None = None
    window: int | None = None
    paths: str | None = None
    algorithm: str | None = None
    shape: tuple[int, int] | None = None
    steps: int | None = None
    steps_simulated: int | None = None
    segments: int | None = None
    segments_simulated: int | None = None
    npu_bandwidth_gbps: Distribution | None = None
    message_latency_us: Distribution | None = None
    packets: int | None = None
    packet_hops: int | None = None
    built: Mapping[str, Any]
    simulated_as: str | None = None
    notes: tuple[str, ...]
    calibrated: bool
    host: Mapping[str, float]
    raw: Mapping[str, Any]

    @property
    def work(self) -> float:
        """Its size in bytes, 1 of a trace: by it over the time, results are compared."""
        return float(self.size_bytes or 1)

    @property
    def took_us(self) -> float:
        """The time, µs, as every kind of result has it."""
        return self.time_us

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the JSON object of `--json`.

        Args:
            tree: Its keys and values.
        """
        values = {name: tree[name] for name in _NAMES if name in tree}
        for name in ("npu_bandwidth_gbps", "message_latency_us"):
            if name in values:
                values[name] = Distribution.from_dict(values[name])
        for name in ("notes", "shape"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values, raw=tree)


_NAMES = [name for name in TrafficResult.__dataclass_fields__ if name != "raw"]


@checked
def simulate_traffic(
    scenario: ScenarioLike, *, sets: Sets = (), progress: Progress | None = None
) -> TrafficResult:
    """Simulate the traffic of a scenario.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `traffic` on a graph fabric.
        sets: Overrides, such as `{"traffic.size": "64 KiB"}`.
        progress: Told how far it is, in long runs.

    Raises:
        InputError: Something in the scenario is wrong.
    """
    loaded = of_traffic(load_scenario(scenario, sets=sets))
    try:
        tree = json.loads(_core.simulate(loaded.to_json(), progress=progress))
    except _core.InputError as error:
        raise from_core(error, places=loaded._places) from None
    return TrafficResult.from_dict(of_fabric(tree, loaded))


@checked
def simulate_traffic_many(
    scenarios: Iterable[ScenarioLike],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[TrafficResult]:
    """Simulate the traffic of many scenarios at once, on all cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        threads: How many cores to use; all if None.
        progress: Told how many are done.

    Returns:
        The results in the same order; they do not depend on `threads`.

    Raises:
        InputError: Something is wrong in one of them; its `index` says in which.
    """
    trees = run_many(
        scenarios,
        check=of_traffic,
        threads=threads,
        progress=progress,
    )
    return [TrafficResult.from_dict(tree) for tree in trees]


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """One line of a comparison.

    Attributes:
        label: What differs from the other rows, such as `ecmp`.
        sets: The overrides that made it.
        scenario: What was simulated.
        result: What came out.
        speedup: Its size over its time, over those of the first row.
    """

    label: str
    sets: dict[str, object]
    scenario: Scenario
    result: TrafficResult
    speedup: float


@checked
def compare_traffic(
    scenario: ScenarioLike,
    *,
    each: Mapping[str, Sequence[object]],
    sets: Sets = (),
    progress: Progress | None = None,
    failed: list[FailedRow] | None = None,
) -> list[TrafficRow]:
    """Simulate variants of a scenario's traffic side by side, on all cores.

    Args:
        scenario: A file, a mapping or a `Scenario`.
        each: Values to go through by path, such as `{"traffic.paths": ["ideal", "ecmp"]}`; several
            paths give every combination.
        sets: Overrides for all of them.
        progress: Told how many are done.
        failed: Takes the variants that are wrong, and the others run; if left out, the first of
            them is raised.

    Returns:
        One row a variant; speed-ups are against the first.

    Raises:
        InputError: Something in one of them is wrong.
    """
    variants = [dict(zip(each, values, strict=True)) for values in product(*each.values())]
    base = of_traffic(load_scenario(scenario, sets=sets))
    loaded: list[tuple[dict[str, object], Scenario]] = []
    for variant in variants:
        try:
            loaded.append((variant, load_scenario(base, sets=variant)))
        except InputError as error:
            if failed is None:
                raise
            failed.append(FailedRow(_label(variant), variant, error))
    results = run_many(
        [one for _, one in loaded],
        check=of_traffic,
        threads=None,
        progress=progress,
        keep_errors=failed is not None,
    )
    rows: list[TrafficRow] = []
    for (variant, one), tree in zip(loaded, results, strict=True):
        if failed is not None and isinstance(tree, InputError):
            failed.append(FailedRow(_label(variant), variant, tree))
            continue
        result = TrafficResult.from_dict(tree)
        first = rows[0].result if rows else result
        rows.append(TrafficRow(_label(variant), variant, one, result, speedup(result, first)))
    return rows


def _label(variant: Mapping[str, object]) -> str:
    return " ".join(str(value) for value in variant.values())


def of_traffic(scenario: Scenario) -> Scenario:
    """Return a scenario that has traffic.

    Args:
        scenario: Any.

    Raises:
        InputError: It has collectives instead.
    """
    if scenario.traffic is None:
        other, verb = "collectives", "simulate"
        if scenario.workload is not None:
            other, verb = "a workload", "simulate_training"
        raise InputError(
            f"it has {other}, and no traffic",
            hint=f"`allrail.{verb}` takes it",
            field="traffic",
        )
    return scenario
