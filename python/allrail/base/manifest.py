"""What allrail has written into a folder, and so may replace: `.allrail.json` in that folder.

The rule of every command that writes files, in one place:

- A file that is there is replaced or removed only if the folder's manifest names it and its
  content is still what allrail wrote (SHA-256). Everything else is refused and stays as it is.
- A source is never a target: not under its own name, nor as a hard link.
- Nothing is written through a symbolic link, into a read-only file, or over a folder.
- A file that already holds what would be written stays untouched, whoever wrote it.

A file belongs to one or several outputs, such as `results` or `trace gpt`; an output may not
replace what another one needs. A run that is stopped leaves a manifest that knows the old and the
new content of each file, so the next run may replace either. In folders such as `/tmp`, where many
users write and nobody may replace the files of another (sticky bit), each user has a manifest.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from allrail.base import leftovers
from allrail.base.errors import InputError

NAME = ".allrail.json"
MADE_BY = "allrail"
_SCHEMA_VERSION = 1
_MAX_BYTES = 1 << 28


@dataclass(slots=True)
class _Entry:
    """A file of ours.

    Attributes:
        of: The outputs that it belongs to; none of a file that was named alone.
        sha256: What it may hold: one digest, two while it is being replaced.
    """

    of: list[str] = field(default_factory=list)
    sha256: list[str] = field(default_factory=list)


class Manifest:
    """The manifest of one folder.

    Args:
        folder: It must be there.
        option: Which option named the folder, or a file in it.

    Raises:
        InputError: There is one that allrail did not write.
    """

    def __init__(self, folder: Path, *, option: str) -> None:
        self.folder = folder
        self._option = option
        sticky = folder.stat().st_mode & stat.S_ISVTX
        self.path = folder / (f".allrail-{os.getuid()}.json" if sticky else NAME)
        self._text, self._files = self._read(own=bool(sticky))

    def check(self, name: str, *, digest: str | None = None, output: str | None = None) -> bool:
        """Return whether a file is to be written; False where it already holds the same.

        Args:
            name: Its path in the folder, with `/`.
            digest: Of what would be written; None if that is not known yet.
            output: Which output it would be a part of; None if it is named alone.

        Raises:
            InputError: What is there must not be replaced.
        """
        place = self.folder / name
        if name == self.path.name:
            raise self._refused(name, "it is where allrail lists the files that it wrote")
        self._check_parents(name)
        try:
            there = place.lstat()
        except FileNotFoundError:
            return True
        kinds = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"))
        kind = next((what for test, what in kinds if test(there.st_mode)), "no plain file")
        if not stat.S_ISREG(there.st_mode):
            raise self._refused(name, f"it is {kind}, and not written by allrail")
        entry = self._files.get(name)
        found = None if entry is None and digest is None else _digest(place)
        if digest is not None and found == digest:
            return False
        if is_source(there):
            hint = "name another place: a source is never replaced"
            raise self._refused(name, "it is read by this command, and would be lost", hint)
        if entry is None:
            raise self._refused(name, "it was not written by allrail and would be lost")
        if found not in entry.sha256:
            raise self._refused(name, "it was changed since allrail wrote it, and would be lost")
        if not there.st_mode & 0o222:
            raise self._refused(name, "it is read-only")
        others = [one for one in entry.of if one != output]
        if output is not None and others:
            hint = "name another folder: this file is needed as it is"
            raise self._refused(name, f"it belongs to `{others[0]}`, and would be lost", hint)
        return True

    def of(self, output: str) -> list[str]:
        """Return the files of an output, by name.

        Args:
            output: Such as `results`.
        """
        return sorted(name for name, entry in self._files.items() if output in entry.of)

    def owners(self, name: str) -> list[str]:
        """Return the outputs that a file belongs to; none of a file that allrail did not write.

        Args:
            name: Its path in the folder.
        """
        entry = self._files.get(name)
        return [] if entry is None else entry.of

    def replace(
        self, made: Mapping[str, Path], *, output: str | None, complete: bool = True
    ) -> None:
        """Move files into the folder, and remove those of `output` that are not made again.

        All is checked before anything is moved.

        Args:
            made: By their path in the folder, where they are now; on the same file system.
            output: Which output they are; None for files that are named alone.
            complete: Whether they are all of it; else its other files stay.

        Raises:
            InputError: One of them must not be written.
        """
        digests = {name: _digest(place) for name, place in sorted(made.items())}
        moved = [
            name
            for name, digest in digests.items()
            if self.check(name, digest=digest, output=output)
        ]
        gone = self._stale(output, digests) if output is not None and complete else []
        final = {name: _Entry(list(e.of), list(e.sha256)) for name, e in self._files.items()}
        for name, digest in digests.items():
            if name in moved or name in self._files:
                entry = final.setdefault(name, _Entry())
                entry.sha256 = [digest]
                if output is not None and output not in entry.of:
                    entry.of = sorted([*entry.of, output])
        for name in gone:
            del final[name]
        between = final | {name: self._files[name] for name in gone}
        for name in moved:
            old = self._files[name].sha256 if name in self._files else []
            both = sorted({*old, *final[name].sha256})
            between = between | {name: _Entry(final[name].of, both)}
        if moved or gone:
            self._save(between)
        for name in moved:
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            made[name].replace(place)
        for name in gone:
            self._remove(name)
        self._save(final)

    def _stale(self, output: str, made: Mapping[str, str]) -> list[str]:
        """The files of `output` alone that are not made again, and may be removed."""
        gone = []
        for name in self.of(output):
            entry = self._files[name]
            if name in made:
                continue
            if entry.of == [output]:
                self.check(name, output=output)
                gone.append(name)
            else:
                entry.of.remove(output)
        return gone

    def _remove(self, name: str) -> None:
        place = self.folder / name
        place.unlink(missing_ok=True)
        if place.parent != self.folder:
            with contextlib.suppress(OSError):  # others have files in it
                place.parent.rmdir()

    def _check_parents(self, name: str) -> None:
        """Refuse a file whose folders within this one are links, or are none."""
        for parent in list(PurePosixPath(name).parents)[-2::-1]:
            place = self.folder / parent
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                raise self._refused(str(parent), "it is not a folder that allrail made")

    def _read(self, *, own: bool) -> tuple[str, dict[str, _Entry]]:
        try:
            there = self.path.lstat()
            usable = stat.S_ISREG(there.st_mode) and there.st_size <= _MAX_BYTES
            usable = usable and not (own and there.st_uid != os.getuid())
            text = self.path.read_text(encoding="utf-8") if usable else ""
            return text, _entries(json.loads(text))
        except FileNotFoundError:
            return "", {}
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise self._refused(self.path.name, "it is no list of files of allrail") from None

    def _save(self, files: Mapping[str, _Entry]) -> None:
        rows = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps({'of': one.of, 'sha256': one.sha256})}"
            for name, one in sorted(files.items())
        )
        head = f'"made_by": "{MADE_BY}",\n "schema_version": {_SCHEMA_VERSION}'
        text = f'{{\n {head},\n "files": {{\n{rows}\n }}\n}}\n' if files else ""
        if text == self._text:
            return
        if text:
            write_whole(self.path, text.encode())
        else:
            self.path.unlink(missing_ok=True)
        self._text = text
        self._files = {name: _Entry(list(e.of), list(e.sha256)) for name, e in files.items()}

    def _refused(self, name: str, why: str, hint: str = "") -> InputError:
        return InputError(
            why,
            source=self._option,
            value=str(self.folder / name),
            hint=hint or "name another place, or move that file away",
        )


def _entries(tree: Any) -> dict[str, _Entry]:
    """The files that a manifest names; KeyError, TypeError or ValueError where it is none."""
    if tree["made_by"] != MADE_BY or tree["schema_version"] != _SCHEMA_VERSION:
        raise ValueError("another program's")
    found = {}
    for name, entry in tree["files"].items():
        parts = PurePosixPath(name).parts
        plain = parts and not name.startswith("/") and not {"..", "."} & set(name.split("/"))
        texts = [*entry["of"], *entry["sha256"]]
        if not plain or "\0" in name or not all(isinstance(one, str) for one in texts):
            raise ValueError("no name of a file in its folder")
        found[name] = _Entry(list(entry["of"]), list(entry["sha256"]))
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step, whatever is there: for names that only allrail gives.

    Args:
        path: The file; its folder must be there.
        data: What it shall hold.

    Raises:
        OSError: It cannot be written.
    """
    staged = path.parent / f"{leftovers.PREFIX}{os.urandom(6).hex()}"
    leftovers.note(staged)
    try:
        with staged.open("xb") as file:
            file.write(data)
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    finally:
        leftovers.forget(staged)


