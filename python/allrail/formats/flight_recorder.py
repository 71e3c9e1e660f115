"""Dumps of torch's Flight Recorder: the last calls of every rank, often of a job that hung.

    dumps = read_dumps([Path("traces/")])        # nccl_trace_rank_0, nccl_trace_rank_1, ...

`torch.distributed` keeps the last 2,000 calls of each rank (`TORCH_FR_BUFFER_SIZE`, before
`TORCH_NCCL_TRACE_BUFFER_SIZE`) and writes them where a collective times out, or where it is asked
to: a pickle, or JSON. An entry has the group, shapes and types, when it was called, and its
duration where `TORCH_NCCL_ENABLE_TIMING=1` was set; gloo tells no durations.

`calibrate/read/flight.py` makes of them the tables that `expect` takes, `flight_trace.py` the
traces that `import` and `verify` take.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.base.manifest import note_source
from allrail.formats.plain_pickle import load_plain

_LARGEST = 128 << 20
HEAD = 1 << 16
"""Bytes of a file that tell whether it is a dump."""
_DUMP = "a dump of torch's Flight Recorder, such as `nccl_trace_rank_0`, or their folder"


@dataclass(frozen=True, slots=True)
class Call:
    """An entry: a call for a communication.

    Attributes:
        group: Name of the process group.
        name: As torch calls it, without its backend: `all_reduce`, `send 0->1`, `coalesced`.
        sequence: Which of the group's collectives, or of its messages.
        message: Whether it is a message.
        inputs: Elements of each tensor that is put in.
        outputs: Elements of each that comes out.
        dtype: Of the elements, as torch calls it; empty where there are none.
        created_us: When it was called.
        duration_us: How long it took; None where that was not recorded.
        completed: Whether it is over, as far as the recorder knows.
    """

    group: str
    name: str
    sequence: int
    message: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtype: str
    created_us: float
    duration_us: float | None
    completed: bool

    @property
    def width(self) -> int | None:
        """Bytes of an element; None where the type is not known."""
        return _core.dtype_width(self.dtype)


@dataclass(frozen=True, slots=True)
class Dump:
    """What one rank recorded.

    Attributes:
        rank: In the job; None where neither the file's name nor another one says.
        calls: In the order in which they were made.
        groups: The ranks of process groups, by name, where they are told.
        source: The file.
    """

    rank: int | None
    calls: tuple[Call, ...]
    groups: Mapping[str, tuple[int, ...]]
    source: str


@dataclass(frozen=True, slots=True)
class Unit:
    """What one kernel does: a call, or several that were coalesced.

    Attributes:
        calls: One at least.
        duration_us: How long it took; None where that was not recorded.
    """

    calls: tuple[Call, ...]
    duration_us: float | None


def is_dump(path: Path) -> bool:
    """Return whether a file is a dump, or a folder has some.

    Args:
        path: The file or folder.
    """
    if path.is_dir():
        return bool(_inside(path))
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_recorded(file.read(HEAD))


def is_recorded(head: bytes) -> bool:
    """Return whether a file is a dump, by its first bytes.

    Args:
        head: `HEAD` bytes of it, or all if there are fewer.
    """
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return b"pg_config" in head or b"nccl_version" in head
    named = head.lstrip()[:1] == b"{" and b'"traceEvents"' not in head
    return named and (b'"collective_seq_id"' in head or b'"pg_status"' in head)


def _inside(folder: Path) -> list[Path]:
    files = [one for one in folder.iterdir() if one.is_file() and not one.name.startswith(".")]
    return sorted((one for one in files if is_dump(one)), key=lambda one: (_rank(one) or 0, one))


def read_dumps(paths: Sequence[Path]) -> list[Dump]:
    """Return the dumps of files, and of folders with one a rank, by rank.

    Args:
        paths: The files and folders.

    Raises:
        InputError: One is no dump, two are of one rank, or one holds more than plain data.
    """
    files = [one for path in paths for one in (_inside(path) if path.is_dir() else [path])]
    if not files:
        raise InputError("there is no dump in it", source=str(paths[0]), hint=f"give {_DUMP}")
    dumps = [_read(file) for file in files]
    if len(dumps) > 1:
        ranks = [one.rank for one in dumps]
        if None in ranks or len(set(ranks)) < len(ranks):
            raise InputError(
                "their names do not say of which rank each is",
                source=", ".join(one.source for one in dumps[:2]),
                hint="name them as torch does, by their rank at the end: `nccl_trace_rank_0`",
            )
        dumps.sort(key=lambda one: one.rank or 0)
    return _common(dumps)


def _rank(path: Path) -> int | None:
    found = re.search(r"(\d+)$", path.name.removesuffix(".json").removesuffix(".pickle"))
    return int(found[1]) if found and len(found[1]) < 8 else None


def _read(path: Path) -> Dump:
    note_source(path)
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(
            f"it cannot be read: {error.strerror}", source=source, hint=f"give {_DUMP}"
        ) from None
    if len(data) > _LARGEST:
        raise InputError(
            f"it has more than {_LARGEST >> 20} MiB", source=source, hint=f"give {_DUMP}"
        )
    if data.lstrip()[:1] == b"{":
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            raise InputError("it is no whole JSON", source=source, hint=f"give {_DUMP}") from None
    else:
        tree = load_plain(data, source=source)
    try:
        calls = tuple(_call(entry) for entry in tree.get("entries", ()))
        groups = dict(_groups(tree.get("pg_config", {})))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise InputError(
            "its entries are not as torch writes them", source=source, hint=f"give {_DUMP}"
        ) from None
    if not calls:
        raise InputError(
            "no communication is recorded in it",
            source=source,
            hint="run the job with `TORCH_FR_BUFFER_SIZE=2000` (in older torch"
            " `TORCH_NCCL_TRACE_BUFFER_SIZE=2000`)",
        )
    return Dump(_rank(path), calls, groups, source)


def _call(entry: Mapping[str, Any]) -> Call:
    _, _, name = _text(entry["profiling_name"]).partition(":")
    message = bool(entry.get("is_p2p", False))
    duration = entry.get("duration_ms")
    dtypes = [
        _text(one) for one in (*entry.get("input_dtypes", ()), *entry.get("output_dtypes", ()))
    ]
    group = entry["process_group"]
    return Call(
        group=_text(group[0] if isinstance(group, (list, tuple)) else group),
        name=(name or entry["profiling_name"]).lstrip("_"),
        sequence=int(entry["p2p_seq_id" if message else "collective_seq_id"]),
        message=message,
        inputs=tuple(_elements(entry.get("input_sizes", ()))),
        outputs=tuple(_elements(entry.get("output_sizes", ()))),
        dtype=dtypes[0] if dtypes else "",
        created_us=int(entry["time_created_ns"]) / 1e3,
        duration_us=None if duration is None else 1e3 * float(duration),
        completed=entry.get("state") == "completed" or bool(entry.get("retired")),
    )


def _text(value: Any) -> str:
    """A name; a number counts as one."""
    if not isinstance(value, str | int):
        raise TypeError(value)
    return str(value)


def _elements(sizes: Sequence[Sequence[int]]) -> Iterator[int]:
    for shape in sizes:
        count = math.prod(int(one) for one in shape)
        if not 0 <= count < 1 << 60:
            raise ValueError(count)
        yield count


def _groups(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, one in config.items():
        ranks = one.get("ranks", "")
        listed = re.findall(r"\d+", ranks) if isinstance(ranks, str) else ranks
        if name and len(listed):
            yield str(name), tuple(int(rank) for rank in listed)


def _common(dumps: list[Dump]) -> list[Dump]:
    """Dumps cut to what all ranks of a group still have: each keeps its last calls alone.

    Where every rank has a dump, those that call a group that is not told are its ranks.
    """
    if len(dumps) == 1:
        return dumps
    spans: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    members: dict[str, list[int]] = {}
    for dump in dumps:
        mine: dict[tuple[str, bool], list[int]] = {}
        for call in dump.calls:
            mine.setdefault((call.group, call.message), []).append(call.sequence)
        for key, found in mine.items():
            spans.setdefault(key, []).append((min(found), max(found)))
            ranks = members.setdefault(key[0], [])
            if dump.rank is not None and dump.rank not in ranks:
                ranks.append(dump.rank)
    common = {
        key: (max(first for first, _ in found), min(last for _, last in found))
        for key, found in spans.items()
        if not key[1]
    }
    told = {name: ranks for dump in dumps for name, ranks in dump.groups.items()}
    groups = {name: tuple(sorted(ranks)) for name, ranks in members.items()} | told

    def kept(call: Call) -> bool:
        first, last = common.get((call.group, call.message), (call.sequence, call.sequence))
        return first <= call.sequence <= last

    return [replace(dump, calls=tuple(filter(kept, dump.calls)), groups=groups) for dump in dumps]


def units(dump: Dump) -> list[Unit]:
    """Return what each kernel of a rank did, in order.

    Args:
        dump: Of the rank.
    """
    found: list[Unit | None] = []
    places: dict[tuple[str, bool, int], list[int]] = {}
    for call in dump.calls:
        key = (call.group, call.message, call.sequence)
        if call.name != "coalesced":
            places.setdefault(key, []).append(len(found))
            found.append(Unit((call,), call.duration_us))
            continue
        calls: list[Call] = []
        for place in places.pop(key, ()):
            one, found[place] = found[place], None
            calls += one.calls if one is not None else ()
        if calls:
            found.append(Unit(tuple(calls), call.duration_us))
    return [one for one in found if one is not None]
