"""What is over at some time, and tells those who asked."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Over:
    """Is over once `tell_over` was called, from any thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._telling = threading.Lock()
        self._told: list[Callable[[], None]] = []

    def when_over(self, told: Callable[[], None]) -> None:
        """Have something called, at once if it is over.

        Args:
            told: Called from any thread.
        """
        with self._telling:
            if not self._over.is_set():
                self._told.append(told)
                return
        told()

    def tell_over(self) -> None:
        """It is over."""
        with self._telling:
            self._over.set()
        for told in self._told:
            told()
