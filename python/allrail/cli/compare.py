"""`allrail compare`: variants of one scenario side by side."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.base.errors import InputError
from allrail.base.stdin import STDIN
from allrail.cli import astra_sim as astra
from allrail.cli import options

if TYPE_CHECKING:
    from allrail.measure.calibrate.nccl.beside import Nccl
    from allrail.simulation.many import FailedRow
    from allrail.simulation.variants import Row

NCCL = "nccl"
"""The policy whose row is NCCL's own time, which nothing here schedules."""

SHORT = {
    "policy": "schedule.policy",
    "order": "schedule.order",
    "fabric": "fabric",
    "chunks": "schedule.chunks",
    "size": "collective.size",
    "world": "world",
    "model": "workload.model",
    "tensor": "schedule.tensor",
    "coordination": "schedule.coordination",
}


def _axis(name: str, about: str) -> click.Option:
    return click.Option([f"--{name}"], multiple=True, metavar="A,B,...", help=about)


@click.command(
    params=[
        _axis("policy", "Policies; baseline,themis,search if left out; nccl: NCCL's own time"),
        _axis("order", "Orders; the one of each policy if left out"),
        _axis("fabric", "Fabrics: presets or files"),
        _axis("chunks", "Numbers of chunks"),
        _axis("size", "Sizes of the collective, such as 100 MB,1 GB"),
        _axis("world", "Network models"),
        _axis("model", "Models of a workload: presets or files"),
        _axis("tensor", "Tensor schedulers of a workload"),
        _axis("coordination", "Coordination policies"),
    ]
)
@click.argument("files", metavar="FILE...", nargs=-1, type=options.Input())
@click.option("--each", multiple=True, metavar="PATH=A,B,...", help="Sweep a key over values")
@options.sets
@options.plugin
@options.as_json
@options.out
@options.timeline
@options.cache
@click.option("--astra-sim", is_flag=True, help="Compare with ASTRA-sim's output in FILE")
@astra.files
@click.option("--run", metavar="NAME", help="With --astra-sim: name of the line in its result")
def command(
    *,
    files: tuple[Path, ...],
    each: tuple[str, ...],
    sets: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    timeline: bool,
    cache: bool,
    astra_sim: bool,
    run: str | None,
    **others: Any,
) -> None:
    """Simulate variants of the scenario in FILE and print one table.

    Values of one option stand beside each other; several options give every combination. Speed-ups
    are against the first row; of workloads, against the first that differs in the schedule alone.
    Several FILEs may be compared where they are workloads. The policy `nccl` is a row with the time
    of the algorithm that NCCL runs; it is there unasked where a machine has NVLink switches.

    With --astra-sim FILE is a result of ASTRA-sim (`tutorial_result.csv` of 1.0, the saved output
    of 2.x), and the case of its other files is simulated beside it.
    """
    from allrail.cli import folders, output
    from allrail.scenario import load_scenario
    from allrail.simulation.variants import compare as compare_variants

    # In the order in which they were given: so axes are varied.
    given = [name for name in others if name in SHORT]
    short: dict[str, tuple[str, ...]] = {name: others.pop(name) for name in given}
    foreign = astra.given({**others, "run": run})
    if astra_sim:
        _refuse_axes(short, each=each, sets=sets, timeline=timeline)
        foreign.pop("run", None)
        astra.compare(
            files, foreign, world=_world(short["world"]), run=run, as_json=as_json, out=out
        )
        return
    astra.refuse(foreign, verb="allrail compare")
    axes: dict[str, list[object]] = {}
    for name, texts in short.items():
        for text in texts:
            axes.setdefault(SHORT[name], []).extend(_values(text, f"--{name}"))
    for text in each:
        path, equals, values = text.partition("=")
        if not equals:
            raise InputError(
                "it has no `=`",
                hint="for example `--each schedule.chunks=4,64,512`",
                source="--each",
                value=text,
            )
        key = path.strip()
        if key in SHORT and SHORT[key] != key and key not in ("fabric", "model"):
            raise InputError(
                "there is no such key",
                hint=f"did you mean `--each {SHORT[key]}={values}`?",
                source="--each",
                value=key,
            )
        axes.setdefault(key, []).extend(_values(values, "--each"))
    try:
        file = _one_file(files)
        _all_there(files[1:], short)
        base = load_scenario(file, sets=sets)
        if base.workload is not None or len(files) > 1:
            _compare_training(files, axes, sets=sets, as_json=as_json, out=out)
            return
        if base.traffic is not None:
            _compare_traffic(file, axes, sets=sets, as_json=as_json, out=out)
            return
        asked = _take_nccl(axes)
        count = prod(len(values) for values in axes.values())
        failed: list[FailedRow] = []
        with output.Progress("comparing") as progress:
            rows = compare_variants(
                file,
                each=axes,
                sets=sets,
                timeline=options.slices(out=out, timeline=timeline, rows=count),
                cache=cache,
                progress=progress,
                failed=failed,
            )
        output.none_worked(rows, failed)
        beside = _nccl(rows, failed, asked=asked, default=not axes)
    except InputError as error:
        if not error.source and axes:
            options_by_path = {path: f"--{name}" for name, path in SHORT.items()}
            error.source = options_by_path.get(error.field, "--each")
        raise
    if out is not None:
        folders.write(
            out,
            results={row.label: row.result for row in rows},
            scenarios={row.label: row.scenario for row in rows},
        )
    if as_json:
        trees = [*map(_tree, rows), *_nccl_trees(rows, beside)]
        output.print_json({"rows": [*trees, *map(output.failed_tree, failed)]})
        output.end_with(failed)
        return
    show(rows, failed, beside)
    if out is not None:
        folders.tell(out, left_out=[row.result.timeline_left_out for row in rows])
    output.end_with(failed)


