"""Files that are written whole or not at all.

What is no plain file, such as `/dev/full` or a pipe, is written as it is: it cannot be replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allrail.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write a file in one step: beside it first, then renamed.

    Args:
        path: The file; its folder is made.
        text: What it shall hold.

    Raises:
        InputError: It cannot be written.
    """
    import tempfile

    with _explained(path, "--out"):
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        staged = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            staged.chmod(0o666 & ~_umask())
            staged.replace(path)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise


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
        InputError: It cannot be written.
    """
    write_text(path, yaml_text(tree))


@contextmanager
def staged_folder(path: Path, *, ours: Iterable[str] = (), option: str = "--out") -> Iterator[Path]:
    """Give an empty folder whose files move to `path` at the end, and vanish if that fails.

    Two that move their files to one folder do so one after the other, so that it holds those of
    one of them.

    Args:
        path: Where the files shall be; other files there stay.
        ours: Patterns of files of an earlier run: they go where this one does not make them.
        option: Which option named `path`.

    Yields:
        The folder to write to.

    Raises:
        InputError: `path` is a file or cannot be written.
    """
    import shutil
    import tempfile

    with _explained(path, option):
        if path.exists() and not path.is_dir():
            raise InputError("it is a file", source=option, value=str(path), hint="name a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        staged.chmod(0o777 & ~_umask())
    try:
        with _explained(path, option):
            yield staged
            path.mkdir(exist_ok=True)
            with _alone(path):
                made = {entry.relative_to(staged) for entry in staged.rglob("*")}
                _move_into(staged, path)
                for entry in [entry for pattern in ours for entry in path.glob(pattern)]:
                    if entry.relative_to(path) not in made:
                        entry.unlink()
                        if entry.parent != path and not any(entry.parent.iterdir()):
                            entry.parent.rmdir()
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes of ours from moving files into a folder, where the system can."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _move_into(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir():
            place.mkdir(exist_ok=True)
            _move_into(entry, place)
        else:
            entry.replace(place)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _explained(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"it cannot be written: {error.strerror or error}",
            source=option,
            value=str(path),
            hint="name a place where you may write and that has room",
        ) from None
