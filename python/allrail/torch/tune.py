"""A running job is tuned: `schedule(..., tune=True)`, and `exchange: auto` of the job file.

What is turned with `tune=True` are a node's `partition`; `send_ahead`, where gradients travel over
allrail's own transport; `chunks`, where there is more than one dimension. With `exchange: auto` it
is the way to exchange gradients (`ways.py`).

Each trial is `timed.WARM` steps that do not count and `timed.STEPS` that do. Of each rank the
median counts, and of these that of the slowest rank. What is tried next is decided on rank 0 (by a
`tuning.live.Search`) and told to all, which change at the same step; parameters are those of any
trial. What a change means: `switch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allrail.runtime.agreement import Agreement
from allrail.search.tuning.each import Each
from allrail.search.tuning.live import Live, Search, typical
from allrail.search.tuning.searcher import Searcher
from allrail.search.tuning.space import Knob, ladder
from allrail.torch.scheduled import Scheduled
from allrail.torch.switch import Maker
from allrail.torch.timed import STEPS, WARM, Timed
from allrail.torch.ways import Way

MARGIN = 0.02
"""Of the time of `plain`: by how much another way must be faster."""

Asked = tuple[Callable[[], Search], Callable[[Mapping[str, Any]], Way]]
"""What makes the search, on rank 0; and the way to exchange gradients in a trial."""


def knobs(*, dimensions: int, native: bool) -> tuple[Knob, ...]:
    """Return what `tune=True` turns.

    Args:
        dimensions: Of the network.
        native: Whether gradients travel over allrail's own transport.
    """
    names = ["partition"]
    names += ["send_ahead"] if native else []
    names += ["chunks"] if dimensions > 1 else []
    return tuple(Knob(name, ladder(name)) for name in names)


def settings(way: Way, space: tuple[Knob, ...]) -> Asked:
    """Return the search of a node's settings.

    Args:
        way: How gradients are exchanged; it stays.
        space: What is turned.
    """

    def of(sets: Mapping[str, Any]) -> Way:
        return replace(way, settings={**way.settings, **sets})

    return lambda: Live(Searcher(space, noisy=True)), of


def ways(had: Sequence[Way]) -> Asked:
    """Return the search of a way to exchange gradients.

    Args:
        had: Those that are tried, the first of them first.
    """
    named = {way.name: way for way in had}

    def of(sets: Mapping[str, Any]) -> Way:
        return named[sets.get("exchange", had[0].name)]

    return lambda: Each(Knob("exchange", tuple(named)), plain="plain", least=MARGIN), of


class Tune(Timed):
    """Makes trials one after the other, and goes on with what stays.

    Args:
        search: Makes the search; it is called on rank 0.
        way: How gradients are exchanged with changes of the start.
        agreement: Among all ranks; another one than those of the maker.
        maker: As of `Switch`.

    Raises:
        InputError: Optuna is not installed on rank 0; on all ranks.
    """

    def __init__(
        self,
        search: Callable[[], Search],
        way: Callable[[Mapping[str, Any]], Way],
        agreement: Agreement,
        maker: Maker,
    ) -> None:
        super().__init__(maker)
        self._way_with = way
        self._trials = agreement
        self._search, _ = agreement.together(
            "tune", lambda: search() if agreement.rank == 0 else None
        )
        self._sets: Mapping[str, Any] = {}
        self._tried = 0
        self._begin(way({}))

    def _measured(self, steps: list[float]) -> Scheduled | None:
        self._tried += 1
        told = self._trials.on(f"trial {self._tried}", typical(steps), self._decide)
        if told["over"]:
            trials = f"{self._tried} trials of {WARM + STEPS} steps"
            self._say(f"tuned in {trials}: {told['said']}")
        if told["sets"] == self._sets:
            return None if told["over"] else self._begin(self._way)
        self._sets = told["sets"]
        return self._begin(self._way_with(self._sets))

    def _decide(self, said: Sequence[Sequence[float]]) -> dict[str, Any]:
        """On rank 0: of all ranks' trials, what is next."""
        if self._search is None:
            raise RuntimeError("rank 0 decides")
        time, error = (1e3 * max(each) for each in zip(*said, strict=True))
        following = self._search.told(time, error)
        over = following.over
        said_of_it = self._search.said if over else ""
        return {"sets": dict(following.sets), "over": over, "said": said_of_it}
