"""Training steps: `simulate_training`, `simulate_training_many`, `what_ifs`, `compare_training`.

result = allrail.simulate_training({
    "schema_version": 1,
    "fabric": "3D-SW_SW_SW_homo",
    "workload": {
        "model": "resnet152",
        "batch_per_replica": 32,
        "precision": "fp16",
        "parallelism": {"dp": 1024},
        "compute": {"device": "a100", "efficiency": 0.5},
    },
    "schedule": {"policy": "themis", "tensor": {"policy": "bytescheduler"}},
})
result.step_time_us, result.exposed_us.data, result.critical_path_in_words
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from allrail import _core
from allrail.arguments import KINDS, check, checked
from allrail.compared import speedup
from allrail.errors import InputError, did_you_mean
from allrail.many import FailedRow, Progress, most, of_fabric, run_many
from allrail.plugins import registered
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.explain import at_place, from_core
from allrail.scenario.model import GRAPH_WORLDS
from allrail.scenario.overrides import Sets
from allrail.training_result import TrainingResult

AS_IT_IS = "as_it_is"


def default_axes() -> dict[str, Sequence[object]]:
    """Return what is compared where nothing is named."""
    chunk, tensor = registered("chunk scheduler"), registered("tensor scheduler")
    axes: dict[str, Sequence[object]] = {}
    if chunk or not tensor:
        axes["schedule.policy"] = ("baseline", "themis", *chunk)
    if tensor:
        axes["schedule.tensor"] = ("fifo", "bytescheduler", *tensor)
    return axes


@checked
def simulate_training(
    scenario: ScenarioLike,
    *,
    sets: Sets = (),
    timeline: bool | int = False,
    progress: Progress | None = None,
) -> TrainingResult:
    """Simulate the training steps of a scenario.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        sets: Overrides, such as `{"workload.batch_per_replica": 64}`.
        timeline: Whether the result holds what every actor does when; a number: if there are so
            many slices at most.
        progress: Told how far it is, in long runs.

    Returns:
        The result; its times are µs.

    Raises:
        InputError: Something in the scenario is wrong.
    """
    loaded = of_training(load_scenario(scenario, sets=sets))
    try:
        text = _core.simulate(loaded.to_json(), None, bool(timeline), progress, most(timeline))
    except _core.InputError as error:
        raise from_core(error, places=loaded._places) from None
    tree = of_fabric(json.loads(text), loaded)
    return TrainingResult.from_dict(tree)


@checked
def simulate_training_many(
    scenarios: Iterable[ScenarioLike],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[TrainingResult]:
    """Simulate the training steps of many scenarios at once, on all cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        threads: How many cores to use; all if None.
        progress: Told how many are done.

    Returns:
        The results in the same order, without timelines; they do not depend on `threads`.

    Raises:
        InputError: Something is wrong in one of them; its `index` says in which.
    """
    trees = run_many(
        scenarios,
        check=of_training,
        threads=threads,
        progress=progress,
    )
    return [TrainingResult.from_dict(tree) for tree in trees]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The step under one assumption that is not so.

    Attributes:
        name: The assumption, such as `infinite_bandwidth`.
        result: What came out.
        speedup: The step as it is over this one.
    """

    name: str
    result: TrainingResult
    speedup: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as an entry of `what_ifs` in `--json`."""
        one = self.result
        return {
            "name": self.name,
            "step_time_us": one.step_time_us,
            "compute_us": one.compute_us,
            "exposed_communication_us": one.exposed_communication_us,
            "waiting_us": one.waiting_us,
            "speedup": self.speedup,
        }


def what_if_names(scenario: Scenario) -> list[str]:
    """Return the assumptions that can be made of a scenario.

    A topology's cables belong to no one dimension, so in its worlds none can be doubled; nor are
    the dimensions of written steps the topology's, so there is no ideal schedule of them.

    Args:
        scenario: One with `workload`.
    """
    cables = scenario.world in GRAPH_WORLDS
    written = scenario.workload is not None and "steps" in scenario.workload.model
    ideal = [] if cables and written else ["ideal_schedule"]
    count = 0 if cables else len(dimensions_of(scenario.fabric, counted=True).dimensions)
    doubled = [f"dim{number}_x2" for number in range(1, count + 1)]
    return ["infinite_bandwidth", *ideal, *doubled, "no_straggler"]


@checked
def what_ifs(
    scenario: ScenarioLike,
    names: Iterable[str] = ("all",),
    *,
    sets: Sets = (),
    result: TrainingResult | None = None,
    progress: Progress | None = None,
) -> list[WhatIf]:
    """Simulate a scenario under assumptions that are not so: what is there to gain, and where.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        names: `infinite_bandwidth`, `ideal_schedule`, `dim2_x2` (twice the bandwidth of a
            dimension), `no_straggler`, or `all` of them.
        sets: Overrides.
        result: Of the scenario as it is, if it is at hand.
        progress: Told how many are done.

    Raises:
        InputError: There is no such assumption, or something in the scenario is wrong.
    """
    loaded = of_training(load_scenario(scenario, sets=sets))
    known = what_if_names(loaded)
    chosen: dict[str, None] = {}
    asked = list(names)
    check("names", asked)
    for name in asked:
        if name != "all" and name not in known:
            raise InputError(
                "there is no such assumption",
                hint=did_you_mean(name, [*known, "all"], others="the assumptions are"),
                source="--what-if",
                value=name,
            )
        chosen |= dict.fromkeys(known if name == "all" else [name])
    base = result or simulate_training(loaded)
    variants = [load_scenario(loaded, sets={"what_if": name}) for name in chosen]
    results = simulate_training_many(variants, progress=progress)
    return [
        WhatIf(name, one, base.step_time_us / one.step_time_us)
        for name, one in zip(chosen, results, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One line of a comparison.

    Attributes:
        label: What differs from the other rows, such as `resnet152 themis`.
        sets: The overrides that made it.
        scenario: What was simulated.
        result: What came out.
        speedup: Its samples per second over those of the first row that differs in the schedule
            alone; steps per second where a workload does not say its samples. Where no schedules
            are compared: of the first that differs in the network alone; where no networks are,
            of the first row.
    """

    label: str
    sets: dict[str, object]
    scenario: Scenario
    result: TrainingResult
    speedup: float


