"""Each value of one knob once, on the running job: for a knob of few values. No clock, no I/O."""

from __future__ import annotations

from typing import Any

from allrail.search.tuning.live import Next
from allrail.search.tuning.space import Knob


class Each:
    """A `live.Search` that tries each value once; the first of them is the start.

    Args:
        knob: What is turned.
        plain: The value that stays where no other gains enough.
        least: What another one has to gain, of the time with `plain`.
    """

    def __init__(self, knob: Knob, *, plain: Any, least: float) -> None:
        self._knob, self._plain, self._least = knob, plain, least
        self._times: dict[Any, float] = {}

    def told(self, time: float, error: float) -> Next:
        """See `live.Search`."""
        del error
        values = self._knob.values
        self._times[values[len(self._times)]] = time
        over = len(self._times) == len(values)
        following = self.best if over else values[len(self._times)]
        return Next({} if following == values[0] else {self._knob.path: following}, over=over)

    @property
    def best(self) -> Any:
        """The value that stays."""
        best = min(self._times, key=lambda value: self._times[value])
        plain = self._times.get(self._plain)
        if plain is None or self._times[best] < plain * (1 - self._least):
            return best
        return self._plain

    @property
    def said(self) -> str:
        """See `live.Search`."""
        best = self.best
        kept = "the fastest"
        if self._times[best] > min(self._times.values()):
            kept = f"no other is faster by {100 * self._least:.0f} %"
        rest = ", ".join(f"`{one}` {self._times[one]:.2f}" for one in self._times if one != best)
        return f"{self._knob.path} `{best}`, {kept}: {self._times[best]:.2f} ms a step; {rest}"
