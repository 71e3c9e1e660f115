"""Jobs on the boards of a fabric: which boards each gets, and how much of the fabric they use.

from allrail.placement import place, queue

place("hx2mesh-1k", mix="alibaba-2020", count=100, sort=True)["utilisation"]["mean"]
queue("hx2mesh-1k", mix="alibaba-2020", jobs=1000, load=0.9, duration="1000 s")["waiting_s"]
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.errors import InputError, did_you_mean, show
from allrail.graphs import GraphLike, graph_fabric
from allrail.scenario.places import Places, parse_path, show_path

MIXES = Path(__file__).parent / "presets" / "mixes"
UNITS = ("boards", "npus")
_FOR_PEOPLE = ("schema_version", "name", "about", "licence", "sources", "unit")

HEADERS = ("size", "sizes", "gpus", "npus", "boards", "arrive")
"""What the first cell of a CSV file's header may be."""

MixLike = str | os.PathLike[str] | Sequence[tuple[int, int]]
"""A preset's name, a CSV or YAML file, or (size, number of jobs) pairs."""

Progress = Callable[[int, int], None]


class Mix:
    """Sizes of jobs and how many there are of each.

    Attributes:
        rows: (size, number of jobs) pairs.
        unit: What a size counts, `boards` or `npus`; None if the file does not say.
        source: The file or preset; empty for pairs.
        lines: The line of each row in its file.
    """

    def __init__(
        self,
        rows: list[tuple[int, int]],
        *,
        unit: str | None = None,
        source: str = "",
        lines: list[int | None] | None = None,
    ) -> None:
        self.rows = rows
        self.unit = unit
        self.source = source
        self.lines = lines or [None] * len(rows)


@cache
def mix_names() -> tuple[str, ...]:
    """Return the names of the packaged mixes."""
    return tuple(sorted(path.stem for path in MIXES.glob("*.yaml")))


def read_mix(mix: MixLike) -> Mix:
    """Read sizes of jobs and how many there are of each.

    Args:
        mix: A preset's name, a CSV file of `size,jobs` lines (perhaps below a header), a YAML
            file with `jobs: {size: jobs}` and perhaps `unit: npus`, or pairs.

    Raises:
        InputError: There is no such mix, or a size or a number is none.
    """
    if not isinstance(mix, str | os.PathLike):
        return Mix([(_count(size, {}), _count(jobs, {})) for size, jobs in mix])
    name = os.fspath(mix)
    if name in mix_names():
        return _yaml_mix(MIXES / f"{name}.yaml")
    path = Path(name)
    if path.suffix == ".csv":
        return _csv_mix(path)
    if path.suffix in (".yaml", ".yml", ".json"):
        return _yaml_mix(path)
    raise InputError(
        "there is no such mix",
        hint=did_you_mean(name, mix_names(), others="name a .csv or .yaml file, or a preset"),
        field="mix",
        value=name,
    )