def compare_training(
    scenario: ScenarioLike | Sequence[ScenarioLike],
    *,
    each: Mapping[str, Sequence[object]] | None = None,
    sets: Sets = (),
    progress: Progress | None = None,
    failed: list[FailedRow] | None = None,
) -> list[TrainingRow]:
    """Simulate training steps side by side: schedulers × networks × models, on all cores.

    Args:
        scenario: A file, a mapping or a `Scenario`, or several of them.
        each: Values to go through by path, such as `{"workload.model": ["resnet152", "gnmt"],
            "schedule.policy": ["baseline", "themis"]}`; several paths give every combination.
            `baseline`, `themis` and policies that were registered if left out; of tensor schedulers
            that were, these beside `fifo` and `bytescheduler`. A tensor scheduler
            or a coordination other than the scenario's own comes with its own defaults.
        sets: Overrides for all of them.
        progress: Told how many are done.
        failed: Takes the variants that are wrong, and the others run; if left out, the first of
            them is raised.

    Returns:
        One row a variant.

    Raises:
        InputError: Something in one of them is wrong.
    """
    check("scenario", scenario, kind=KINDS["bases"])
    for name, value in (("each", each), ("progress", progress), ("failed", failed)):
        if value is not None:
            check(name, value)
    check("sets", sets)
    if isinstance(scenario, (str, os.PathLike, Mapping, Scenario)):
        bases: list[ScenarioLike] = [scenario]
    else:
        bases = list(scenario)
    axes = each or ({} if len(bases) > 1 else default_axes())
    variants = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    rows: list[tuple[dict[str, object], Scenario]] = []
    for index, one in enumerate(bases):
        base = of_training(load_scenario(one, sets=sets))
        named = {"scenario": _name_of(one, index)} if len(bases) > 1 else {}
        for variant in variants:
            try:
                rows.append(({**named, **variant}, _variant(base, variant)))
            except InputError as error:
                if failed is None:
                    raise
                failed.append(FailedRow(_label(variant), {**named, **variant}, error))
    results = run_many(
        [loaded for _, loaded in rows],
        check=of_training,
        threads=None,
        progress=progress,
        keep_errors=failed is not None,
    )
    first: dict[tuple[object, ...], TrainingResult] = {}
    compared = []
    for (variant, loaded), tree in zip(rows, results, strict=True):
        if failed is not None and isinstance(tree, InputError):
            failed.append(FailedRow(_label(variant), variant, tree))
            continue
        result = TrainingResult.from_dict(tree)
        rival = first.setdefault(_rival(variant), result)
        gain = speedup(result, rival)
        compared.append(TrainingRow(_label(variant), variant, loaded, result, gain))
    return compared


def _label(variant: Mapping[str, object]) -> str:
    return " ".join(show_value(value) for value in variant.values())


def show_value(value: object) -> str:
    """Return a compared value as one word.

    Args:
        value: Of an override.
    """
    if isinstance(value, Mapping):
        policy = str(value.get("policy", ""))
        rest = ",".join(f"{key}={show_value(one)}" for key, one in value.items() if key != "policy")
        return f"{policy}({rest})" if policy and rest else policy or f"({rest})"
    if isinstance(value, (list, tuple)):
        return ",".join(map(show_value, value))
    return str(value).replace(" ", "")


def _name_of(scenario: ScenarioLike, index: int) -> str:
    if isinstance(scenario, (str, os.PathLike)):
        return os.path.splitext(os.fspath(scenario))[0].replace(" ", "_")  # noqa: PTH122
    return f"scenario_{index}"


def _variant(base: Scenario, variant: Mapping[str, object]) -> Scenario:
    own = {
        f"schedule.{name}": value
        for name in ("tensor", "coordination")
        if (value := getattr(base.schedule, name)) is not None
    }
    sets = {
        path: own[path] if path in own and own[path]["policy"] == value else value
        for path, value in variant.items()
    }
    return load_scenario(base, sets=sets)


def _rival(variant: Mapping[str, object]) -> tuple[object, ...]:
    """What a row has in common with the one that it is compared with."""
    schedules = {path for path in variant if path.startswith(("schedule", "what_if"))}
    networks = {path for path in variant if path.startswith(("fabric", "world", "packets"))}
    free = schedules or networks or set(variant)
    return tuple(show_value(value) for path, value in variant.items() if path not in free)


def of_training(scenario: Scenario) -> Scenario:
    """Return a scenario that has a workload.

    Args:
        scenario: Any.

    Raises:
        InputError: It has collectives or traffic instead.
    """
    if scenario.workload is None:
        other = "collectives" if scenario.traffic is None else "traffic"
        raise at_place(
            InputError(
                f"it has {other}, and no workload",
                hint="say what is trained under `workload`; `allrail simulate` takes what it has",
                field="workload",
            ),
            scenario._places,
        )
    return scenario
