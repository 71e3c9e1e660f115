"""A training command with recording on, and what its ranks have recorded: `allrail.run`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from allrail.base.arguments import PathLike, check, checked
from allrail.base.errors import AllrailWarning, InputError
from allrail.base.files import check_target, explained
from allrail.results.answer import renderers
from allrail.results.table import Table
from allrail.runtime import record
from allrail.runtime.launch import COMMAND
from allrail.runtime.record import Record
from allrail.runtime.report import Report, report_of

_LOOK_S = 1.0
_SI_KERNEL = 0x80  # of <asm-generic/siginfo.h>: it came from the system, not from a process
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Recorded(Table):
    """What the ranks of a command have recorded: a row a rank.

    Attributes:
        status: The exit status of the command.
        trace: The file for ui.perfetto.dev; it is there if a rank has recorded anything.
        records: Of all ranks.
        reports: What each rank's step is made of.
    """

    kind: ClassVar[str] = "recorded"
    PLOTTED: ClassVar[tuple[str, str]] = ("rank", "step_ms")
    status: int
    trace: Path
    records: tuple[Record, ...]
    reports: tuple[Report, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a rank."""
        return [one.to_json() for one in self.reports]

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        return {"ranks": self.rows}

    @property
    def exit_status(self) -> int:
        """That of the command."""
        return self.status


@checked
def run(command: Sequence[str], *, trace: PathLike) -> Recorded:
    """Run a training command with recording on, and say what its step is made of.

    The script stays as it is: it calls `allrail.torch.schedule`. What it prints goes to the
    terminal; signals are passed on.

    Args:
        command: The program and its arguments, such as `["torchrun", ..., "train.py"]`.
        trace: Folder for what ranks record, and for `trace.json.gz`; all ranks must see it.

    Returns:
        What each rank has recorded, and the exit status of the command.

    Raises:
        InputError: There is no such command, or the folder cannot be written.

    Warns:
        AllrailWarning: No rank has recorded anything.

    Example:
        `allrail.run(["torchrun", "--nproc-per-node", "4", "train.py"], trace="rec").rows`
    """
    check("command", command, kind=COMMAND)
    folder = Path(trace)
    if shutil.which(command[0]) is None:
        raise InputError(
            "there is no such command",
            field="CMD",
            value=command[0],
            hint="write the command as in a shell, such as `allrail run --trace out torchrun"
            " --nproc-per-node 4 train.py`",
        )
    file = folder / "trace.json.gz"
    with explained(folder, "--trace"):
        folder.mkdir(parents=True, exist_ok=True)
    check_target(file, option="--trace")
    others = record.clear(folder)
    status = _run(tuple(command), {**os.environ, "ALLRAIL_TRACE": str(folder.absolute())})
    found = record.read(folder, without=others)
    recorded = Recorded(status, file, tuple(found), tuple(report_of(one) for one in found))
    if not found:
        text = (
            "no rank has written a record: nothing called `allrail.torch.schedule` in two"
            " processes or more, or ranks were killed"
        )
        warnings.warn(text, AllrailWarning, stacklevel=3)
    else:
        with record.whole(folder):
            renderers().write(recorded, folder)
    return recorded


def _run(words: tuple[str, ...], environment: dict[str, str]) -> int:
    """Run it to its end, and return its status as a shell does."""
    child = subprocess.Popen(words, env=environment)  # noqa: S603 - it is what was asked for
    # Blocked, they wait to be asked for, with who has sent them. The child began without that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        while (status := child.poll()) is None:
            told = signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, _LOOK_S)
            if told is not None and told.si_signo in _PASSED_ON and not _reached_both(told):
                child.send_signal(told.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return status if status >= 0 else 128 - status


def _reached_both(told: signal.struct_siginfo) -> bool:
    """Whether it is a terminal's Ctrl-C, which all processes of the terminal's foreground get."""
    return told.si_signo == signal.SIGINT and told.si_code == _SI_KERNEL