def umask() -> int:
    """Return the bits of permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes of ours from moving files into a folder, where its file system can.

    Args:
        folder: It must be there.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class _Sources:
    """What a command has read: files, and patterns of files of a trace."""

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.patterns: set[tuple[Path, str]] = set()
        self._known: tuple[int, set[tuple[int, int]]] = (0, set())

    def has(self, there: os.stat_result) -> bool:
        count = len(self.files) + len(self.patterns)
        if self._known[0] != count:
            found = [*self.files]
            found += [one for folder, pattern in self.patterns for one in folder.glob(pattern)]
            known = set()
            for file in found:
                with contextlib.suppress(OSError, ValueError):
                    said = file.stat()
                    known.add((said.st_dev, said.st_ino))
            self._known = count, known
        return (there.st_dev, there.st_ino) in self._known[1]


_SOURCES: ContextVar[_Sources | None] = ContextVar("allrail_sources", default=None)


@contextmanager
def reading(files: Iterable[Path] = ()) -> Iterator[None]:
    """Remember what is read until the block ends: it is no target of what is written there.

    Blocks within one another are one.

    Args:
        files: Files that are read, as far as they are known.
    """
    outer = _SOURCES.get()
    token = _SOURCES.set(outer or _Sources())
    try:
        for file in files:
            note_source(file)
        yield
    finally:
        _SOURCES.reset(token)


def note_source(path: Path, *, pattern: str = "") -> None:
    """Remember that a file is read, if somebody wants to know.

    Args:
        path: The file, or a folder.
        pattern: Which files of the folder.
    """
    sources = _SOURCES.get()
    if sources is None:
        return
    if pattern:
        sources.patterns.add((path.absolute(), pattern))
    else:
        sources.files.add(path.absolute())


def note_trace(prefix: Path) -> None:
    """Remember that a Chakra trace is read: the files of its ranks and its process groups.

    Args:
        prefix: What the names of its files begin with.
    """
    name = glob.escape(prefix.name)
    for pattern in (f"{name}.*.et", f"{name}.ranks.json", "comm_group.json"):
        note_source(prefix.parent, pattern=pattern)


def is_source(there: os.stat_result) -> bool:
    """Return whether a file is read by what is under way.

    Args:
        there: What the system says of it.
    """
    sources = _SOURCES.get()
    return sources is not None and sources.has(there)
