"""Ctrl-C ends a command within a second, whatever it computes.

Python hears of a signal between two of its instructions, so a simulation or a picture that is one
long call into compiled code would hold it up. A thread that reads the signals as they come
(`signal.set_wakeup_fd`) gives the command `GRACE_S` to end by itself, which keeps what it has,
and ends the process then. Compiled code of ours lets go of Python's lock, so that the thread can.
Commands that handle the signal themselves (`launch`, `run`) are left alone.

Files that are being written are put in place whole at the end or not at all. Temporary ones and
workers end with the process (`allrail.base.leftovers`); a sweep's journal is written line by line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

from allrail.base import leftovers

GRACE_S = 0.6
"""How long a command has to end by itself."""
STATUS = 130
"""Of a command that Ctrl-C has ended: 128 and the signal's number."""


@contextlib.contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Within it, Ctrl-C ends the process after `GRACE_S` at the latest."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    over = threading.Event()
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch, args=(read, over), name="ctrl-c", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(write)  # the thread reads the end
        thread.join()
        os.close(read)


def end() -> NoReturn:
    """End the process here and now, with nothing left of it.

    Threads of ours may still compute, and Python would wait for them.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    leftovers.end_all()
    os._exit(STATUS)


def _watch(read: int, over: threading.Event) -> None:
    # Signals are the main thread's to take.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while signals := os.read(read, 64):
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if signal.SIGINT in signals and ours and not over.wait(GRACE_S):
            _end()


def _end() -> NoReturn:
    """End it in the words of `main`, from beside the work."""
    leftovers.end_all()
    with contextlib.suppress(OSError, ValueError):
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        os.write(2, f"{clear}interrupted\n".encode())
    os._exit(STATUS)
