"""An operation of a communicator that is under way, as its caller sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from allrail.base.arguments import Kind, check
from allrail.base.errors import TrainingError
from allrail.runtime.message import Message

SECONDS = Kind(
    lambda value: isinstance(value, (int, float)) and value >= 0, "a number of seconds", "60.0"
)


class Handle:
    """An operation that is under way."""

    def __init__(
        self,
        under_way: Callable[[float], bool],
        timeout: float,
        name: str,
        finish: Callable[[], Any],
        after: Callable[[], None] | None,
        message: Message | None = None,
    ) -> None:
        self._under_way = under_way
        self._timeout = timeout
        self._name = name
        self._finish = finish
        self._after = after
        self._message = message
        self._lock = threading.Lock()
        self._over = False
        self._result: Any = None

    @property
    def source(self) -> int | None:
        """Of a message: the rank that has sent it; None while that is not known."""
        return None if self._message is None else self._message.source

    def done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        try:
            return self._over or self._under_way(0.0)
        except TrainingError:
            return True

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result, when the operation is over; what was written in place is, too.

        Args:
            timeout: Seconds after which it is given up; that of the communicator if None.

        Raises:
            TrainingError: It never will be: a rank has ended, or begins something else; or it is
                given up. The array may then hold anything.
        """
        if timeout is not None:
            check("timeout", timeout, kind=SECONDS)
        with self._lock:
            if not self._over:
                self._complete(self._timeout if timeout is None else timeout)
                if self._after is not None:
                    self._after()
                self._result = self._finish()
                self._over = True
            return self._result

    def _complete(self, timeout: float) -> None:
        # Long before, the node warns of whom it waits for, and ends the job at `timeouts.stalled`.
        if self._under_way(timeout):
            return
        raise TrainingError(
            f"it is not over after {timeout:g} s",
            field=self._name,
            hint="look for a rank that does not begin it: each begins the same operations",
        )
