"""Jobs on the boards of a fabric: which boards each gets, and how much of the fabric they use.

from allrail.simulation.placement import place, queue

place("hx2mesh-1k", mix="alibaba-2020", count=100, sort=True)["utilisation"]["mean"]
queue("hx2mesh-1k", mix="alibaba-2020", jobs=1000, load=0.9, duration="1000 s")["waiting_s"]
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.base.errors import InputError, did_you_mean, show
from allrail.scenario.mixes import Mix, MixLike, at, job_size, mix_names, read_csv, read_mix, whole
from allrail.scenario.places import parse_path, show_path
from allrail.simulation.graphs import GraphLike, graph_fabric

__all__ = ["fold", "mix_names", "place", "queue", "read_mix"]

UNITS = ("boards", "npus")

Progress = Callable[[float, int], None]


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
        mix: Sizes of jobs: a preset's name, a file, or pairs; a size may be a shape, `2x4`.
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
        "count": whole(
            (1000 if run is None else 1) if count is None else count, {"field": "count"}
        ),
        "sort": sort,
        "transpose": transpose,
        "aspect": None if aspect is None else whole(aspect, {"field": "aspect"}),
        "locality": locality,
        "failed": whole(failed, {"field": "failed"}),
        "leaf_boards": None
        if leaf_boards is None
        else whole(leaf_boards, {"field": "leaf_boards"}),
        "memory": None if memory is None else _quantity("size", memory, {"field": "memory"}),
        "run": run,
        "seed": whole(seed, {"field": "seed"}),
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
        trace: A CSV file of `arrive,duration,size` lines, times with units (`10 s,1.5 s,16` or
            `10 s,1.5 s,2x4`).
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
        "aspect": None if aspect is None else whole(aspect, {"field": "aspect"}),
        "locality": locality,
        "seed": whole(seed, {"field": "seed"}),
    }
    if trace is not None:
        source = str(Path(trace))
        request["unit"] = _unit(unit, None)
        request["trace"], lines = _arrivals(Path(trace))
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
            "count": whole(jobs, {"field": "jobs"}),
            "load": load,
            "duration": _quantity("time", duration, {"field": "duration"}),
        }
    told = _ask(_core.place_queue, fabric, request, progress, source, lines)
    return {"source": source or "inline", "unit": request["unit"], **told}


def _arrivals(path: Path) -> tuple[list[tuple[str, str, Any]], Sequence[int | None]]:
    """The jobs of a trace, and the lines that they stand on."""
    rows, lines = read_csv(path, ("arrive", "duration", "size"))
    jobs = [
        (
            _quantity("time", arrive, at(path, line, "arrive")),
            _quantity("time", length, at(path, line, "duration")),
            job_size(size, at(path, line, "size")),
        )
        for (arrive, length, size), line in zip(rows, lines, strict=True)
    ]
    return jobs, lines


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
    sides = [whole(side, {"field": "shape"}) for side in shape]
    each = [whole(side, {"field": "board"}) for side in board]
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


def _quantity(kind: Any, text: object, where: dict[str, Any]) -> str:
    try:
        _core.parse_quantity(kind, str(text))
    except _core.InputError as error:
        raise InputError(**{**_told(error), **where, "value": str(text)}) from None
    return str(text)
