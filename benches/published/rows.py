"""Every row of `allrail reproduce` and what it publishes.

Either of a folder that `allrail reproduce --all --out DIR` has written, or of the code as it is:
then simulations that take long are answered by stand-ins, since what a row publishes does not
depend on what comes out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from allrail_reproduce.rows import Reproduction


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row publishes.

    Attributes:
        ends: The published number, or the ends of a range that it has.
        source: Where.
        computed: Whether there is a number of ours beside it.
        why: What is missing, where there is none.
    """

    ends: tuple[float, ...]
    source: str
    computed: bool
    why: str


def written(folder: Path) -> dict[str, Claim]:
    """Return the rows of a folder of all publications.

    Args:
        folder: What `allrail reproduce --all --out` has written.
    """
    tree = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))
    return {
        row["case"]: _claim(row["published_low"], row["published_high"], row)
        for row in tree["rows"]
        if row["source"] is not None
    }


def of_code(reference: Path | None) -> dict[str, Claim]:
    """Return the rows that `reproduce` would print.

    Args:
        reference: The folder with `astra-sim`, whose cases have rows; None for none.
    """
    found = {} if reference is None else of_cases(reference)
    for name, one in _publications():
        found |= _claims(name, one)
    return found


def of_cases(reference: Path) -> dict[str, Claim]:
    """Return the rows of ASTRA-sim's sample cases.

    Args:
        reference: The folder with `astra-sim`.
    """
    from allrail_reproduce import astra_sim

    with _stand_ins():
        return _claims("astra-sim", astra_sim.run(reference=reference / "astra-sim"))


def _claims(name: str, one: Reproduction) -> dict[str, Claim]:
    return {
        f"{name}: {row.case}": _claim(row.published.low, row.published.high, row.to_dict())
        for row in one.rows
        if row.published is not None
    }


def _claim(low: float | None, high: float | None, row: Mapping[str, Any]) -> Claim:
    ends = tuple(dict.fromkeys(end for end in (low, high) if end is not None))
    return Claim(ends, str(row["source"]), row["ours"] is not None, str(row["why"]))


def _publications() -> Iterator[tuple[str, Reproduction]]:
    from allrail_reproduce import (
        astra_sim,
        bytescheduler,
        hammingmesh,
        horovod,
        themis,
        themis_workloads,
    )
    from allrail_reproduce.grid import CELLS
    from allrail_reproduce.hammingmesh import workloads

    with _stand_ins():
        yield "themis", themis.run(seeds=1, links=CELLS[:1], cache=False)
        yield "themis-workloads", themis_workloads.run()
        yield "bytescheduler", bytescheduler.run()
        answer = {"step_us": 1e5, "efficiency": 0.9, "buffers": 8.0, "exchange_us": 10.0}
        answer |= {"messages": 1e3}
        asked = horovod.cases_of(full=True, small=False)
        yield "horovod", Reproduction("", horovod.rows_of(dict.fromkeys(asked, answer)))
        yield "astra-sim", astra_sim.run()
    with patch("allrail.simulation.graphs.measure", _measured):
        yield "hammingmesh", hammingmesh.run(simulate=_core, cache=False)
    yield "hammingmesh-workloads", workloads.run(simulate=_step, cache=False)


def _stand_ins() -> ExitStack:
    """One small result for every simulation, made before anything is replaced."""
    collective, training = _collective(), _training()

    def simulated(scenario: Any, **_: object) -> Any:
        has = scenario.get("workload") if isinstance(scenario, dict) else scenario.workload
        return collective if has is None else training

    places: dict[str, Any] = {
        "allrail.simulation.api.simulate": simulated,
        "allrail.simulation.api.simulate_many": lambda trees, **_: [collective for _ in trees],
    }
    many = "simulate_many"
    for module in ("themis_workloads", "bytescheduler.work"):
        places[f"allrail_reproduce.{module}.{many}"] = lambda trees, **_: [training for _ in trees]
    places["allrail_reproduce.themis_workloads.passes.simulate"] = lambda *_, **__: training
    for name in ("nominal_plan", "plan_for"):
        places[f"allrail_reproduce.themis.{name}"] = lambda *_, **__: _Plan()
    places["allrail_reproduce.themis.run_plan"] = lambda *_, **__: collective
    stack = ExitStack()
    for name, instead in places.items():
        stack.enter_context(patch(name, instead))
    return stack


class _Plan(str):
    """A plan that nobody reads."""

    __slots__ = ()
    text = ""


FABRIC = {
    "name": "two",
    "dimensions": [
        {"kind": "switch", "size": 2, "links": 1, "bandwidth": "1 GB/s", "latency": "1 us"}
    ]
    * 3,
}


@cache
def _collective() -> Any:
    from allrail import simulate

    collective = {"kind": "all_reduce", "size": "1 MB"}
    return simulate(
        {"schema_version": 1, "fabric": FABRIC, "collective": collective}, timeline=True
    )


@cache
def _training() -> Any:
    from allrail.simulation.api import simulate

    model = {"layers": [{"name": "dense", "dense": {"inputs": 4, "outputs": 4}}]}
    work = {"model": model, "batch_per_replica": 1, "compute": {"device": "a100"}}
    tree = {"schema_version": 1, "fabric": FABRIC, "workload": work}
    return simulate(tree, timeline=True)


def _measured(fabric: str) -> dict[str, Any]:
    """What is counted; distances take seconds on the large fabrics."""
    from allrail.simulation.graphs import count

    return {**count(fabric), "diameter_bfs": 1}


def _core(scenario: Mapping[str, Any], progress: Any) -> dict[str, Any]:
    """Traffic and placements of HammingMesh."""
    progress(1, 1)
    if "place" in scenario:
        return _placed(scenario)
    traffic = scenario["traffic"]
    packets = scenario["network_model"] == "packets"
    quantiles = dict.fromkeys(("min", "p1", "median", "p99", "max", "mean"), 1.0)
    return {
        "pattern": traffic["pattern"],
        "network_model": scenario["network_model"],
        "npus": 1024,
        "size_bytes": 1,
        "time_us": 1.0,
        "share_of_injection": 0.5,
        "share_of_optimum": 0.5,
        "injection_gbps": 1.0,
        "paths": traffic.get("paths"),
        "phases": 1023,
        "phases_simulated": 16,
        "phase_barrier": True,
        "steps": 16,
        "steps_simulated": 16,
        "npu_bandwidths_gbps": [1.0],
        "npu_bandwidth_gbps": quantiles,
        "built": {"buffer_bytes": 1 if packets else None},
        "host": {"wall_ms": 1.0},
    }


def _placed(scenario: Mapping[str, Any]) -> dict[str, Any]:
    moved = {"jobs_placed": 1, "jobs_moved": 2, "bytes": 1, "time_ps": 1}
    some: Sequence[str] = ("mean", "median", "p1", "p99")
    return {
        "name": scenario["fabric"],
        "fabric": {"rows": 1, "columns": 2},
        "map": {"jobs": [{"job": 0, "rows": [0], "columns": [0, 1]}], "failed": []},
        "utilisation": dict.fromkeys(some, 0.5),
        "upper_level": {"all_to_all": {"mean": 0.5}, "rings": {"mean": 0.5}},
        "mixes": [{"utilisation": 0.5, "placed": 1, "left_out": 0, "moved": moved}],
    }


def _step(_: Mapping[str, Any], progress: Any) -> dict[str, Any]:
    """A training step of HammingMesh's workloads."""
    progress(1, 1)
    return {"step_time_us": 1e6, "compute_us": 1e5, "exposed_communication_us": 9e5}
