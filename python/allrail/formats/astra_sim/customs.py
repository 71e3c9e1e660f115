"""Collectives that are traces of their own (2.x): which traces a system file names, and where.

`…-implementation-custom` names one trace for a kind of collective,
`per-node-custom-implementation` a YAML file with one for each of some nodes. ASTRA-sim looks for
them from where it runs; here they are looked for from there, and from the folder of the system file
and those above it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allrail.scenario.astra_sim.source import Source, read_tree

PER_NODE = "per-node-custom-implementation"


def read_customs(
    values: dict[str, object], *, kinds: dict[str, str], system: str | Path, source: Source
) -> dict[str, Any]:
    """`workload.model.trace.collectives`: a path for each kind, and `nodes` by their ids.

    Args:
        values: The system file.
        kinds: The key of each kind's own implementation.
        system: The system file's path.
        source: For errors about it.

    Raises:
        InputError: A key does not name one trace, or there is no such trace.
    """
    found: dict[str, Any] = {}
    for kind, key in kinds.items():
        custom = f"{key}-custom"
        if custom not in values:
            continue
        named = values[custom]
        if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
            raise source.error(
                "it is not a list of one trace, which covers all dimensions",
                at=custom,
                value=named,
                hint='write `["DIR/NAME"]`, for the files `DIR/NAME.<rank>.et`',
            )
        found[kind] = str(_trace(named[0], Path(system), source, at=custom))
    if PER_NODE in values:
        found["nodes"] = _per_node(values[PER_NODE], Path(system), source)
    return found


def _per_node(named: object, system: Path, source: Source) -> dict[str, str]:
    file = _look(str(named), system) if isinstance(named, str) else None
    if file is None:
        raise source.error(
            "there is no such file",
            at=PER_NODE,
            value=named,
            hint="it names a YAML file with lines `NODE: DIR/NAME`",
        )
    lines, listed = read_tree(file)
    traces = {}
    for node, trace in lines.items():
        number = str(node)
        if not (number.isascii() and number.isdigit()) or not isinstance(trace, str):
            raise listed.error(
                "it is not the id of a node and a trace",
                at=number,
                value=trace,
                hint="write lines `NODE: DIR/NAME`",
            )
        traces[str(int(number))] = str(_trace(trace, file, listed, at=number))
    return traces


def _trace(named: str, beside: Path, source: Source, *, at: str) -> Path:
    """Where a trace is, absolute; or a program of MSCCL, which is one file."""
    if named.endswith(".xml") and (program := _look(named, beside)) is not None:
        return program
    first = _look(f"{named}.0.et", beside)
    if first is None:
        raise source.error(
            f"there is no file `{named}.0.et`, neither from here nor from the folders above "
            f"`{beside.name}`",
            at=at,
            value=named,
            hint="name the files' path without `.<rank>.et`",
        )
    return first.with_name(first.name.removesuffix(".0.et"))


def _look(named: str, beside: Path) -> Path | None:
    """The first file of that name: from here, then from the folder of `beside` upwards."""
    folders = (Path.cwd(), *beside.absolute().parents)
    return next((folder / named for folder in folders if (folder / named).is_file()), None)