def _refuse_axes(
    short: dict[str, tuple[str, ...]],
    *,
    each: tuple[str, ...],
    sets: tuple[str, ...],
    timeline: bool,
) -> None:
    """Refuse what has variants: beside a result of ASTRA-sim stands its own case."""
    given: dict[str, object] = {f"--{name}": texts for name, texts in short.items()}
    del given["--world"]
    for name, value in {**given, "--each": each, "--set": sets, "--timeline": timeline}.items():
        if value:
            raise InputError(
                "it means nothing beside a result of ASTRA-sim, whose case its files describe",
                hint="leave it out; `allrail simulate --astra-sim` takes `--set`",
                source=name,
            )


def _world(worlds: tuple[str, ...]) -> str | None:
    if len(worlds) > 1:
        raise InputError(
            "a result of ASTRA-sim is of one backend",
            hint="name `links` for the congestion-aware one, or leave it out",
            source="--world",
            value=", ".join(worlds),
        )
    return worlds[0] if worlds else None


def _one_file(files: tuple[Path, ...]) -> Path:
    """Return the first file."""
    if not files:
        raise InputError(
            "the scenario's file is missing",
            hint="for example `allrail compare FILE --policy baseline,themis`; `-` is stdin",
            source="allrail compare",
        )
    return files[0]


def _all_there(others: tuple[Path, ...], short: dict[str, tuple[str, ...]]) -> None:
    """Refuse what is no file: the rest of a list in which there is a blank."""
    for file in others:
        if file == STDIN or file.exists():
            continue
        lists = [(f"--{name}", texts) for name, texts in short.items() if texts]
        hint = "check the path"
        if len(lists) == 1:
            option, texts = lists[0]
            hint = f"did you mean `{option} {','.join([*texts, str(file)])}`?"
        raise InputError("there is no such file", hint=hint, source=str(file))


def _compare_training(
    files: tuple[Path, ...],
    axes: dict[str, list[object]],
    *,
    sets: tuple[str, ...],
    as_json: bool,
    out: Path | None,
) -> None:
    from allrail.cli import training

    if SHORT["size"] in axes:
        raise InputError(
            "a workload has no `collective`, and its gradients have the model's sizes",
            hint="for example `--each workload.batch_per_replica=16,32`",
            source="--size",
        )
    # The slowest to change first: models, then networks, then schedules.
    order = sorted(axes, key=lambda path: (path.startswith("schedule"), path != SHORT["model"]))
    training.compare(
        files, each={path: axes[path] for path in order}, sets=sets, as_json=as_json, out=out
    )


def _compare_traffic(
    file: Path,
    axes: dict[str, list[object]],
    *,
    sets: tuple[str, ...],
    as_json: bool,
    out: Path | None,
) -> None:
    from allrail.cli import traffic

    if "collective.size" in axes:
        axes["traffic.size"] = axes.pop("collective.size")
    if not axes:
        raise InputError(
            "nothing to compare is named",
            hint="for example `--each traffic.paths=ideal,ecmp`",
            source="allrail compare",
        )
    traffic.compare(file, each=axes, sets=sets, as_json=as_json, out=out)


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
    from allrail.measure.calibrate.nccl.beside import is_nvlink, nccl_of
    from allrail.simulation.many import FailedRow

    if not asked and not default:
        return []
    groups: dict[str, Row] = {}
    for row in rows:
        groups.setdefault(repr(_apart_from_schedule(row)), row)
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


