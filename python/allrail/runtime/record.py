"""What a rank has recorded of a training job, and the files that it is in.

A record is plain data: what the rank's hooks have seen (`Marks`), what its node has (a timeline,
from `allrail._core.Node`), and with what settings. All times are nanoseconds of the machine's
monotonic clock; `report["peers"]` says how far the clocks of other ranks are ahead.

`ALLRAIL_TRACE=DIR`, or `trace: DIR` in the job file, has every rank write its record when it ends;
`allrail run --trace DIR` puts them together.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from allrail.base.errors import InputError
from allrail.base.files import remove, write_bytes

SCHEMA_VERSION = 1

_RECORDS = 1 << 18
"""Of a node, while a trace is made: 25 MB, some hundred steps."""

_MARKS = 1 << 16

_MAX_BYTES = 1 << 30
"""Of a record, unpacked."""

_OUTPUT = "records"
_NAME = re.compile(r"rank\d+-.+-restart\d+\.json\.gz")


USERS = "which parameters are used"
"""The name of what counts the users of parameters, where any travels alone."""


class Mark(NamedTuple):
    """Something that a hook has seen.

    Attributes:
        kind: `forward` (a pass of the model), `enter` (a module's entry, with all that is waited
            for and stepped there), `submit` (a gradient is ready), `wait`, or `round` (a backward
            pass is over, and with it a step).
        tensor: The place in `Tensors` of what it is about; -1 if about none.
        start: When it began, ns.
        end: When it was over, ns.
    """

    kind: str
    tensor: int
    start: int
    end: int


class Marks:
    """The last marks of a rank; `add` takes the four values of a `Mark`."""

    def __init__(self, most: int = _MARKS) -> None:
        self._ring: deque[tuple[str, int, int, int]] = deque(maxlen=most)
        self.add = self._ring.append

    def all(self) -> list[Mark]:
        """Return them, by their end."""
        return [Mark(*each) for each in list(self._ring)]


class TensorRow(TypedDict):
    """A tensor that is exchanged."""

    name: str
    bytes: int
    place: int


class Record(TypedDict):
    """What one rank has recorded of one model.

    Keys: `tensors` in the order in which they become ready, with the bytes that travel; small ones
    that travel together are one, and one may be `USERS`; `transport` by its class; `crosses`
    says whether steps wait as late as the next forward pass; `settings` are those of the node,
    `timeline` and `report` what it says, all three None where there is none; `exchange` is what
    came of trying ways to exchange, or of planning anew.
    """

    schema_version: int
    rank: int
    ranks: int
    model: str
    transport: str
    crosses: bool
    tensors: list[TensorRow]
    marks: list[Mark]
    settings: dict[str, Any] | None
    timeline: dict[str, Any] | None
    report: dict[str, Any] | None
    barriers: dict[str, int]
    exchange: NotRequired[str]


def folder() -> Path | None:
    """Return where the environment says that records are to be written, if it does."""
    named = os.environ.get("ALLRAIL_TRACE", "")
    return Path(named) if named else None


def recording(settings: Mapping[str, Any], where: Path | None) -> dict[str, Any]:
    """Return a node's settings with what a trace needs, if one is made.

    Args:
        settings: What is known; a folder for its flight recorder stays.
        where: The folder for what a trace is made of; None if none is made.
    """
    if where is None:
        return dict(settings)
    flight = settings.get("flight_recorder") or str(where.absolute())
    return {**settings, "records": _RECORDS, "flight_recorder": flight}


def write(record: Record, where: Path) -> Path:
    """Write a record, so that the file is whole as soon as it is there; return its path.

    Args:
        record: What a rank has recorded.
        where: The folder; made if it is not there.

    Raises:
        InputError: It cannot be written, or would replace a file that allrail did not write.
    """
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    model = re.sub(r"[^\w.-]", "_", record["model"])
    path = where / f"rank{record['rank']}-{model}-restart{int(restart)}.json.gz"
    data = gzip.compress(json.dumps(record).encode(), compresslevel=1)
    write_bytes(path, data, option="ALLRAIL_TRACE", output=_OUTPUT)
    return path


def read(where: Path, *, without: Collection[Path] = ()) -> list[Record]:
    """Return the records of a folder, by model and rank.

    Args:
        where: What `ALLRAIL_TRACE` was.
        without: Files that are left out.

    Raises:
        InputError: A file in it is no record.
    """
    found: list[Record] = []
    for path in _named(where):
        if path in without:
            continue
        try:
            with gzip.open(path) as file:
                text = file.read(_MAX_BYTES)  # what goes on behind it is cut off, and so refused
            record: Record = json.loads(text, parse_constant=_no_number)
            known = record["schema_version"] == SCHEMA_VERSION
            if known:
                _check(record)
                record["marks"] = [_mark(*each) for each in record["marks"]]
        except (OSError, EOFError, zlib.error, ValueError, RecursionError):
            raise InputError(
                "it is no record of a rank, or cut off",
                source=str(path),
                hint="trace into a folder of its own",
            ) from None
        except (KeyError, TypeError) as error:
            raise InputError(
                f"it is no record of a rank: {error}",
                source=str(path),
                hint="trace into a folder of its own",
            ) from None
        if not known:
            raise InputError(
                f"it has schema version {record['schema_version']}, this build reads"
                f" {SCHEMA_VERSION}",
                source=str(path),
                hint="put traces together with the allrail that has made them",
            )
        found.append(record)
    return sorted(found, key=lambda one: (one["model"], one["rank"]))


_OR_NONE = (dict, type(None))
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "rank": int,
    "ranks": int,
    "model": str,
    "transport": str,
    "crosses": bool,
    "tensors": list,
    "marks": list,
    "settings": _OR_NONE,
    "timeline": _OR_NONE,
    "report": _OR_NONE,
    "barriers": dict,
}


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _mark(kind: Any, *numbers: Any) -> Mark:
    if isinstance(kind, str) and len(numbers) == 3 and {type(one) for one in numbers} == {int}:
        return Mark(kind, *numbers)
    raise TypeError("`marks` has something else than a word and three whole numbers")


def _check(record: Mapping[str, Any]) -> None:
    """Refuse what lacks a key, or has something else there."""
    for key, kind in _KINDS.items():
        if not isinstance(record.get(key, ...), kind):
            what = type(record[key]).__name__ if key in record else "missing"
            raise TypeError(f"`{key}` is {what}")


@contextlib.contextmanager
def whole(where: Path) -> Iterator[None]:
    """Turn what a record that somebody has changed makes fail into a message.

    Args:
        where: The folder of the records that are used in the block.

    Raises:
        InputError: A value in a record is missing, or of another kind.
    """
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        lacks = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"one of its records is not as a rank writes it: {lacks}",
            source=str(where),
            hint="record the run again, or delete what was changed",
        ) from error


def clear(where: Path) -> list[Path]:
    """Remove the records that an earlier run has left.

    Args:
        where: A folder, which must be there.

    Returns:
        Files that are called as records are, and that allrail did not write: they stay.

    Raises:
        InputError: A record was changed since.
    """
    remove(where, _OUTPUT, option="--trace")
    return _named(where)


def _named(where: Path) -> list[Path]:
    """The files of a folder that are called as records are."""
    return sorted(one for one in where.glob("rank*.json.gz") if _NAME.fullmatch(one.name))
