"""What must not outlive a command: folders and files that are temporary, and processes that help.

    with folder(beside) as staged: ...   # gone when the block ends, however it ends
    note(path); forget(path)             # of a file that is about to be renamed
    note_made(path)                      # of a folder that goes where nothing came into it
    end_all()                            # what a command that is ended from outside calls

Whoever makes such a thing removes it himself. Ctrl-C may end a process whose work is one long call
that cannot be broken off (`allrail.cli.interrupt`): then nothing of the work runs any more, and
this list says what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

PREFIX = ".allrail-"
"""What names of temporary files and folders beside other files begin with."""

_PATIENCE_S = 0.2
_paths: dict[Path, bool] = {}  # whether what is in it goes, too
_processes: dict[subprocess.Popen[Any], None] = {}


@contextmanager
def folder(beside: Path | None = None) -> Iterator[Path]:
    """Make an empty folder, which is gone with all that is in it when the block ends.

    Args:
        beside: The folder that it is made in; that of the system's temporary files if None.

    Yields:
        The folder.

    Raises:
        OSError: It cannot be made.
    """
    hidden = PREFIX if beside is not None else PREFIX.removeprefix(".")
    made = (beside or Path(tempfile.gettempdir())) / f"{hidden}{os.urandom(6).hex()}"
    # Noted first: an interruption may come between any two lines.
    note(made)
    try:
        made.mkdir(mode=0o700)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        forget(made)


def note(path: Path) -> None:
    """Remember a file or a folder that is temporary, with all that is in it.

    Args:
        path: It need not be there yet.
    """
    _paths[path.absolute()] = True


def note_made(path: Path) -> None:
    """Remember a folder that stays once something is in it.

    Args:
        path: It need not be there yet.
    """
    _paths[path.absolute()] = False


def forget(path: Path) -> None:
    """Forget one that is gone, or stays.

    Args:
        path: As it was noted.
    """
    _paths.pop(path.absolute(), None)


def note_process(process: subprocess.Popen[Any]) -> None:
    """Remember a process that works for this one alone.

    Args:
        process: It was started by this process.
    """
    _processes[process] = None


def forget_process(process: subprocess.Popen[Any]) -> None:
    """Forget one that has ended.

    Args:
        process: As it was noted.
    """
    _processes.pop(process, None)


def end_all() -> None:
    """Kill the processes and remove the files. Others may still write: so each is renamed first."""
    for process in list(_processes):
        process.kill()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and any(process.poll() is None for process in list(_processes)):
        time.sleep(_PATIENCE_S / 100)
    # Folders within others were noted later.
    for path, whole in reversed(list(_paths.items())):
        with contextlib.suppress(OSError):
            if not whole:
                path.rmdir()
                continue
            gone = path.rename(path.with_name(f"{path.name}-gone"))
            if gone.is_file():
                gone.unlink()
            else:
                shutil.rmtree(gone, ignore_errors=True)
