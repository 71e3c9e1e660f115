"""Files that are written whole or not at all, and only over files that allrail wrote.

What may be replaced is decided in `allrail.base.manifest`. What is no plain file, such as
`/dev/full` or a pipe, is written as it is: it cannot be replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allrail.base import leftovers
from allrail.base.errors import InputError
from allrail.base.manifest import Manifest, locked, umask, write_whole

_MAX_NAME_BYTES = 200
"""A file system takes 255; endings are added."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_text(path: Path, text: str, *, option: str = "--out") -> None:
    """Write a file in one step: beside it first, then renamed.

    Args:
        path: The file; its folder is made.
        text: What it shall hold.
        option: Which option named it.

    Raises:
        InputError: It cannot be written, or would replace a file that allrail did not write.
    """
    write_bytes(path, text.encode(), option=option)


def write_bytes(
    path: Path, data: bytes, *, option: str = "--out", output: str | None = None
) -> None:
    """Write a file in one step, as `write_text` does.

    Args:
        path: The file; its folder is made.
        data: What it shall hold.
        option: Which option named it.
        output: Which output it is a part of, if any; other files of it stay.

    Raises:
        InputError: It cannot be written, or would replace a file that allrail did not write.
    """
    check_target(path, option=option)
    with explained(path, option):
        if _is_device(path):
            path.write_bytes(data)
            return
        with _inside(path.parent) as staged:
            (staged / path.name).write_bytes(data)
            with locked(path.parent):
                Manifest(path.parent, option=option).replace(
                    {path.name: staged / path.name}, output=output, complete=False
                )


def yaml_text(tree: Mapping[str, Any]) -> str:
    """Return a tree as a file of ours that people edit: keys in their order, one a line.

    Args:
        tree: Plain values.
    """
    import yaml

    return str(yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True))


def write_yaml(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree as a YAML file, in one step.

    Args:
        path: The file; its folder is made.
        tree: Plain values.

    Raises:
        InputError: It cannot be written, or would replace a file that allrail did not write.
    """
    write_text(path, yaml_text(tree))


@contextmanager
def staged_folder(
    path: Path, output: str, *, option: str = "--out", foreign: Iterable[str] = ()
) -> Iterator[Path]:
    """Give an empty folder whose files move to `path` at the end, and vanish if that fails.

    Files of an earlier run of the same output that this one does not make are removed. Two that
    move their files to one folder do so one after the other.

    Args:
        path: Where the files shall be; files of others stay.
        output: What the files are together, such as `results` or `trace gpt`.
        option: Which option named `path`.
        foreign: Patterns of files that would be taken for a part of the output: there must be none
            that allrail did not write.

    Yields:
        The folder to write to.

    Raises:
        InputError: `path` is a file or cannot be written, or a file is in the way that allrail did
            not write.
    """
    check_folder(path, option=option)
    with explained(path, option), _inside(path) as staged:
        yield staged
        made = {
            entry.relative_to(staged).as_posix(): entry
            for entry in staged.rglob("*")
            if not entry.is_dir()
        }
        with locked(path):
            manifest = Manifest(path, option=option)
            for entry in sorted(found for pattern in foreign for found in path.glob(pattern)):
                if entry.name not in made and output not in manifest.owners(entry.name):
                    raise InputError(
                        "it would be taken for a part of what is written, and is none",
                        source=option,
                        value=str(entry),
                        hint="name another folder, or move that file away",
                    )
            manifest.replace(made, output=output)


def remove(folder: Path, output: str, *, option: str) -> None:
    """Remove the files of an output, and no others.

    Args:
        folder: Where they are.
        output: As it was written.
        option: Which option named the folder.

    Raises:
        InputError: One of them was changed since, or cannot be removed.
    """
    with explained(folder, option), locked(folder):
        Manifest(folder, option=option).replace({}, output=output)


def write_cached(path: Path, text: str) -> None:
    """Write a file of the cache, whose name is a hash of what it is of.

    Args:
        path: The file; its folder is made.
        text: What it shall hold.

    Raises:
        InputError: It cannot be written.
    """
    with explained(path, "cache"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())


def check_folder(path: Path, *, option: str) -> None:
    """Refuse a folder that is a file.

    Args:
        path: The folder; it need not be there.
        option: Which option named it.

    Raises:
        InputError: It is a file.
    """
    _check_text(path, option)
    with explained(path, option):
        if path.exists() and not path.is_dir():
            raise InputError("it is a file", source=option, value=str(path), hint="name a folder")


def check_target(path: Path, *, option: str) -> None:
    """Refuse a file that may not be written, before anything is computed.

    Args:
        path: The file; its folder need not be there.
        option: Which option named it.

    Raises:
        InputError: It is a folder, or a file that allrail did not write.
    """
    _check_text(path, option)
    with explained(path, option):
        if path.is_dir():
            raise InputError("it is a folder", source=option, value=str(path), hint="name a file")
        if path.parent.is_dir() and not _is_device(path):
            Manifest(path.parent, option=option).check(path.name)


def check_name(name: str, *, option: str = "--name") -> str:
    """Return a name that files may begin with: it is no path, and hides nothing.

    Args:
        name: As it was given.
        option: What gave it.

    Raises:
        InputError: It is empty, too long, begins with a dot, or has a separator or a control
            character.
    """
    why = ""
    if not name:
        why = "it is empty"
    elif "/" in name or "\\" in name:
        why = "it is a path, and a name is wanted"
    elif name.startswith("."):
        why = "it begins with a dot"
    elif not name.isprintable():
        why = "it has a character that cannot be printed"
    elif len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
        why = f"it is longer than {_MAX_NAME_BYTES} bytes"
    if why:
        raise InputError(
            why, source=option, value=name, hint="give a plain name, such as `--name gpt`"
        )
    return name


@contextmanager
def explained(path: Path, option: str) -> Iterator[None]:
    """Turn what the system refuses into a message.

    Args:
        path: What is written.
        option: Which option named it.

    Raises:
        InputError: In place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"it cannot be written: {error.strerror or error}",
            source=option,
            value=str(path),
            hint="name a place where you may write and that has room",
        ) from None


@contextmanager
def _inside(folder: Path) -> Iterator[Path]:
    """An empty folder within `folder`, which is made; what was made goes where the work fails."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(made):
        leftovers.note_made(one)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with leftovers.folder(folder) as staged:
            staged.chmod(0o777 & ~umask())
            try:
                yield staged
            except OSError as error:
                if error.errno in _FULL:
                    _name_last(error, staged)
                raise
    except BaseException:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()
        raise
    finally:
        for one in made:
            leftovers.forget(one)


def _name_last(error: OSError, staged: Path) -> None:
    """Say in an error which file there was no room for: the one that was written last."""
    files = [entry for entry in staged.rglob("*") if entry.is_file()]
    if files:
        last = max(files, key=lambda entry: entry.stat().st_mtime_ns)
        error.strerror = f"{error.strerror} (at `{last.relative_to(staged)}`)"


def _is_device(path: Path) -> bool:
    """Whether a file is there that is none of a disk: a device, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _check_text(path: Path, option: str) -> None:
    try:
        whole = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half a character
        whole = False
    if not whole:
        raise InputError(
            "no file can have this name", source=option, value=str(path), hint="name another"
        )
