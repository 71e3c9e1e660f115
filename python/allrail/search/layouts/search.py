"""Ranks layouts by tokens a second, and says why the others lose.

1. Memory, without a simulation: each layout with the least recomputation that fits. What saves
   nothing (`selective` where attention is fused) is not tried.
2. A bound that no simulated step of a layout beats, without one.
3. Simulations in `dims`, of the lowest bounds first, until every layout that is left has a higher
   bound than the step of the last row that is shown: none of those is better. Then those that would
   be recommended (`choice.py`) in place of what is, which some tool has to be able to run.
   `exhaustive` simulates all.

Where a time budget is over, or somebody ends it, what is known by then is the answer (`stopped`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.base.progress import Progress
from allrail.search.layouts.budget import Budget, Stopped
from allrail.search.layouts.choice import by_time, folded, may_be_recommended, recommended
from allrail.search.layouts.layout import Cut, Job, Layout
from allrail.search.layouts.space import tools_of
from allrail.search.layouts.tools import ANY, TOOLS
from allrail.search.layouts.trial import RECOMPUTED, Bounded, Ranked, TooLarge, Trials

_TOGETHER = 4
"""How many are simulated before the next look at the bounds; alike on every machine."""
_CHUNK = 32
"""How many are bounded before the next look at the clock."""
_BOUNDS = 0.5
"""The part of a time budget after which bounds end and simulations begin."""

Watch = Callable[[Sequence[Ranked]], None]
"""Told what was simulated so far, whenever that is more."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a search.

    Attributes:
        ranked: Those simulated, the fastest first.
        pruned: Those that are no better than the last one asked for, the lowest bound first.
        too_large: Layouts that do not fit even with all recomputation that is tried.
        refused: Layouts that cannot be, and why.
        left: Layouts that may be better, where the search was stopped: the lowest bound first.
        unseen: How many were not even bounded, where it was stopped.
        stopped: Why it was; empty where it came to its end.
    """

    ranked: tuple[Ranked, ...]
    pruned: tuple[Bounded, ...]
    too_large: tuple[TooLarge, ...]
    refused: tuple[tuple[Cut, InputError], ...]
    left: tuple[Bounded, ...] = ()
    unseen: int = 0
    stopped: str = ""

    @property
    def recommended(self) -> Ranked:
        """Of those as fast as the fastest that a tool can run, the simplest."""
        return recommended(self.ranked)


@dataclass(slots=True)
class _Search:
    """A search under way."""

    job: Job
    trials: Trials
    budget: Budget
    progress: Progress | None
    watch: Watch | None
    ranked: list[Ranked] = field(default_factory=list)
    fitting: list[Bounded] = field(default_factory=list)
    too_large: list[TooLarge] = field(default_factory=list)
    refused: list[tuple[Cut, InputError]] = field(default_factory=list)
    unseen: int = 0
    runs: dict[tuple[str, str], bool] = field(default_factory=dict)

    def bound(self, layouts: Sequence[Layout]) -> None:
        """Sort out what fits, and how fast it is at best."""
        # So that a part of them is of all kinds.
        chunks = max(1, -(-len(layouts) // _CHUNK))
        ways = recomputations(self.job, self.trials, layouts)
        self.unseen = len(layouts)
        for k in range(chunks):
            now = list(layouts[k::chunks])
            self.unseen -= len(now)
            try:
                for recompute in ways:
                    if now:
                        self._bound(now, recompute, last=recompute == ways[-1], first=k == 0)
            except BaseException:
                self.unseen += len(now)
                raise
            if self.progress is not None:
                self.progress(k + 1, chunks)
            if self.fitting and self.budget.used > _BOUNDS:
                return

    def _bound(self, now: list[Layout], recompute: str, *, last: bool, first: bool) -> None:
        """Bound some; those that are too large stay in `now`, unless nothing more is tried.

        The first are bounded, and the first simulated, however long it takes.
        """
        tried = tuple(now)
        bounds = self.trials.bounds(tried, recompute, progress=None if first else self.budget.look)
        for layout, outcome in zip(tried, bounds, strict=True):
            if isinstance(outcome, TooLarge):
                if last:
                    self.too_large.append(outcome)
                    now.remove(layout)
                continue
            now.remove(layout)
            if isinstance(outcome, Bounded):
                self.fitting.append(outcome)
            else:
                self.refused.append((layout, outcome))

    def simulate(self, some: Sequence[Bounded]) -> None:
        """Simulate some, which are then no longer left."""
        look = self.budget.look if self.ranked else None
        outcomes = self.trials.simulate(some, progress=look)
        for one, outcome in zip(some, outcomes, strict=True):
            self.fitting.remove(one)
            if isinstance(outcome, Ranked):
                self.ranked.append(outcome)
            else:
                self.refused.append((one.layout, outcome))
        if self.watch is not None and self.ranked:
            self.watch(self.ranked)

    def rank(self, top: int, *, exhaustive: bool) -> None:
        """Simulate what may be among the first rows, or be recommended."""
        total = len(self.fitting)
        self.fitting.sort(key=lambda one: (one.bound_s, one.layout.name))
        while self.fitting:
            last = self._last(top)
            if not exhaustive and last is not None and self.fitting[0].bound_s > last:
                break
            # The first ones are simulated however long they take: within a budget, one.
            if not self.ranked and self.budget.limited:
                self.simulate([self.first()])
            else:
                self.simulate(self.fitting[:_TOGETHER])
            if self.progress is not None:
                done, last = total - len(self.fitting), self._last(top)
                # What is bounded above the last row that was asked for will not be simulated.
                left = [one for one in self.fitting if last is None or one.bound_s <= last]
                self.progress(done, done + len(self.fitting if exhaustive else left))
        while self.ranked and (some := self._may_be_recommended()):
            self.simulate(some[:_TOGETHER])

    def _last(self, top: int) -> float | None:
        """The step of the last row that is shown; None where rows are missing."""
        rows = folded(self.ranked)
        return rows[top - 1].ranked.step_s if len(rows) >= top else None

    def first(self) -> Bounded:
        """The lowest bound of what fits: of what a tool can run, where there is any."""
        ordered = sorted(self.fitting, key=lambda one: (one.bound_s, one.layout.name))
        return next((one for one in ordered if self._runs(one)), ordered[0])

    def _may_be_recommended(self) -> list[Bounded]:
        return may_be_recommended(self.fitting, self.ranked, self._runs)

    def _runs(self, one: Bounded) -> bool:
        """Whether some tool can run a layout."""
        known = one.layout.name, one.recompute
        if known not in self.runs:
            self.runs[known] = bool(tools_of(self.job, one.layout, one.recompute))
        return self.runs[known]

    def found(self, stopped: str) -> Found:
        """What is known by now."""
        rest = tuple(self.fitting)
        # What a search that was stopped leaves may be better than what it has.
        return Found(
            tuple(by_time(self.ranked)),
            () if stopped else rest,
            tuple(self.too_large),
            tuple(self.refused),
            rest if stopped else (),
            self.unseen,
            stopped,
        )


def search(
    job: Job,
    found: Sequence[Layout],
    *,
    top: int = 10,
    exhaustive: bool = False,
    progress: Progress | None = None,
    budget: Budget | None = None,
    watch: Watch | None = None,
) -> Found:
    """Rank layouts.

    Args:
        job: What is cut.
        found: Its layouts.
        top: How many rows of the best are wanted; layouts that are one but for their name share a
            row.
        exhaustive: Whether all are simulated.
        progress: Told how many are done, of how many.
        budget: After which it ends with what it has; None: when it is done. At least one layout is
            simulated.
        watch: Told what was simulated so far.

    Raises:
        InputError: Something in the job is wrong.
    """
    budget = budget or Budget(None)
    own = _Search(job, Trials(job, found[0]), budget, progress, watch)
    stopped = ""
    try:
        own.bound(found)
        own.rank(top, exhaustive=exhaustive)
        if own.unseen:
            stopped = budget.words
    except Stopped as why:
        stopped = str(why)
    except KeyboardInterrupt as why:
        if not own.ranked:
            raise
        stopped = str(why) or "interrupted"
    if stopped and not own.ranked and own.fitting:
        own.simulate([own.first()])
    return own.found(stopped)


def recomputations(job: Job, trials: Trials, layouts: Sequence[Cut]) -> list[str]:
    """Return what is tried to recompute, the least first: what the tool has and saves something.

    Args:
        job: What is cut.
        trials: Of it.
        layouts: Its layouts.

    Raises:
        InputError: What is fixed is none of them.
    """
    known = TOOLS[job.tool].can.get("recompute", RECOMPUTED) if job.tool != ANY else RECOMPUTED
    fixed = job.fixed.get("recompute")
    if fixed is not None and fixed not in known:
        names = [one for one in RECOMPUTED if one in known]
        raise InputError(
            "no such way to recompute, or the tool has it not",
            source="--fix",
            value=f"recompute={fixed}",
            hint=did_you_mean(str(fixed), names),
        )
    if fixed is not None:
        return [fixed]
    ways: list[str] = []
    held = None
    for recompute in (one for one in RECOMPUTED if one in known):
        [now] = trials.bounds(layouts[:1], recompute)
        needs = None if isinstance(now, InputError) else memory_of(now)
        if ways and needs is not None and held is not None and needs >= held:
            continue
        held = held if needs is None else needs
        ways.append(recompute)
    return ways


def memory_of(one: Bounded | TooLarge) -> float:
    """Return what a layout holds, GB.

    Args:
        one: Whether it fits or not.
    """
    return one.needed / 1e9 if isinstance(one, TooLarge) else one.memory_gb


def words_of(found: Found) -> dict[str, Any]:
    """Return what stopped a search and what it leaves open, as plain values.

    Args:
        found: What came of it.
    """
    return {
        "stopped": found.stopped or None,
        "left": {one.layout.name: one.bound_s for one in found.left},
        "unseen": found.unseen,
    }