def place(
    fabric: GraphLike,
    *,
    mix: MixLike = "alibaba-2020",
    count: int | None = None,
    unit: str | None = None,
    sort: bool = False,
    transpose: bool = False,
    aspect: int | None = None,
    locality: bool = False,
    failed: int = 0,
    leaf_boards: int | None = None,
    memory: str | None = None,
    run: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Draw mixes of jobs that fill a fabric, place each, and say how much of it they use.

    Args:
        fabric: A HammingMesh, a torus or a fat tree: a preset's name, a file, or a `GraphFabric`.
        mix: Sizes of jobs: a preset's name, a file, or pairs.
        count: How many mixes; if None 1000, or 1 with `run`.
        unit: What a size counts, `boards` or `npus`; what the mix says, else boards, if None.
        sort: The largest job first.
        transpose: Try each shape with rows and columns exchanged, too.
        aspect: Try longer shapes, too, up to this many times as long as wide.
        locality: Prefer boards under the same leaf switches.
        failed: Boards that fail, others in each mix.
        leaf_boards: Boards under one leaf switch; the fabric's own if None.
        memory: Of a board, such as `320 GiB`; with it, jobs move to make room for others.
        run: What all jobs of the first mix run at once, `all_reduce` or `all_to_all`; on a
            HammingMesh.
        seed: Of the mixes and the failures.
        progress: Called with what is done and the total.

    Returns:
        `utilisation` (0 to 1), `left_out`, `upper_level` and others, each with `mean`, `median`,
        `p1`, `p99`, `min`, `max` over the mixes; `mixes`, one by one; `map`, the first's boards.
        With `run` also `shares`: bandwidth with all jobs running over bandwidth alone on a
        contiguous block, with `mean`, `min` and others over jobs, and `jobs`, one by one.

    Raises:
        InputError: Something given is refused.
    """
    read = read_mix(mix)
    request = {
        "mix": read.rows,
        "unit": _unit(unit, read),
        "count": _count(
            (1000 if run is None else 1) if count is None else count, {"field": "count"}
        ),
        "sort": sort,
        "transpose": transpose,
        "aspect": None if aspect is None else _count(aspect, {"field": "aspect"}),
        "locality": locality,
        "failed": _count(failed, {"field": "failed"}),
        "leaf_boards": None
        if leaf_boards is None
        else _count(leaf_boards, {"field": "leaf_boards"}),
        "memory": None if memory is None else _quantity("size", memory, {"field": "memory"}),
        "run": run,
        "seed": _count(seed, {"field": "seed"}),
    }
    told = _ask(_core.place, fabric, request, progress, read.source, read.lines)
    return {"mix": read.source or "inline", "unit": request["unit"], **told}


def queue(
    fabric: GraphLike,
    *,
    trace: str | os.PathLike[str] | None = None,
    mix: MixLike = "alibaba-2020",
    jobs: int = 1000,
    load: float = 0.9,
    duration: str = "3600 s",
    unit: str | None = None,
    backfill: bool = False,
    transpose: bool = False,
    aspect: int | None = None,
    locality: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run jobs that arrive, wait first in, first out, run and leave.

    Args:
        fabric: A HammingMesh, a torus or a fat tree: a preset's name, a file, or a `GraphFabric`.
        trace: A CSV file of `arrive,duration,size` lines, times with units (`10 s,1.5 s,16`).
            If None, jobs are drawn from `mix`, with exponential gaps and durations.
        mix: Sizes of jobs.
        jobs: How many are drawn.
        load: What they ask for, as a part of all boards.
        duration: The mean of theirs.
        unit: What a size counts, `boards` or `npus`.
        backfill: Let later jobs start if they end before the first one could start.
        transpose: Try each shape with rows and columns exchanged, too.
        aspect: Try longer shapes, too, up to this many times as long as wide.
        locality: Prefer boards under the same leaf switches.
        seed: Of the drawn jobs.
        progress: Called with what is done and the total.

    Returns:
        `utilisation` (`mean` over time), `waiting_s` (`mean`, `median`, `p99` and others),
        `makespan_s`, `timeline` (boards in use from each time on), `ran`, one by one.

    Raises:
        InputError: Something given is refused; a trace whose time goes backwards, too.
    """
    request: dict[str, Any] = {
        "backfill": backfill,
        "transpose": transpose,
        "aspect": None if aspect is None else _count(aspect, {"field": "aspect"}),
        "locality": locality,
        "seed": _count(seed, {"field": "seed"}),
    }
    if trace is not None:
        path = Path(trace)
        rows, lines = _csv(path, ("arrive", "duration", "size"))
        request["unit"] = _unit(unit, None)
        request["trace"] = [
            (
                _quantity("time", arrive, _at(path, line, "arrive")),
                _quantity("time", length, _at(path, line, "duration")),
                _size(size, _at(path, line, "size")),
            )
            for (arrive, length, size), line in zip(rows, lines, strict=True)
        ]
        source = str(path)
    else:
        if not math.isfinite(load):
            raise InputError(
                "it is not a number",
                hint="0.9 asks for nine tenths of all boards",
                field="load",
                value=str(load),
            )
        read = read_mix(mix)
        source, lines = read.source, read.lines
        request |= {
            "mix": read.rows,
            "unit": _unit(unit, read),
            "count": _count(jobs, {"field": "jobs"}),
            "load": load,
            "duration": _quantity("time", duration, {"field": "duration"}),
        }
    told = _ask(_core.place_queue, fabric, request, progress, source, lines)
    return {"source": source or "inline", "unit": request["unit"], **told}


def fold(shape: Sequence[int], *, board: Sequence[int]) -> dict[str, Any]:
    """Fold a job of three dimensions onto the boards of a HammingMesh.

    Args:
        shape: NPUs along each dimension, three of them.
        board: Rows and columns of NPUs of a board.

    Returns:
        `boards` (rows and columns), `along` (which dimensions run along each), `snake`, `farthest`
        (cables and traces between neighbours, by dimension, at most).

    Raises:
        InputError: No folding is made of whole boards.
    """
    sides = [_count(side, {"field": "shape"}) for side in shape]
    each = [_count(side, {"field": "board"}) for side in board]
    if (len(sides), len(each)) != (3, 2):
        raise InputError(
            "a job has three sides and a board two",
            hint="for example `fold([4, 4, 2], board=[2, 2])`",
            field="shape",
            value=show(list(shape)),
        )
    try:
        told: dict[str, Any] = json.loads(_core.fold_job(sides, each))
    except _core.InputError as error:
        raise InputError(**_told(error)) from None
    return told


def _ask(
    function: Callable[[str, Progress | None], str],
    fabric: GraphLike,
    request: dict[str, Any],
    progress: Progress | None,
    source: str,
    lines: Sequence[int | None],
) -> dict[str, Any]:
    graph = graph_fabric(fabric)
    request["fabric"] = json.loads(graph.model_dump_json())
    try:
        told: dict[str, Any] = json.loads(function(json.dumps(request), progress))
    except _core.InputError as error:
        wrong = _told(error)
        path = parse_path(wrong["field"]) or ()
        if path and path[0] == "fabric":
            wrong["source"] = graph.name
        elif path and path[0] in ("mix", "trace"):
            wrong["source"] = source
            if len(path) > 1 and isinstance(path[1], int):
                wrong["line"] = lines[path[1]]
                wrong["field"] = show_path(path[2:])
        raise InputError(**wrong) from None
    return {"name": graph.name, **told}


def _told(error: Exception) -> dict[str, Any]:
    told = json.loads(str(error.args[0]))
    return {
        "why": told["why"],
        "hint": told["hint"] or "",
        "field": told["field"],
        "value": told["value"],
    }


def _unit(unit: str | None, mix: Mix | None) -> str:
    chosen = unit or (mix.unit if mix else None) or UNITS[0]
    if chosen not in UNITS:
        raise InputError(
            "it is not what a size counts",
            hint=did_you_mean(chosen, UNITS),
            source=mix.source if mix and not unit else "",
            field="unit",
            value=chosen,
        )
    return chosen


def _count(value: object, where: dict[str, Any], *, low: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        why, hint = "it is not a whole number", "for example `16`"
    elif value < low:
        why, hint = f"it is below {low}", "for example `16`"
    elif value >= 2**63:
        why, hint = "it is above 2^63", "take a smaller number"
    else:
        return value
    raise InputError(why, hint=hint, **{"value": show(value), **where})


def _size(text: str, where: dict[str, Any]) -> int:
    try:
        value: object = int(text)
    except ValueError:
        value = text
    return _count(value, where)


def _quantity(kind: Any, text: object, where: dict[str, Any]) -> str:
    try:
        _core.parse_quantity(kind, str(text))
    except _core.InputError as error:
        raise InputError(**{**_told(error), **where, "value": str(text)}) from None
    return str(text)


def _at(path: Path, line: int | None, field: str) -> dict[str, Any]:
    return {"source": str(path), "line": line, "field": field}


def _csv(path: Path, names: tuple[str, ...]) -> tuple[list[list[str]], list[int | None]]:
    """The cells of a CSV file and the line of each row; a header is passed over."""
    import csv

    from allrail.scenario.text import read_bytes

    rows: list[list[str]] = []
    lines: list[int | None] = []
    reader = csv.reader(read_bytes(path).splitlines())
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped) or stripped[0].startswith("#"):
                continue
            if len(stripped) != len(names):
                raise InputError(
                    f"it has {len(stripped)} columns, not {len(names)}",
                    hint=f"write `{','.join(names)}`",
                    source=str(path),
                    line=reader.line_num,
                    value=",".join(stripped),
                )
            if not rows and stripped[0].lower() in HEADERS:
                continue
            rows.append(stripped)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(
            str(error), hint="save it as CSV", source=str(path), line=reader.line_num
        ) from None
    return rows, lines


def _csv_mix(path: Path) -> Mix:
    rows, lines = _csv(path, ("size", "jobs"))
    pairs = [
        (_size(size, _at(path, line, "size")), _size(jobs, _at(path, line, "jobs")))
        for (size, jobs), line in zip(rows, lines, strict=True)
    ]
    return Mix(pairs, source=str(path), lines=lines)


def _yaml_mix(path: Path) -> Mix:
    from allrail.scenario.text import read_file

    tree, places = read_file(path)
    source = path.stem if path.parent == MIXES else str(path)
    jobs = tree.get("jobs") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(jobs, dict):
        raise InputError(
            "it is not a mapping with `jobs`, from sizes to numbers of jobs",
            hint="for example `jobs: {1: 60, 4: 30, 16: 10}`",
            source=str(path),
        )
    for key in tree:
        if key not in ("jobs", *_FOR_PEOPLE):
            hint = did_you_mean(str(key), ("jobs", *_FOR_PEOPLE))
            raise InputError(
                "there is no such key",
                hint=hint,
                **_placed(places, (key,), path),
                value=show(tree[key]),
            )
    rows, lines = [], []
    for size, count in jobs.items():
        where = _placed(places, ("jobs", size), path)
        rows.append((_size(str(size), {**where, "value": show(size)}), _count(count, where)))
        lines.append(where["line"])
    unit = tree.get("unit")
    return Mix(rows, unit=None if unit is None else show(unit), source=source, lines=lines)


def _placed(places: Places, path: tuple[Any, ...], file: Path) -> dict[str, Any]:
    place = places.of(path)
    return {"source": place.source or str(file), "line": place.line, "field": show_path(path)}
