"""A running job is tuned: `schedule(..., tune=True)`.

The knobs are a node's: `partition`; `send_ahead`, where gradients travel over allrail's own
transport; `chunks`, where there is more than one dimension. Each trial is `timed.WARM` steps that
do not count and `timed.STEPS` that do. Of each rank the median counts, and of these that of the
slowest rank. What is tried next is decided on rank 0 (`tuning.live`) and told to all, which change
at the same step; parameters are those of any one setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from allrail.runtime.agreement import Agreement
from allrail.search.tuning.live import Live, typical
from allrail.search.tuning.searcher import Searcher
from allrail.search.tuning.space import Knob, ladder
from allrail.torch.scheduled import Scheduled
from allrail.torch.switch import Maker, Way
from allrail.torch.timed import STEPS, WARM, Timed


def knobs(*, dimensions: int, native: bool) -> tuple[Knob, ...]:
    """Return what is turned.

    Args:
        dimensions: Of the network.
        native: Whether gradients travel over allrail's own transport.
    """
    names = ["partition"]
    names += ["send_ahead"] if native else []
    names += ["chunks"] if dimensions > 1 else []
    return tuple(Knob(name, ladder(name)) for name in names)


class Tune(Timed):
    """Tries settings one after the other, and goes on with the best.

    Args:
        way: How gradients are exchanged; it stays.
        space: What is turned.
        agreement: Among all ranks; another one than those of the maker.
        maker: As of `Switch`.

    Raises:
        InputError: Optuna is not installed on rank 0; on all ranks.
    """

    def __init__(
        self,
        way: Way,
        space: tuple[Knob, ...],
        agreement: Agreement,
        maker: Maker,
    ) -> None:
        super().__init__(maker)
        self._start = way
        self._trials = agreement
        self._live, _ = agreement.together(
            "tune",
            lambda: Live(Searcher(space, noisy=True)) if agreement.rank == 0 else None,
        )
        self._sets: Mapping[str, Any] = {}
        self._tried = 0
        self._begin(way)

    def _measured(self, steps: list[float]) -> Scheduled | None:
        self._tried += 1
        told = self._trials.on(f"trial {self._tried}", typical(steps), self._decide)
        if told["over"]:
            self._say(_said(told, self._tried))
        if told["sets"] == self._sets:
            return None if told["over"] else self._begin(self._way)
        self._sets = told["sets"]
        way = replace(self._start, settings={**self._start.settings, **self._sets})
        return self._begin(way)

    def _decide(self, said: Sequence[Sequence[float]]) -> dict[str, Any]:
        """On rank 0: of all ranks' trials, what is next."""
        if self._live is None:
            raise RuntimeError("rank 0 decides")
        time, error = (1e3 * max(each) for each in zip(*said, strict=True))
        following = self._live.told(time, error)
        return {
            "sets": dict(following.sets),
            "over": following.over,
            "start": self._live.start,
            "best": self._live.best,
        }


def _said(told: Mapping[str, Any], trials: int) -> str:
    each = f"{trials} trials of {WARM + STEPS} steps"
    if not told["sets"]:
        return f"tuned in {each}: nothing is faster than {told['start']:.2f} ms a step by the noise"
    sets = ", ".join(f"{name} {value}" for name, value in told["sets"].items())
    gain = 100 * (1 - told["best"] / told["start"])
    return (
        f"tuned in {each}: {sets}: {told['best']:.2f} ms a step, {told['start']:.2f} as it began"
        f" ({gain:.1f} % less)"
    )
