"""One call of a function that may raise, loop or be unwanted before it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from allrail.plugins.answer import read
from allrail.plugins.problem import Problem

LOOK_S = 0.02
"""How often who waits for an answer looks whether it is still wanted."""
_LOOKS_AT_THE_END = 10
"""For how many looks a function that is stopped is waited for."""


class _StopError(SystemExit):
    """Raised inside a function that is no longer waited for; a thread ends by it without a word."""


class Call(threading.Thread):
    """One call of a function. Whoever gave up waiting for it leaves it behind: it is a daemon."""

    def __init__(self, function: Callable[..., Any], problem: Problem) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.problem = problem
        self.answer: list[list[tuple[str, int]]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call it and read what it returns, which may run its code, too."""
        try:
            self.answer = read(self.function(self.problem), self.problem)
        except BaseException as error:  # noqa: BLE001, whatever it is is told
            self.error = error

    def stop(self) -> None:
        """Raise something in it, again if it goes on; leave it alone if it cannot be reached."""
        import ctypes

        for _ in range(_LOOKS_AT_THE_END):
            raised = ctypes.py_object(_StopError)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), raised)
            self.join(LOOK_S)
            if not self.is_alive():
                return
