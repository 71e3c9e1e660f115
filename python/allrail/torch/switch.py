"""Exchanging a scheduled model for another one of the same model, in the middle of training.

It is done at the beginning of a forward pass, when all ranks have closed as many rounds: gradients
are there, all steps are made, and what comes next is as if the model had just been scheduled. Who
decides when, and for what, is a `Switch`: `tune.Tune`, `replan.Replan`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from allrail.runtime.agreement import Agreement
from allrail.torch.scheduled import Scheduled
from allrail.torch.ways import Way


class Maker(Protocol):
    """Schedules the model of a `Switch` as often as that asks for it."""

    def make(self, way: Way, agreement: Agreement, switch: Switch) -> Scheduled:
        """Schedule the model for a way to exchange gradients."""

    def agree(self, number: int) -> Agreement:
        """Return the agreement of the n-th that is made."""

    def install(self, made: Scheduled, /) -> None:
        """Take one in the place of the one before."""


class Switch:
    """Puts one scheduled model in the place of another.

    Args:
        maker: Schedules the model.

    Attributes:
        goes_on: Whether the model was scheduled before, so that ranks are alike.
        said: What came of it, in a line; empty before.
    """

    def __init__(self, maker: Maker) -> None:
        self.goes_on = False
        self.said = ""
        self._maker = maker
        self._made = 0
        self._rounds = 0
        self._agreement: Agreement
        self._now: Scheduled
        self._way: Way

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward passes exchange nothing, whichever is installed then."""
        before, self._now.exchange.synchronised = self._now.exchange.synchronised, False
        try:
            yield
        finally:
            self._now.exchange.synchronised = before

    def other(self) -> Scheduled | None:
        """A forward pass begins: return what is now in the place of the one that asks, if any."""
        raise NotImplementedError

    def _say(self, line: str) -> None:
        """Keep what came of it; rank 0 prints it, as whoever asks for a switch wants to know."""
        self.said = f"{self.said}; {line}" if self.said else line
        if self._agreement.rank == 0:
            print(f"allrail: {line}", file=sys.stderr)  # noqa: T201

    def _begin(self, way: Way) -> Scheduled:
        before = self._now if self.goes_on else None
        if before is not None:
            before.release()
        self._way = way
        self._agreement = self._maker.agree(self._made)
        self._made += 1
        self._now = self._maker.make(way, self._agreement, self)
        if before is not None:
            self._now.exchange.synchronised = before.exchange.synchronised
            self._now.barriers.counts.update(before.barriers.counts)
            self._now.passes.made = before.passes.made
        self.goes_on = True
        self._maker.install(self._now)
        return self._now
