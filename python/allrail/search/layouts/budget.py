"""How long a search may take, and what ends it before."""

from __future__ import annotations

import time
from copy import copy


class Stopped(Exception):  # noqa: N818, it is no mistake
    """The time is over; its text says so."""


class Budget:
    """Seconds from now on; without a limit where None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._share = 1.0
        self._started = time.monotonic()

    def first(self, share: float) -> Budget:
        """Return the first part of it, for work that more follows.

        Args:
            share: How much of it.
        """
        part = copy(self)
        part._share = share * self._share
        return part

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self._seconds is not None

    @property
    def used(self) -> float:
        """The part that is over; 0 without a limit."""
        if self._seconds is None:
            return 0.0
        return (time.monotonic() - self._started) / max(self._share * self._seconds, 1e-9)

    @property
    def words(self) -> str:
        """What ended it."""
        return f"the time budget of {self._seconds:g} s is over"

    def look(self, done: float, total: int) -> None:
        """Stop what is under way if the time is over.

        Args:
            done: Ignored; it is called as progress is.
            total: The same.

        Raises:
            Stopped: It is.
        """
        del done, total
        if self.used > 1:
            raise Stopped(self.words)
