"""What ASTRA-sim itself printed of a run, read to stand beside ours.

Two forms are read:

- 1.0's `tutorial_result.csv`: a line a run with the columns that `columns` gives; times in us,
  MB are MiB.
- 2.x's output: `sys[0] finished, 17534229 cycles, exposed communication 17534229 cycles.`, a line
  an NPU, whatever a logger puts before it; older versions leave the second number out. A cycle is a
  nanosecond. The run takes as long as its last NPU, and its exposed communication is that NPU's.

Files of two versions do not belong to one run, and are refused.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allrail.base.errors import InputError, did_you_mean, show
from allrail.base.stdin import suffix
from allrail.formats.astra_sim.traces import is_prefix
from allrail.scenario.text import read_bytes

TOTAL, COMPUTE = "TotalTime(us)", "ComputeTime(us)"
EXPOSED, SIZE = "ExposedCommunicationTime(us)", "TotalMessageSize(MB)"
FIRST, SECOND = "1.0", "2.x"

_LINE = re.compile(
    r"sys\[(\d+)\](?: iteration (\d+))? finished, (\d+) cycles"
    r"(?:, exposed communication (-?\d+) cycles)?"
)
_END_TO_END = re.compile(r"^\s*layer_name\b|workload finished at", re.MULTILINE)
_MAX_BYTES = 1 << 26
_ONE_LINE = "keep the header and the line of one run in a file of its own"


@dataclass(frozen=True, slots=True)
class Printed:
    """A run as ASTRA-sim printed it.

    Attributes:
        file: Where.
        version: Of ASTRA-sim, `1.0` or `2.x`.
        name: Of the run, where the file has one.
        values: By the names of ASTRA-sim's columns, in us, MiB and per cent; those that it has.
    """

    file: str
    version: str
    name: str
    values: Mapping[str, float]


def read_printed(path: Path, *, run: str | None = None) -> Printed:
    """Read what ASTRA-sim printed.

    Args:
        path: A CSV file of 1.0, or the saved output of 2.x.
        run: Which line of the CSV file, by its `Name`, where it has several.

    Raises:
        InputError: It cannot be read, is neither, or does not say which run is meant.
    """
    text = read_bytes(path)
    if len(text) > _MAX_BYTES:
        raise InputError(
            "it is larger than 64 MiB",
            source=str(path),
            hint="keep the lines of NPUs that have finished: `grep finished`",
        )
    found = list(_LINE.finditer(text))
    if TOTAL in text.split("\n", 1)[0]:
        if found:
            raise InputError(
                "it has runs of ASTRA-sim 1.0 and 2.x",
                source=str(path),
                hint="give each version's run a file of its own",
            )
        return _csv(path, text, run)
    if found:
        if run is not None:
            raise InputError(
                "the output of ASTRA-sim 2.x has one run",
                source="--run",
                value=run,
                hint="leave it out",
            )
        return _cycles(path, found)
    if _END_TO_END.search(text):
        why = "it is ASTRA-sim's table of layers, which has no totals of a run"
    else:
        why = "it is no result of ASTRA-sim"
    raise InputError(
        why,
        source=str(path),
        hint="name `tutorial_result.csv` of 1.0, or the output of 2.x (`sys[0] finished, ...`)",
    )


def check_versions(printed: Sequence[Printed], inputs: Mapping[str, Path]) -> str:
    """Return the version of ASTRA-sim that all files are of.

    A network file says none: 1.0's congestion-aware backend takes 2.x's `.yml`, too.

    Args:
        printed: What it printed.
        inputs: The files of its run by their options' names: `system`, `workload`.

    Raises:
        InputError: They are of two versions.
    """
    known = [(one.version, one.file) for one in printed]
    known += [(version, str(path)) for path in inputs.values() if (version := _version(path))]
    version, first = known[0]
    for other, file in known[1:]:
        if other != version:
            raise InputError(
                f"it is of ASTRA-sim {other}, and `{first}` of {version}",
                source=file,
                hint="compare files of one version: 1.0 has `.txt` and `.csv`, 2.x `.json`, `.et` "
                "and its output",
            )
    return version


def _version(path: Path) -> str | None:
    ending = suffix(path)
    if is_prefix(path) or ending == ".json":
        return SECOND
    return FIRST if ending == ".txt" else None


def _csv(path: Path, text: str, run: str | None) -> Printed:
    rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
    header = [name.strip() for name in rows[0]]
    runs = [dict(zip(header, (cell.strip() for cell in row), strict=False)) for row in rows[1:]]
    names = [one.get("Name", "") for one in runs]
    if not runs:
        raise InputError("it has no run", source=str(path), hint="run ASTRA-sim to its end")
    if run is None and len(runs) > 1:
        raise InputError(
            f"it has {len(runs)} runs",
            source=str(path),
            hint=f"name one by `--run`: {', '.join(show(name) for name in names[:6])}"
            if len(set(names)) == len(names)
            else _ONE_LINE,
        )
    if run is not None and run not in names:
        raise InputError(
            f"`{path}` has no such run",
            source="--run",
            value=run,
            hint=did_you_mean(run, names, others="it has"),
        )
    if run is not None and names.count(run) > 1:
        raise InputError(
            f"`{path}` has {names.count(run)} runs of this name",
            source="--run",
            value=run,
            hint=_ONE_LINE,
        )
    at = names.index(run) if run is not None else 0
    values = {}
    for name, cell in runs[at].items():
        if name == "Name" or not cell:
            continue
        values[name] = _number(cell, path, line=at + 2, field=name)
    return Printed(str(path), FIRST, names[at], values)


def _number(cell: str, path: Path, *, line: int, field: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            "it is not a finite number",
            source=str(path),
            line=line,
            field=field,
            value=show(cell),
            hint="keep the file as ASTRA-sim wrote it",
        )
    if number < 0:
        raise InputError(
            "it is below 0",
            source=str(path),
            line=line,
            field=field,
            value=show(cell),
            hint="keep the file as ASTRA-sim wrote it",
        )
    return number


def _cycles(path: Path, found: Sequence[re.Match[str]]) -> Printed:
    ends: dict[tuple[str, str | None], tuple[int, int | None]] = {}
    for npu, iteration, cycles, waited in (one.groups() for one in found):
        end = (int(cycles), None if waited is None else int(waited))
        if ends.setdefault((npu, iteration), end) != end:
            raise InputError(
                f"it has several runs: `sys[{npu}]` has finished twice",
                source=str(path),
                hint="keep the lines of one run in a file of its own",
            )
    total, exposed = max(ends.values(), key=lambda one: (one[0], one[1] or 0))
    values = {TOTAL: total / 1e3}
    if exposed is not None:
        values |= {COMPUTE: (total - exposed) / 1e3, EXPOSED: exposed / 1e3}
    return Printed(str(path), SECOND, "", values)
