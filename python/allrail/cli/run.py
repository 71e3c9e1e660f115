"""`allrail run`: a training command with recording on, and what its ranks have recorded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import click

from allrail.base.units import show_count
from allrail.cli import options

_LOOK_S = 1.0
_SI_KERNEL = 0x80  # of <asm-generic/siginfo.h>: it came from the system, not from a process
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--trace",
    "folder",
    type=options.Output(file_okay=False),
    metavar="DIR",
    required=True,
    help="Where ranks write what they record, and where `trace.json.gz` is put; all must see it",
)
@options.as_json
@click.argument("words", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(*, folder: Path, as_json: bool, words: tuple[str, ...]) -> None:
    """Run CMD, such as `torchrun ... train.py`, and print what its step is made of.

    The script stays as it is: it calls `allrail.torch.schedule`. Signals are passed on, and the
    exit status is that of CMD. Afterwards DIR has `trace.json.gz` for ui.perfetto.dev, one process
    a rank. With --json the reports of all ranks are printed as data.
    """
    from allrail.base.errors import InputError
    from allrail.base.files import check_target, explained, write_bytes
    from allrail.cli import output
    from allrail.output.record_trace import trace_gzip
    from allrail.runtime import record
    from allrail.runtime.report import report_of

    if shutil.which(words[0]) is None:
        raise InputError(
            "there is no such command",
            field="CMD",
            value=words[0],
            hint="write the command as in a shell, such as `allrail run --trace out torchrun"
            " --nproc-per-node 4 train.py`",
        )
    trace = folder / "trace.json.gz"
    with explained(folder, "--trace"):
        folder.mkdir(parents=True, exist_ok=True)
    check_target(trace, option="--trace")
    others = record.clear(folder)
    status = _run(words, {**os.environ, "ALLRAIL_TRACE": str(folder.absolute())})
    found = record.read(folder, without=others)
    if not found:
        output.warn(
            "no rank has written a record: nothing called `allrail.torch.schedule` in two"
            " processes or more, or ranks were killed"
        )
    else:
        with record.whole(folder):
            write_bytes(trace, trace_gzip(found), option="--trace")
            if as_json:
                output.print_json({"ranks": [report_of(one).to_json() for one in found]})
            else:
                for model in sorted({one["model"] for one in found}):
                    output.text(str(report_of(next(one for one in found if one["model"] == model))))
                output.note(
                    f"{show_count(len(found), 'record')} in {trace}: open it at ui.perfetto.dev"
                )
    if status:
        raise SystemExit(status)


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
