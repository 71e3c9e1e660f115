"""`sweep.jsonl`: every result as it comes, so that a sweep goes on where it stopped.

The first line says of which study it is, by which build of the core, and how many points there are;
then a line a point, in the order in which they came. A line that was cut off by a crash is dropped.
Who writes holds a lock on the file, so two sweeps do not share a folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Self

from allrail.errors import InputError
from allrail.reproduce.kept import core
from allrail.sweeps.study import Study

NAME = "sweep.jsonl"


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
        self.path = folder / NAME
        self._study = study
        self.outcomes: dict[int, dict[str, Any]] = {}
        """By point: its `row`, or its `error`."""
        try:
            if folder.exists() and not folder.is_dir():
                raise self._refused("it is a file", "name a folder")
            self._made = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self.path.open("a+b")
        except OSError as error:
            raise self._refused(
                f"it cannot be written: {error.strerror or error}",
                "name a place where you may write and that has room",
            ) from None
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.outcomes:  # nothing came of it, so nothing stays
            self.path.unlink(missing_ok=True)
            if self._made:
                self.path.parent.rmdir()
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

    def _write(self, text: str) -> None:
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            raise self._refused(
                f"it cannot be written: {error.strerror or error}",
                "make room; the sweep goes on where it stopped",
            ) from None

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._refused(
                "another sweep writes to this folder", "wait for it, or name another folder"
            ) from None

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        head = {
            "made_by": "allrail sweep",
            "study": self._study.digest,
            "core": core(),
            "points": len(self._study.points),
        }
        for number, line in enumerate(self._file):
            told = _told(line)
            if number == 0:
                self._check(told, head, line)
            if told is None or (number > 0 and not _is_outcome(told, len(self._study.points))):
                break  # cut off by a crash
            if number > 0 and not told.get("lost"):
                self.outcomes.setdefault(told["point"], told)
            whole += len(line)
        self._file.seek(0, os.SEEK_END)
        if self._file.tell() > whole:
            self._file.truncate(whole)
        if whole == 0:
            self._write(json.dumps(head) + "\n")

    def _check(self, told: dict[str, Any] | None, head: dict[str, Any], line: bytes) -> None:
        if told is None and not line.endswith(b"\n") and json.dumps(head).encode().startswith(line):
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

    def _refused(self, why: str, hint: str) -> InputError:
        return InputError(why, hint=hint, source="--out", value=str(self.path.parent))


def _told(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _is_outcome(told: dict[str, Any], points: int) -> bool:
    """Whether a line says what came of a point of the study."""
    point = told.get("point")
    known = isinstance(point, int) and 0 <= point < points
    return known and (isinstance(told.get("row"), dict) or isinstance(told.get("error"), str))
