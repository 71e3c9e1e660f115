"""Scenarios side by side, and NCCL's own time among them: `allrail.compare`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from allrail.base.arguments import KINDS, PathLike, check, checked
from allrail.base.axes import SHORT, option
from allrail.base.errors import InputError, did_you_mean
from allrail.base.progress import Progress
from allrail.base.stdin import STDIN
from allrail.formats.astra_options import given_of, refuse
from allrail.measure.beside_astra_sim import beside_astra_sim
from allrail.measure.calibrate.nccl.beside import Nccl, is_nvlink, nccl_of
from allrail.measure.comparison import NCCL, Comparison, apart_from_schedule
from allrail.results.answer import MAX_SLICES
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.overrides import Sets
from allrail.simulation.kinds import kind_of
from allrail.simulation.many import FailedRow
from allrail.simulation.variants import Row, simulate_variants


class Axes(TypedDict, total=False):
    """Values to go through, in the order in which they are given.

    Attributes:
        policy: Of `schedule.policy`; `nccl` is NCCL's own time.
        order: Of `schedule.order`.
        fabric: Presets or files.
        chunks: Of `schedule.chunks`.
        size: Of the collective, such as `100 MB`.
        network_model: Network models.
        model: Models of a workload: presets or files.
        tensor: Tensor schedulers of a workload.
        coordination: Coordination policies.
    """

    policy: Sequence[object]
    order: Sequence[object]
    fabric: Sequence[object]
    chunks: Sequence[object]
    size: Sequence[object]
    network_model: Sequence[object]
    model: Sequence[object]
    tensor: Sequence[object]
    coordination: Sequence[object]


Bases = ScenarioLike | Sequence[ScenarioLike]
"""One scenario, or several."""
Each = Mapping[str, Sequence[object]] | tuple[()]
"""Values by path."""


@checked
def compare(
    scenario: Bases = (),
    *,
    each: Each = (),
    sets: Sets = (),
    timeline: bool | int = False,
    cache: bool = True,
    astra_sim: bool = False,
    network: PathLike | None = None,
    system: PathLike | None = None,
    workload: PathLike | None = None,
    comm_group: PathLike | None = None,
    remote_memory: PathLike | None = None,
    comm_scale: float | None = None,
    compute_scale: float | None = None,
    num_passes: int | None = None,
    run: str | None = None,
    out: PathLike | None = None,
    failed: list[FailedRow] | None = None,
    progress: Progress | None = None,
    **axes: Unpack[Axes],
) -> Comparison:
    """Simulate variants of a scenario side by side: schedulers, networks, sizes, models.

    Values of one key stand beside each other; several keys give every combination, in the order in
    which they are given.

    Args:
        scenario: A file, a mapping or a `Scenario`, or several of them of one kind; of `astra_sim`
            the file with ASTRA-sim's own result.
        policy: Values of `schedule.policy`, a list; `nccl` is NCCL's own time.
        order: Values of `schedule.order`.
        fabric: Fabrics: presets or files.
        chunks: Values of `schedule.chunks`.
        size: Sizes of the collective, such as `100 MB`.
        network_model: Network models.
        model: Models of a workload: presets or files.
        tensor: Tensor schedulers of a workload.
        coordination: Coordination policies.
        each: Values of any keys by path, such as `{"fabric": ["today", "dgx2"]}`. If nothing is
            named, the chunk schedulers that suit the kind, and those that were registered; of
            tensor schedulers that were, these beside `fifo` and `bytescheduler`. Traffic has to
            name something.
        sets: Overrides for all of them.
        timeline: Whether the results hold what happened when; a number: if so many slices at most
            each. Traffic has none.
        cache: Whether plans that are expensive to make are kept on disk.
        astra_sim: Whether a result of ASTRA-sim is compared with the simulation of its case.
        network: ASTRA-sim's network (.json, .yml).
        system: ASTRA-sim's system (.txt, .json).
        workload: ASTRA-sim's workload (.txt), or its trace: the path without `.<rank>.et`.
        comm_group: Process groups of ASTRA-sim's trace.
        remote_memory: ASTRA-sim's remote memory, which is not modelled.
        comm_scale: Multiplies ASTRA-sim's sizes.
        compute_scale: Multiplies ASTRA-sim's compute times.
        num_passes: How often ASTRA-sim's workload is repeated.
        run: Name of the line in ASTRA-sim's result.
        out: Folder for results, tables, pictures and a report.
        failed: Takes the variants that are wrong, and the others run; the first of them is raised
            if None.
        progress: Called with the number of variants that are done, and of all.

    Returns:
        One row a variant, times in µs. `speedup` is against the first row; of workloads, against
        the first that differs in the schedule alone.

    Raises:
        InputError: Something in one of them is wrong.

    Example:
        `allrail.compare("scenario.yaml", policy=["baseline", "themis"]).to_polars()`
    """
    short = _named(axes)
    foreign = given_of(
        network=network,
        system=system,
        workload=workload,
        comm_group=comm_group,
        remote_memory=remote_memory,
        comm_scale=comm_scale,
        compute_scale=compute_scale,
        num_passes=num_passes,
    )
    bases = [scenario] if _is_one(scenario) else list(cast("Sequence[ScenarioLike]", scenario))
    if astra_sim:
        _refuse_axes(short, each=each, sets=sets, timeline=timeline)
        return cast(
            "Comparison",
            beside_astra_sim(
                bases,
                foreign,
                network_model=_network_model(short.get("network_model", [])),
                run=run,
                out=None if out is None else Path(out),
                progress=progress,
            ),
        )
    if run is not None:
        foreign["run"] = run
    refuse(foreign, verb="allrail compare")
    varied: dict[str, list[object]] = {SHORT[name]: values for name, values in short.items()}
    for path, values in dict(each).items():
        varied.setdefault(path, []).extend(values)
    _check_files(bases, short)
    found = _compared(
        bases,
        varied,
        sets=sets,
        timeline=timeline,
        cache=cache,
        out=out is not None,
        failed=failed,
        progress=progress,
    )
    if out is not None:
        found.write(out)
    return found


def _named(axes: Mapping[str, Any]) -> dict[str, list[object]]:
    """The values of keys that have an argument of their own."""
    for name, values in axes.items():
        if name not in SHORT:
            raise InputError(
                "`compare` has no such argument",
                field=name,
                hint=did_you_mean(name, SHORT, others="what can be varied is"),
            )
        if values not in ((), None):
            check(name, values, kind=KINDS["values"])
    return {name: [*values] for name, values in axes.items() if values}


def _is_one(scenario: object) -> bool:
    return isinstance(scenario, (str, os.PathLike, Mapping, Scenario))


def _compared(
    bases: list[Any],
    axes: dict[str, list[object]],
    *,
    sets: Sets,
    timeline: bool | int,
    cache: bool,
    out: bool,
    failed: list[FailedRow] | None,
    progress: Progress | None,
) -> Comparison:
    first = load_scenario(bases[0], sets=sets)
    job = kind_of(first)
    asked = default = False
    if job == "workload" or len(bases) > 1:
        axes = _of_training(axes)
    elif job == "traffic":
        axes = _of_traffic(axes)
    else:
        default = not axes
        asked = _take_nccl(axes)
    if out and not timeline and job == "collective":
        timeline = MAX_SLICES // max(1, prod(len(values) for values in axes.values()))
    rows = simulate_variants(
        bases[0] if len(bases) == 1 else bases,
        each=axes or None,
        sets=sets,
        timeline=timeline,
        cache=cache,
        progress=progress,
        failed=failed,
    )
    if failed and not rows:
        raise failed[0].error
    wrong = failed if failed is not None else []
    beside = _nccl(rows, wrong, asked=asked, default=default)
    return Comparison(job, tuple(rows), wrong, tuple(beside))


def _of_training(axes: dict[str, list[object]]) -> dict[str, list[object]]:
    if SHORT["size"] in axes:
        raise InputError(
            "a workload has no `collective`, and its gradients have the model's sizes",
            hint="for example `--each workload.batch_per_replica=16,32`",
            source="--size",
        )
    # The slowest to change first: models, then networks, then schedules.
    order = sorted(axes, key=lambda path: (path.startswith("schedule"), path != SHORT["model"]))
    return {path: axes[path] for path in order}


def _of_traffic(axes: dict[str, list[object]]) -> dict[str, list[object]]:
    if SHORT["size"] in axes:
        axes["traffic.size"] = axes.pop(SHORT["size"])
    if not axes:
        raise InputError(
            "nothing to compare is named",
            hint="for example `--each traffic.paths=ideal,ecmp`",
            source="allrail compare",
        )
    return axes


def _take_nccl(axes: dict[str, list[object]]) -> bool:
    """Take NCCL out of the policies, and say whether it was there."""
    named = axes.get(SHORT["policy"], [])
    if NCCL not in named:
        return False
    left = [one for one in named if one != NCCL]
    # Alone it stands beside what a scenario has if nothing is said.
    axes[SHORT["policy"]] = left or ["baseline"]
    return True


def _nccl(
    rows: list[Row], failed: list[FailedRow], *, asked: bool, default: bool
) -> list[tuple[Row, Nccl]]:
    """NCCL's time for each combination of the other axes, beside the first row that has it."""
    if not asked and not default:
        return []
    groups: dict[str, Row] = {}
    for row in rows:
        groups.setdefault(repr(apart_from_schedule(row)), row)
    found = []
    for row in groups.values():
        if not asked and not is_nvlink(row.scenario):
            continue
        try:
            found.append((row, nccl_of(row.scenario)))
        except InputError as error:
            if asked:
                sets = {**row.sets, SHORT["policy"]: NCCL}
                failed.append(FailedRow(f"{row.label} {NCCL}", sets, error))
    return found


