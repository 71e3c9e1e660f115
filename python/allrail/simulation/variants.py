"""Scenarios side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.results.compared import speedup
from allrail.results.result import Result
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.overrides import Sets
from allrail.simulation.kinds import Kind, default_axes, kind_of
from allrail.simulation.many import FailedRow, run_many
from allrail.simulation.one import simulate_one


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison.

    Attributes:
        label: What differs from the other rows, such as `resnet152 themis`.
        sets: The overrides that made it.
        scenario: What was simulated.
        result: What came out.
        speedup: How many times as much it does a second as the row that it is held against: bytes
            of collectives or of traffic, samples of training (steps, where a workload does not say
            its samples). Held against the first row; of training against the first that differs in
            the schedule alone, where no schedules are compared in the network alone.
    """

    label: str
    sets: dict[str, object]
    scenario: Scenario
    result: Any
    speedup: float


def simulate_variants(
    scenario: ScenarioLike | Sequence[ScenarioLike],
    *,
    each: Mapping[str, Sequence[object]] | None = None,
    sets: Sets = (),
    timeline: bool | int = False,
    cache: bool = True,
    progress: Progress | None = None,
    failed: list[FailedRow] | None = None,
) -> list[Row]:
    """Simulate variants of a scenario side by side: schedulers × networks × models.

    Args:
        scenario: A file, a mapping or a `Scenario`, or several of them of one kind.
        each: Values to go through by path, such as `{"fabric": ["today", "dgx2"]}`; several paths
            give every combination. If left out, the chunk schedulers that suit the kind, and those
            that were registered; of tensor schedulers that were, these beside `fifo` and
            `bytescheduler`. Traffic has to say. A tensor scheduler or a coordination other than the
            scenario's own comes with its own defaults.
        sets: Overrides for all of them.
        timeline: Whether the results hold what happened when; a number: if so many slices at most
            each. Traffic has none.
        cache: Whether plans that are expensive to make are kept on disk.
        progress: Told how many are done.
        failed: Takes the variants that are wrong, and the others run; if left out, the first of
            them is raised.

    Returns:
        One row a variant.

    Raises:
        InputError: Something in one of them is wrong.
    """
    if isinstance(scenario, (str, os.PathLike, Mapping, Scenario)):
        bases = [load_scenario(scenario, sets=sets)]
        names: list[str] = []
    else:
        bases = [load_scenario(one, sets=sets) for one in scenario]
        names = [_name_of(one, index) for index, one in enumerate(scenario)]
    kind = _one_kind(bases)
    axes = each or ({} if len(bases) > 1 else default_axes(kind))
    rows: list[tuple[dict[str, object], Scenario]] = []
    for index, base in enumerate(bases):
        named: dict[str, object] = {"scenario": names[index]} if len(bases) > 1 else {}
        for values in product(*axes.values()):
            variant = dict(zip(axes, values, strict=True))
            try:
                rows.append(({**named, **variant}, _variant(base, variant)))
            except InputError as error:
                if failed is None:
                    raise
                failed.append(FailedRow(_label(kind, variant), {**named, **variant}, error))
    results = _simulated(
        [loaded for _, loaded in rows],
        one_by_one=kind == "collective" or bool(timeline),
        timeline=timeline,
        cache=cache,
        progress=progress,
        keep_errors=failed is not None,
    )
    first: dict[tuple[object, ...], Result] = {}
    compared = []
    for (variant, loaded), result in zip(rows, results, strict=True):
        label = _label(kind, variant)
        if isinstance(result, InputError):
            if failed is not None:
                failed.append(FailedRow(label, variant, result))
            continue
        rival = first.setdefault(_rival(variant) if kind == "workload" else (), result)
        compared.append(Row(label, variant, loaded, result, speedup(result, rival)))
    return compared


def _one_kind(bases: Sequence[Scenario]) -> Kind:
    kinds = [kind_of(base) for base in bases]
    if len(set(kinds)) > 1:
        raise InputError(
            "the scenarios have jobs of several kinds: " + ", ".join(sorted(set(kinds))),
            hint="compare scenarios of one kind",
            field="scenario",
        )
    if not kinds:
        raise InputError("there is nothing to compare", hint="name a scenario", field="scenario")
    return kinds[0]


def _simulated(
    scenarios: Sequence[Scenario],
    *,
    one_by_one: bool,
    timeline: bool | int,
    cache: bool,
    progress: Progress | None,
    keep_errors: bool,
) -> list[Result | InputError]:
    """All at once on all cores, or one by one where plans are kept or timelines asked for."""
    if not one_by_one:
        return run_many(scenarios, threads=None, progress=progress, keep_errors=keep_errors)
    results: list[Result | InputError] = []
    for done, one in enumerate(scenarios):
        if progress is not None:
            progress(done, len(scenarios))
        try:
            results.append(simulate_one(one, timeline=timeline, cache=cache))
        except InputError as error:
            if not keep_errors:
                raise
            results.append(error)
    if progress is not None:
        progress(len(scenarios), len(scenarios))
    return results


def _label(kind: Kind, variant: Mapping[str, object]) -> str:
    shown = show_value if kind == "workload" else str
    return " ".join(shown(value) for value in variant.values())


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
    networks = {path for path in variant if path.startswith(("fabric", "network_model", "packets"))}
    free = schedules or networks or set(variant)
    return tuple(show_value(value) for path, value in variant.items() if path not in free)
