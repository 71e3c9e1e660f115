"""A switch that measures: so many steps of a way that do not count, then so many that do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from allrail.torch.switch import Switch
from allrail.torch.ways import Way

if TYPE_CHECKING:
    from allrail.torch.scheduled import Scheduled

WARM = 2
"""Steps of a way before it is measured; the first one only looks."""
STEPS = 10
"""Steps of a way that are measured."""


class Timed(Switch):
    """Asks for another way whenever one was measured, until something is said."""

    _since: float
    _steps: list[float]

    def other(self) -> Scheduled | None:
        """See `Switch.other`."""
        exchange = self._now.exchange
        # What this rank has accumulated and not exchanged stays with the way that has counted it.
        if self.said or exchange.partial or exchange.rounds == self._rounds:
            return None
        now = time.perf_counter()
        if self._rounds >= WARM:
            self._steps.append((now - self._since) / (exchange.rounds - self._rounds))
        self._rounds, self._since = exchange.rounds, now
        if exchange.rounds < WARM + STEPS or not self._steps:
            return None
        self._now.synchronize()
        return self._measured(self._steps)

    def _measured(self, steps: list[float]) -> Scheduled | None:
        """A way was measured: return what is now in its place, if another one is.

        Args:
            steps: How long each took on this rank, s.
        """
        raise NotImplementedError

    def _begin(self, way: Way) -> Scheduled:
        self._rounds, self._since = 0, 0.0
        self._steps = []
        return super()._begin(way)