def _refuse_axes(
    short: Mapping[str, list[object]], *, each: Any, sets: Sets, timeline: bool | int
) -> None:
    """Refuse what has variants: beside a result of ASTRA-sim stands its own case."""
    given: dict[str, object] = {option(name): texts for name, texts in short.items()}
    given.pop("--network-model", None)
    for name, value in {**given, "--each": each, "--set": sets, "--timeline": timeline}.items():
        if value:
            raise InputError(
                "it means nothing beside a result of ASTRA-sim, whose case its files describe",
                hint="leave it out; `allrail simulate --astra-sim` takes `--set`",
                source=name,
            )


def _network_model(network_models: list[object]) -> str | None:
    if len(network_models) > 1:
        raise InputError(
            "a result of ASTRA-sim is of one backend",
            hint="name `links` for the congestion-aware one, or leave it out",
            source="--network-model",
            value=", ".join(map(str, network_models)),
        )
    return str(network_models[0]) if network_models else None


def _check_files(bases: list[Any], short: Mapping[str, list[object]]) -> None:
    """Refuse what is no file: the rest of a list in which there is a blank."""
    if not bases:
        raise InputError(
            "the scenario's file is missing",
            hint="for example `allrail compare FILE --policy baseline,themis`; `-` is stdin",
            source="allrail compare",
        )
    for one in bases[1:]:
        if not isinstance(one, (str, os.PathLike)):
            continue
        file = Path(one)
        if file == STDIN or file.exists():
            continue
        lists = [(option(name), texts) for name, texts in short.items() if texts]
        hint = "check the path"
        if len(lists) == 1:
            name, texts = lists[0]
            hint = f"did you mean `{name} {','.join([*map(str, texts), str(file)])}`?"
        raise InputError("there is no such file", hint=hint, source=str(file))