def _apart_from_schedule(row: Row) -> dict[str, object]:
    return {path: value for path, value in row.sets.items() if not path.startswith("schedule")}


def _nccl_trees(rows: list[Row], beside: list[tuple[Row, Nccl]]) -> list[dict[str, object]]:
    return [
        {
            "label": " ".join(map(str, (*_apart_from_schedule(row).values(), NCCL))),
            "sets": {**_apart_from_schedule(row), SHORT["policy"]: NCCL},
            "speedup": _speedup(rows, row, one),
            "nccl": asdict(one),
        }
        for row, one in beside
    ]


def _speedup(rows: list[Row], row: Row, one: Nccl) -> float:
    """Against the first row, by what each does a second."""
    first = rows[0].result
    return float(first.time_us / one.time_us * (row.result.work / first.work))


def show(
    rows: list[Row], failed: list[FailedRow], beside: list[tuple[Row, Nccl]] | None = None
) -> None:
    """Print one line a variant.

    Args:
        rows: The variants; the first is what the others are compared with.
        failed: Those that cannot be simulated.
        beside: NCCL's own times, each with a row of the same collective.
    """
    from allrail.cli import output
    from allrail.results.network_accuracy import network_error

    names = {path: name for name, path in SHORT.items()}
    varied = list(rows[0].sets)
    header = [names.get(path, path) for path in varied]
    if "schedule.policy" not in varied:
        header.append("policy")
    if "schedule.order" not in varied:
        header.append("order")
    header += ["time_us", "speedup", "utilisation_%", "above_bound_%"]
    lines = []
    for row in rows:
        result = row.result
        line = [str(value).replace(" ", "") for value in row.sets.values()]
        if "schedule.policy" not in varied:
            line.append(result.policy)
        if "schedule.order" not in varied:
            line.append(result.order)
        above = result.time_us / result.bound_time_us - 1
        line += [
            f"{result.time_us:.3f}",
            f"{row.speedup:.3f}",
            output.percent(result.utilisation),
            "-" if result.below_physical_bound else output.percent(above),
        ]
        lines.append(line)
    for row, one in beside or ():
        sets = {
            **row.sets,
            "schedule.policy": NCCL,
            "schedule.order": one.name,
        }
        hidden = [path for path in varied if path.startswith("schedule") and path not in sets]
        line = ["-" if path in hidden else str(sets[path]).replace(" ", "") for path in varied]
        line += [
            str(sets[path]) for path in ("schedule.policy", "schedule.order") if path not in varied
        ]
        above = one.time_us / row.result.bound_time_us - 1
        line += [
            f"{one.time_us:.3f}",
            f"{_speedup(rows, row, one):.3f}",
            "-",
            output.percent(above) if above >= 0 else "-",
        ]
        lines.append(line)
    output.rows(header, lines, failed)
    within = [one.error for _, one in beside or () if one.error is not None]
    if within:
        from allrail.base.units import show_number

        output.note(
            "nccl: as the tables that the fabric is calibrated from, within"
            f" {show_number(100 * max(within), 2)} %"
        )
    if len(within) < len(beside or ()):
        output.note("nccl: by the figures of NCCL's own tuner; its order is algorithm and protocol")
    output.predicted(
        [row.result.world for row in rows],
        calibrated=all(row.result.calibrated for row in rows),
        below_bound=any(row.result.below_physical_bound for row in rows),
        simulated_as=[
            told for row in rows for told in (row.result.simulated_as, row.result.counted)
        ],
        errors=[
            (one.time_us, one.error_low_us, one.error_high_us)
            for one in (row.result for row in rows)
        ],
        network=[network_error(row.scenario) for row in rows],
    )


def _tree(row: Row) -> dict[str, object]:
    return {
        "label": row.label,
        "sets": row.sets,
        "speedup": row.speedup,
        "result": row.result.to_dict(timeline=False),
    }


def _values(text: str, source: str) -> list[object]:
    from allrail.scenario.text import read_text

    texts = [part.strip() for part in options.apart(text) if part.strip()]
    if not texts:
        raise InputError("no value is named", hint="separate several by `,`", source=source)
    return [read_text(part, source=source)[0] for part in texts]
