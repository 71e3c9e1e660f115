"""An all-gather of arrays whose first axes differ: sizes first, then each rank's rows.

Every rank tells the others how many rows it has and what a row is. Then all know the sizes alike,
and so begin the same operations: one all-gather where all have as many, else a broadcast of each
rank's rows, at its place in the result. No byte is padding. (Horovod's coordinator puts the sizes
into its response; here operations meet by their names, and the sizes are one of them.)
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from allrail.base.errors import InputError
from allrail.runtime.arrays import made_like, view_of
from allrail.runtime.nodes import Asked, Calls, Memory
from allrail.runtime.operands import moved
from allrail.runtime.over import Over
from allrail.runtime.view import View


class Begin(Protocol):
    """Begins an operation of a kind in a memory, with a root and a name; returns its ticket."""

    def __call__(
        self, kind: str, memory: Memory, root: int, name: str | None, asked: Asked | None = None
    ) -> int:
        """Begin one."""


class Uneven(Over):
    """One all-gather of arrays of different lengths, under way.

    Its own thread waits for the sizes, since nobody else may be waiting.

    Args:
        calls: What carries operations.
        begin: How one begins.
        array: This rank's; it stays as it is.
        name: What the first operation is called on all ranks; None where it has its place.
        base: What the others' names begin with, alike on all ranks and of no other operation.
        place: This rank, and how many there are.

    Attributes:
        thread: Its own, which ends when nothing of it is under way any more.
    """

    def __init__(
        self,
        calls: Calls,
        begin: Begin,
        array: Any,
        *,
        name: str | None,
        base: str,
        place: tuple[int, int],
    ) -> None:
        super().__init__()
        self._calls, self._begin = calls, begin
        self._array, self._view, self._base = array, view_of(array), base
        self._rank, self._ranks = place
        self._said = np.zeros((self._ranks, 2), np.int64)
        self._said[self._rank] = _first(self._view), _row(self._view)
        said = view_of(self._said).memory()
        self._sizes = begin("all_gather", said, 0, name, Asked("uneven all_gather"))
        self._tickets: list[int] = []
        self._finish: Callable[[], Any] = lambda: None
        self._error: Exception | None = None
        self._begun = threading.Event()
        self.thread = threading.Thread(target=self._run, name="allrail all_gather", daemon=True)
        self.thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait, up to a number of seconds; return whether it is over, and raise if it failed."""
        end = time.monotonic() + timeout
        if not self._begun.wait(timeout):
            # Looks at the sizes itself, so that what is late is warned of here.
            self._calls.wait(self._sizes, 0.0)
            return False
        if self._error is not None:
            raise self._error
        return all(self._calls.wait(one, max(0.0, end - time.monotonic())) for one in self._tickets)

    def finish(self) -> Any:
        """Return the result; once it is over."""
        return self._finish()

    def _run(self) -> None:
        try:
            self._finish_all([self._sizes])
            self._gather()
            self._begun.set()
            self._finish_all(self._tickets)
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            self._error = error
        self._begun.set()
        self.tell_over()

    def _finish_all(self, tickets: list[int]) -> None:
        for ticket in tickets:
            self._calls.finish(ticket)

    def _gather(self) -> None:
        counts = [int(rows) for rows in self._said[:, 0]]
        self._check_rows()
        rest = self._view.shape[1:]
        every, self._finish = made_like(self._array, self._view, (sum(counts), *rest))
        row = math.prod(rest) * self._view.width
        starts = [sum(counts[:rank]) for rank in range(self._ranks)]
        mine = self._view.nbytes
        if mine:
            every.copy_from(self._view, at=starts[self._rank] * row, nbytes=mine)
        if len(set(counts)) == 1:
            self._tickets.append(self._begin("all_gather", moved(every), 0, self._base))
            return
        for root, (start, count) in enumerate(zip(starts, counts, strict=True)):
            if count * row:
                part = replace(
                    every,
                    pointer=every.pointer + start * row,
                    shape=(count, *rest),
                    keeps=(every.keeps, self._finish),
                )
                name = f"{self._base} {root}"
                self._tickets.append(self._begin("broadcast", moved(part), root, name))

    def _check_rows(self) -> None:
        """All ranks see the same, and refuse it alike."""
        for rank, kind in enumerate(self._said[:, 1]):
            if kind != self._said[0, 1]:
                mine = f"{self._view.dtype} of shape {(*self._view.shape[1:],)}"
                raise InputError(
                    f"rank {rank}'s rows are of another type or shape than rank 0's",
                    field="array",
                    value=f"rows of {mine} here",
                    hint="only the first axis of `all_gather(..., uneven=True)` may differ",
                )


def _first(view: View) -> int:
    return view.shape[0] if view.shape else 1


def _row(view: View) -> int:
    """A number for the type and the shape of a row."""
    told = repr((view.dtype, view.shape[1:], bool(view.shape))).encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:7], "big")
