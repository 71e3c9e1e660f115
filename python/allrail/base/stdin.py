"""Stdin in place of a file: `-`, in every command that reads one.

    read(most)          # its bytes, as often as they are asked for
    spooled()           # the same in a temporary file, for readers that take files alone

A command may read its file more than once, so what has come is kept. A reader that goes by the
ending of a file's name gets one that fits what is in it. The temporary file is gone when the
process ends.
"""

from __future__ import annotations

import atexit
import codecs
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from allrail import _core
from allrail.base import leftovers
from allrail.base.errors import InputError

STDIN = Path("-")
"""What names it."""
NAME = "stdin"
"""What it is called where a file would be called by its name."""

_PIECE = 1 << 20
_HEAD = 1 << 16
_LARGEST = 16 << 30
"""Bytes that are spooled, where `ALLRAIL_MAX_TRACE_BYTES` says nothing else."""


def stem(path: Path) -> str:
    """Return what a file is called, without its ending.

    Args:
        path: The file, or `STDIN`.
    """
    return NAME if path == STDIN else path.stem


def suffix(path: Path) -> str:
    """Return the ending of a file's name; of stdin one by what is in it.

    Args:
        path: The file, or `STDIN`.
    """
    return path.suffix if path != STDIN else ending(read(_HEAD))


class _Kept:
    """What has come from stdin so far."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self.file: Path | None = None

    def read(self, most: int) -> bytes:
        if self.file is not None:
            with self.file.open("rb") as opened:
                return opened.read(most)
        while len(self.data) < most and not self.ended:
            piece = _source().read(min(_PIECE, most - len(self.data)))
            self.ended = not piece
            self.data += piece
        return bytes(self.data[:most])

    def spool(self) -> Path:
        if self.file is None:
            head = self.read(_HEAD)
            folder = Path(tempfile.mkdtemp(prefix="allrail-stdin-"))
            leftovers.note(folder)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            place = folder / (NAME + ending(head))
            with place.open("wb") as opened:
                self._copy(opened)
            self.file, self.data = place, bytearray()
        return self.file

    def _copy(self, opened: BinaryIO) -> None:
        opened.write(self.data)
        most, written = _most(), len(self.data)
        while not self.ended:
            piece = _source().read(_PIECE)
            self.ended = not piece
            written += len(piece)
            if written > most:
                raise InputError(
                    f"it is larger than {most >> 20:,} MiB",
                    source=NAME,
                    hint="name the file itself",
                )
            opened.write(piece)


_kept = _Kept()


def read(most: int) -> bytes:
    """Return the first bytes of stdin, all of it if there are fewer.

    Args:
        most: How many.

    Raises:
        InputError: Nobody can pipe anything in.
    """
    return _kept.read(most)


def spooled() -> Path:
    """Return a file that holds all of stdin, with an ending by what is in it.

    Raises:
        InputError: Nobody can pipe anything in, or it is too large.
    """
    return _kept.spool()


def is_spooled(path: Path) -> bool:
    """Return whether a file holds what came from stdin.

    Args:
        path: The file.
    """
    return _kept.file is not None and path == _kept.file


def told(text: str) -> str:
    """Return a message with stdin's name in place of the temporary file's.

    Args:
        text: The message.
    """
    return text if _kept.file is None else text.replace(str(_kept.file), NAME)


def forget() -> None:
    """Forget what came, as a new process would."""
    global _kept  # noqa: PLW0603, a process has one stdin
    _kept = _Kept()


def ending(head: bytes) -> str:
    """Return the ending that a file's name has by what is in it; none where nothing tells.

    Args:
        head: The file's first bytes.
    """
    if head.startswith(b"\x1f\x8b"):
        return ".json.gz"
    if head.startswith(b"\x80"):  # a pickle, which is known by its content
        return ""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ".txt"
    if b"\0" in head or not _is_text(head):
        return ".0.et"
    plain = head.decode("utf-8-sig", "replace").lstrip()
    return ".json" if plain[:1] in ("{", "[") else ".txt"


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A character may be cut in two at the end.
        return error.start >= len(head) - 3 and len(head) >= _HEAD
    return True


def _source() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("it is closed", source=NAME, hint="name a file")
    if sys.stdin.isatty():
        raise InputError(
            "it is a terminal, and nothing comes from there",
            source=NAME,
            hint="pipe a file in: add `< FILE`",
        )
    return sys.stdin.buffer


def _most() -> int:
    said = os.environ.get("ALLRAIL_MAX_TRACE_BYTES")
    try:
        return _core.parse_quantity("size", said) if said else _LARGEST
    except ValueError:  # the core refuses it where it reads
        return _LARGEST
