"""Dumps of torch's Flight Recorder as tables: of each collective and group size, a row a size.

Of the ranks that have a dump, the one that is quickest in a collective says how long it took: the
others wait in it for the last one. Of several of one size, the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from allrail.formats.flight_recorder import Call, Dump, read_dumps, units
from allrail.formats.flight_trace import left_out, no_durations
from allrail.measure.calibrate.table import Row, Table

_NAMES = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
)
"""By how torch's names begin, without underscores; `all_reduce_barrier` carries nothing."""


def read_flight(path: Path) -> list[Table]:
    """Return the tables of a dump, or of a folder with one of every rank.

    Args:
        path: The file or folder.

    Raises:
        InputError: It is no dump, or has no collective with a duration.
    """
    dumps = read_dumps([path])
    times: dict[tuple[str, int | None, int], dict[tuple[str, int], float]] = {}
    for dump in dumps:
        for unit in units(dump):
            if len(unit.calls) > 1 or not unit.duration_us:
                continue
            call = unit.calls[0]
            told = _collective(call)
            if told is None:
                continue
            name, size = told
            found = times.setdefault((name, _ranks(call, dump), size), {})
            which = (call.group, call.sequence)
            found[which] = min(found.get(which, unit.duration_us), unit.duration_us)
    if not times:
        raise no_durations(dumps)
    return _tables(times, dumps, path)


def _tables(
    times: dict[tuple[str, int | None, int], dict[tuple[str, int], float]],
    dumps: Sequence[Dump],
    path: Path,
) -> list[Table]:
    notes = left_out(dumps)
    if len(dumps) == 1:
        notes.append("one rank's dump: its waiting for others is in its times")
    rows: dict[tuple[str, int | None], list[Row]] = {}
    for (name, ranks, size), found in sorted(
        times.items(), key=lambda one: (one[0][0], one[0][1] or 0, one[0][2])
    ):
        rows.setdefault((name, ranks), []).append(Row(size, median(found.values())))
    return [
        Table(
            collective=name,
            ranks=ranks,
            hosts=None,
            device="",
            rows=tuple(sizes),
            source=str(path),
            notes=tuple(notes),
        )
        for (name, ranks), sizes in rows.items()
    ]


def _collective(call: Call) -> tuple[str, int] | None:
    """Its name and bytes, as nccl-tests count them; None where it is none, or carries nothing."""
    plain = call.name.replace("_", "").lower()
    name = next((ours for begin, ours in _NAMES if plain.startswith(begin)), None)
    width = call.width
    if name is None or width is None:
        return None
    size = width * max(sum(call.inputs), sum(call.outputs))
    return (name, size) if size else None


def _ranks(call: Call, dump: Dump) -> int | None:
    """How many a group has: as it is told, or as the result of a gather shows."""
    if call.group in dump.groups:
        return len(dump.groups[call.group])
    small, large = sorted((sum(call.inputs), sum(call.outputs)))
    return large // small if small and large > small and large % small == 0 else None
