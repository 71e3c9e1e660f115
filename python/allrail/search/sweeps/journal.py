"""`sweep.jsonl`: every result as it comes, so that a sweep goes on where it stopped.

The first line says of which study it is, by which build of the core, and how many points there are;
then a line a point, in the order in which they came. A last line that a crash cut off is dropped;
any other that is no result, or has a value that a result cannot have, is an error that names it.
The file is only appended to. Who writes holds a lock on it, so two sweeps do not share a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterable, Mapping
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, Self

from allrail.base.errors import InputError
from allrail.base.files import check_folder
from allrail.results.plans import core
from allrail.search.sweeps.evaluate import columns
from allrail.search.sweeps.study import Study

NAME = "sweep.jsonl"
_MADE_BY = "allrail sweep"


class Journal:
    """The journal of one study, open and locked; use it as a context manager.

    Args:
        folder: Where it is; made if it is not there.
        study: Whose results it holds.

    Raises:
        InputError: It is another study's or another build's, another sweep writes it, or it cannot
            be written.
    """

    def __init__(self, folder: Path, study: Study) -> None:
        check_folder(folder, option="--out")
        self.path = folder / NAME
        self._study = study
        self.outcomes: dict[int, dict[str, Any]] = {}
        """By point: its `row`, or its `error`."""
        try:
            self._made = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            self._file, created = self._open()
        except OSError as error:
            raise self._unwritable(
                error, "name a place where you may write and that has room"
            ) from None
        try:
            self._lock()
            if created:
                self._write(json.dumps(self._head) + "\n")
            else:
                self._read()
        except BaseException:
            if created:
                self._remove()
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.outcomes:  # nothing came of it, so nothing stays
            self._remove()
        self._file.close()

    def add(self, lines: Iterable[str]) -> None:
        """Write results.

        Args:
            lines: As `tasks.line` makes them.
        """
        for line in lines:
            told = json.loads(line)
            self.outcomes.setdefault(told["point"], told)
        self._write("".join(lines))

    def _open(self) -> tuple[FileIO, bool]:
        """The file, and whether it is new."""
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        if self.path.is_symlink():
            raise self._refused(f"its `{NAME}` is a symbolic link", "name another folder")
        try:
            return FileIO(os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o666), "r+"), True
        except FileExistsError:
            return FileIO(os.open(self.path, flags), "r+"), False

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):  # somebody has put something into it
                self.path.parent.rmdir()

    @property
    def _head(self) -> dict[str, Any]:
        return {
            "made_by": _MADE_BY,
            "study": self._study.digest,
            "core": core(),
            "points": len(self._study.points),
        }

    def _write(self, text: str) -> None:
        data = memoryview(text.encode())
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._unwritable(error, "make room; the sweep goes on where it stopped") from None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._refused(
                "another sweep writes to this folder", "wait for it, or name another folder"
            ) from None

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        lines = BufferedReader(self._file)
        for number, line in enumerate(lines, start=1):
            told = _told(line)
            if number == 1:
                self._check(told, line)
            if not line.endswith(b"\n"):
                break  # cut off by a crash
            if number > 1:
                self._take(told, number)
            whole += len(line)
        lines.detach()
        if self._file.seek(0, os.SEEK_END) == 0:
            self._check(None, b"")
        if self._file.seek(0, os.SEEK_END) > whole:
            self._file.truncate(whole)
        if whole == 0:
            self._write(json.dumps(self._head) + "\n")

    def _take(self, told: dict[str, Any] | None, number: int) -> None:
        """Take what a line says of a point."""
        wrong = _wrong(told, points=len(self._study.points), kinds=columns(self._study.base))
        if told is None or wrong:
            raise InputError(
                wrong,
                hint="delete that line: the sweep simulates its point again",
                source=str(self.path),
                line=number,
            )
        if not told.get("lost"):
            self.outcomes.setdefault(told["point"], told)

    def _check(self, told: dict[str, Any] | None, line: bytes) -> None:
        head = self._head
        cut = not line.endswith(b"\n") and _MADE_BY.encode() in line
        if cut and json.dumps(head).encode().startswith(line):
            return  # its very first line was cut off
        if told is None or told.get("made_by") != head["made_by"]:
            raise self._refused(
                f"its `{NAME}` was not written by allrail and would be lost", "name another folder"
            )
        if told.get("study") != head["study"]:
            raise self._refused(
                "it has the results of another study: other axes, or another scenario",
                f"name another folder, or delete `{self.path}`",
            )
        if told.get("core") != head["core"]:
            raise self._refused(
                f"its results are of another build of allrail ({told.get('core')}), which may "
                "predict other times",
                f"name another folder, or delete `{self.path}`",
            )

    def _unwritable(self, error: OSError, hint: str) -> InputError:
        return InputError(
            f"it cannot be written: {error.strerror or error}",
            hint=hint,
            source="--out",
            value=str(self.path),
        )

    def _refused(self, why: str, hint: str) -> InputError:
        return InputError(why, hint=hint, source="--out", value=str(self.path.parent))


def _told(line: bytes) -> dict[str, Any] | None:
    """A line's JSON object; None where it is none, or has a number that is none (`NaN`)."""
    if not line.endswith(b"\n"):
        return None
    try:
        told = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _no_number(word: str) -> float:
    raise ValueError(word)


def _wrong(told: dict[str, Any] | None, *, points: int, kinds: Mapping[str, str]) -> str:
    """Why a line is not what came of a point of the study; nothing where it is."""
    if told is None:
        return "it is no JSON object whose numbers are finite"
    point, row, error = told.get("point"), told.get("row"), told.get("error")
    if type(point) is not int or not 0 <= point < points:
        return f"`point` is no number of one of the study's {points:,} points"
    if isinstance(error, str):
        return ""
    if not isinstance(row, dict):
        return "it has neither a `row` nor an `error`"
    for name, value in row.items():
        kind = kinds.get(name)
        if kind is None:
            return f"`{name}` is no result of this study"
        if value is not None and not _fits(value, kind):
            return f"`{name}` is no {_KINDS[kind]}"
    return ""


_KINDS = {
    "Float64": "finite number",
    "Int64": "whole number of 64 bits",
    "UInt64": "whole number of 64 bits from 0",
    "Boolean": "true or false",
    "String": "text",
}
"""Of a column's type in polars, what its values are."""


def _fits(value: object, kind: str) -> bool:
    if kind in ("Int64", "UInt64"):
        low, high = (0, 2**64) if kind == "UInt64" else (-(2**63), 2**63)
        return type(value) is int and low <= value < high
    if kind == "Float64":
        if type(value) is int:
            return abs(value) < 2**63
        return type(value) is float and math.isfinite(value)
    return type(value) is {"Boolean": bool, "String": str}[kind]
