"""Workload files of ASTRA-sim 1.0: a training loop, a number of layers, one line a layer.

A line holds name, a reserved number, then compute time (ns), collective and bytes of the forward
pass, of the input gradient and of the weight gradient, and the time of the update (ns).

Only the loop `MICRO` is read. It runs the weight-gradient collective of the first layer, once a
pass, every pass from time zero on; it computes nothing. The other loops are training steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from allrail.errors import did_you_mean
from allrail.formats.astra_sim.notes import Notes
from allrail.formats.astra_sim.source import Source, read_lines
from allrail.scenario.places import Place

KINDS = {
    "ALLREDUCE": "all_reduce",
    "REDUCESCATTER": "reduce_scatter",
    "ALLGATHER": "all_gather",
    "ALLTOALL": "all_to_all",
}

LOOPS = (
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
    "HYBRID_DLRM",
    "HYBRID_DLRM_ENHANCED",
    "HYBRID_CUSTOMIZED",
    "DISTRIBUTED_INFERENCE",
)

FIELDS = (
    "name",
    "reserved",
    "forward compute time",
    "forward collective",
    "forward bytes",
    "input-gradient compute time",
    "input-gradient collective",
    "input-gradient bytes",
    "weight-gradient compute time",
    "weight-gradient collective",
    "weight-gradient bytes",
    "update time",
)

LARGEST_SIZE = 2**50
"""Bytes; the core takes 1 PiB at most."""


@dataclass(frozen=True, slots=True)
class AstraWorkload:
    """What `MICRO` runs.

    Attributes:
        layer: The name of the first layer.
        kind: Its weight-gradient collective, in our words.
        size: Bytes, as ASTRA-sim counts them: what each NPU puts in.
        update_time: How long the update after the collective takes, ns.
        size_line: The line that the size stands in.
        source: For errors about it.
    """

    layer: str
    kind: str
    size: int
    update_time: int
    size_line: int
    source: Source


def read_workload(path: str | Path, *, notes: Notes) -> AstraWorkload:
    """Read a workload file whose training loop is `MICRO`.

    Args:
        path: The file.
        notes: Takes the collectives that `MICRO` does not run.

    Raises:
        InputError: It has another training loop, or anything in it is wrong.
    """
    if Path(path).suffix == ".et":
        raise Source(str(path)).error(
            "it is a Chakra trace, which is not read",
            hint="give a 1.0 workload `.txt` with the training loop `MICRO`",
        )
    lines, source = read_lines(path)
    _check_loop(lines[0], source)
    if len(lines) < 2:
        raise source.error(
            "it ends before the number of layers", hint="the second line says how many follow"
        )
    count_line, count_text = lines[1]
    source.places.known[("layers",)] = Place(source.file, count_line)
    layers = source.count(count_text, at="layers", at_most=1_000_000)
    rows = lines[2:]
    if len(rows) != layers:
        raise source.error(
            f"{len(rows)} lines follow, one a layer",
            at="layers",
            value=layers,
            hint=f"write {len(rows)}, or check whether the file is truncated",
        )
    for number, row in rows[1:]:
        _read_layer(number, row, source)
    workload, rest = _read_layer(*rows[0], source)
    if layers > 1:
        notes.add("layers after the first", "`MICRO` does not run them, in ASTRA-sim neither")
    for name in rest:
        notes.add(name, "`MICRO` does not run it, in ASTRA-sim neither")
    if workload is None:
        raise source.error(
            "the first layer has no collective to run",
            at="weight-gradient collective",
            line=rows[0][0],
            value="NONE",
            hint=f"write one of {', '.join(f'`{kind}`' for kind in KINDS)}",
        )
    return workload


def _check_loop(first: tuple[int, str], source: Source) -> None:
    line, text = first
    loop = text.split()[0]
    if loop == "MICRO":
        return
    if loop in LOOPS:
        raise source.error(
            f"`{loop}` is a whole training loop; it needs the step graph of a training job, which "
            "this version does not have",
            at="training loop",
            line=line,
            value=loop,
            hint="workloads with the training loop `MICRO`, a collective on its own, are read",
        )
    raise source.error(
        "it is not a training loop of ASTRA-sim",
        at="training loop",
        line=line,
        value=loop,
        hint=did_you_mean(loop, ("MICRO", *LOOPS), others="it is one of")
        + " (of which `MICRO` is read)",
    )


def _read_layer(line: int, row: str, source: Source) -> tuple[AstraWorkload | None, list[str]]:
    """The weight-gradient collective of a layer, and which other collectives it names."""
    words = row.split()
    if len(words) != len(FIELDS):
        raise source.error(
            f"it has {len(words)} of a layer's {len(FIELDS)} fields"
            if len(words) < len(FIELDS)
            else f"it has {len(words)} fields, a layer has {len(FIELDS)}",
            line=line,
            value=row,
            hint=f"the {min(len(words), len(FIELDS) - 1) + 1}th is the {FIELDS[len(words)]}"
            if len(words) < len(FIELDS)
            else "`MICRO` takes none after the update time",
        )
    values = dict(zip(FIELDS, words, strict=True))
    numbers: dict[str, int] = {}
    kinds: dict[str, str | None] = {}
    for name, text in values.items():
        source.places.known[(name,)] = Place(source.file, line)
        if name.endswith("collective"):
            kinds[name] = source.choice(text, KINDS | {"NONE": ""}, at=name) or None
        elif name.endswith(("time", "bytes")):
            limit = LARGEST_SIZE if name.endswith("bytes") else 86_400 * 10**9
            numbers[name] = source.count(text, at=name, at_least=0, at_most=limit)
    rest = [
        name
        for name in ("forward collective", "input-gradient collective")
        if kinds[name] is not None
    ]
    kind = kinds["weight-gradient collective"]
    if kind is None:
        return None, rest
    size = source.count(
        values["weight-gradient bytes"], at="weight-gradient bytes", at_most=LARGEST_SIZE
    )
    workload = AstraWorkload(
        layer=values["name"],
        kind=kind,
        size=size,
        update_time=numbers["update time"],
        size_line=line,
        source=source,
    )
    return workload, rest
