"""Ranks that make unequal numbers of backward passes: an error that names both numbers.

A rank whose batches end first leaves the others waiting for gradients that never come. When it
leaves (`release`, or its process ends), it writes into the job's store how many passes it has made;
the transport tells the others that it has left, and they look there. Of a rank that is still there
and does something else, only the exchange that it lacks tells how far it has come: gradients of
pass n are exchanged once those of pass n - 1 are everywhere.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Agreement

_FOR_ITS_WORD = 1.0
"""How long the number of a rank that has left is waited for, s."""
_PAUSE = 0.02
_HINT = (
    "look at that rank's first error; if it has none, give every rank as many batches:"
    " `DistributedSampler(dataset, drop_last=True)`, or go on until all ranks have none left"
)


class Passes:
    """Counts this rank's backward passes, or steps, and explains errors by those of others.

    Args:
        owner: Whose passes they are: when it is dropped, or the process ends, this rank has left.
        agreement: Among the ranks.
        every: How many steps lie between two exchanges.

    Attributes:
        made: How many were made.
        begun: How many were begun, where that is known.
        exchanged: How many exchanges began since `owner` was made.
    """

    def __init__(self, owner: object, agreement: Agreement, *, every: int = 1) -> None:
        self.made = self.begun = self.exchanged = 0
        self._agreement = agreement
        self._every = every
        one, more = ("backward pass", "backward passes") if every == 1 else ("step", "steps")
        self._what = one, more
        self.leave = weakref.finalize(owner, _leave, self, os.getpid())

    def begin(self) -> None:
        """A forward pass in training begins."""
        self.begun = self.made + 1

    def end(self) -> None:
        """A backward pass is over, and its gradients are under way."""
        self.made += 1
        self.exchanged += 1

    def number(self, generation: int) -> int | None:
        """Return of which pass an exchange of gradients is; None if it is not of the last one."""
        return self.made if generation + 1 == self.exchanged else None

    def opening(self) -> int | None:
        """Return which pass has begun and is not over; None if none has."""
        return self.begun if self.begun > self.made else None

    def explain(self, error: Exception, number: int | None = None) -> Exception:
        """Return an error that names numbers of passes if they are why this one came, else itself.

        Args:
            error: What was raised.
            number: Of the pass whose exchange was waited for; None if it is of none, or not known.
        """
        kind, rank = getattr(error, "kind", ""), getattr(error, "rank", None)
        of_backend = not isinstance(error, TrainingError) or error.__cause__ is not None
        if kind not in ("left", "stalled") and not of_backend:
            return error
        now = max(self.made, self.begun)
        left = self._left(rank, now, wait=kind != "stalled")
        if short := {each: made for each, made in left.items() if made < now}:
            fewest = min(short.values())
            who = [each for each in sorted(short) if short[each] == fewest]
            return TrainingError(
                f"{_named(who)} left after {self._counted(fewest)}, and {self._mine(fewest)}",
                hint=_HINT,
            )
        if rank is None or rank in left or number is None or not isinstance(error, TrainingError):
            return error
        theirs = self._counted(number if self._every > 1 else number - 1)
        less = "fewer than " if self._every > 1 else ""
        said = f"rank {rank} has made {less}{theirs}, and {self._mine(number - 1)}"
        if kind == "left":
            return TrainingError(said, hint=_HINT)
        hint = f"{_HINT}; where that rank is only late, raise `timeouts.stalled`"
        return TrainingError(f"{error.why}; {said}", hint=hint)

    def _left(self, rank: int | None, now: int, *, wait: bool) -> dict[int, int]:
        """What ranks that have left have made; the word of one of them may be under way."""
        until = time.monotonic() + _FOR_ITS_WORD
        while True:
            left = self._agreement.left()
            known = left is None or rank in left or any(made < now for made in left.values())
            if known or not wait or time.monotonic() > until:
                return left or {}
            time.sleep(_PAUSE)

    def _mine(self, theirs: int) -> str:
        if self.made > theirs:
            return f"this rank has made {self.made}"
        return f"this rank has begun number {theirs + 1}"

    def _counted(self, count: int) -> str:
        return f"{count} {self._what[count != 1]}"


def _named(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    return f"ranks {', '.join(map(str, sorted(ranks)))} have"


def _leave(passes: Any, process: int) -> None:
    """This rank takes part no more, unless this is a fork of its process."""
    if os.getpid() == process:
        passes._agreement.leave(passes.made)
