"""One call of a function that may raise, loop or be unwanted before it answers.

`Call` runs in a thread of its own and can be left behind; that costs 0.1 ms, and many milliseconds
on a machine that is busy. What is asked thousands of times runs in the thread of who asks (`here`),
and another one watches the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOOK_S = 0.02
"""How often who waits for an answer looks whether it is still wanted."""
_LOOKS_AT_THE_END = 10
"""For how many looks a function that is stopped is waited for."""


class _StopError(SystemExit):
    """Raised inside a function that is no longer waited for; a thread ends by it without a word."""


class Call(threading.Thread):
    """One call of a function. Whoever gave up waiting for it leaves it behind: it is a daemon.

    Args:
        function: Calls it and reads what it returns, which may run its code, too.

    Attributes:
        answer: What that gave.
        error: What was raised instead.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call it."""
        try:
            self.answer = self.function()
        except BaseException as error:  # noqa: BLE001, whatever it is is told
            self.error = error

    def stop(self) -> None:
        """Raise something in it, again if it goes on; leave it alone if it cannot be reached."""
        for _ in range(_LOOKS_AT_THE_END):
            _raise_in(self.ident or 0, _StopError)
            self.join(LOOK_S)
            if not self.is_alive():
                return


class LateError(Exception):
    """A function in the thread of who asks had to be ended: its time was over."""


class UnwantedError(Exception):
    """A function in the thread of who asks had to be ended: nobody wants its answer any more."""


@dataclass
class _Asked:
    """A call in the thread of who asks."""

    ident: int
    end: float
    stopped: Callable[[], bool]
    over: type[Exception] | None = None


_watched: _Asked | None = None
_watching = threading.Lock()
"""Held by who changes what is watched, and by who raises in it."""
_watcher: threading.Thread | None = None
_IDLE_S = 1.0
"""Seconds after which a watcher with nothing to watch ends."""


def here(call: Callable[[], Any], limit_s: float, stopped: Callable[[], bool]) -> Any:
    """Return what a call gives, made in this thread; one at a time.

    Args:
        call: What is called.
        limit_s: Seconds that it may take. Python code is ended soon after; other code when it is
            back in Python.
        stopped: Whether nobody wants the answer any more.

    Raises:
        LateError: Its time was over.
        UnwantedError: Nobody wants the answer any more.
    """
    asked = _Asked(threading.get_ident(), time.monotonic() + limit_s, stopped)
    _watch(asked)
    try:
        try:
            answer = call()
        finally:
            _leave(asked)
    except _StopError:
        _leave(asked)
        answer = None
    if asked.over is not None:
        raise asked.over
    return answer


def _watch(asked: _Asked) -> None:
    global _watched, _watcher  # noqa: PLW0603, one function of somebody's runs at a time
    with _watching:
        _watched = asked
        if _watcher is None:
            _watcher = threading.Thread(target=_look, daemon=True)
            _watcher.start()


def _leave(asked: _Asked) -> None:
    """From now on nothing is raised in this thread."""
    global _watched  # noqa: PLW0603
    over = False
    while not over:
        with contextlib.suppress(_StopError), _watching:
            _watched = None
            _raise_in(asked.ident, None)
            over = True


def _look() -> None:
    """Raise in who takes too long or is not wanted, again if it goes on."""
    global _watcher  # noqa: PLW0603
    idle_since = time.monotonic()
    pause = LOOK_S
    while True:
        time.sleep(pause)
        with _watching:
            pause = LOOK_S
            now = time.monotonic()
            if _watched is None:
                if now - idle_since > _IDLE_S:
                    _watcher = None
                    return
                continue
            idle_since = now
            if _watched.over is None and _watched.stopped():
                _watched.over = UnwantedError
            elif _watched.over is None and now > _watched.end:
                _watched.over = LateError
            if _watched.over is not None:
                _raise_in(_watched.ident, _StopError)
                # Who catches all that is raised in a loop is outside of its `try` now and then.
                pause = LOOK_S / 40


def _raise_in(ident: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread when it runs Python next; None takes back what did not yet."""
    raised = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), raised)
