"""What is still to be done, handed out in pieces, each point once.

A piece has as many points as take a fifth of a second, so that handing out costs nothing beside the
simulations: half a millisecond of this process, for which a worker on the same cores waits. Towards
the end pieces are shorter, down to a twentieth, so that no worker is left with much alone. When a
worker is lost its piece is handed out again, point by point; a point that has lost three workers is
given up: its row says so, and a later run of the study tries it again.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from allrail.scenario import Scenario
from allrail.search.sweeps.evaluate import outcome

PIECE_S = (0.05, 0.2)
"""What a piece takes, at the end and before."""
_PARTS = 8
"""Of what is left, a piece has at most one of so many."""
MOST_POINTS = 256
"""Of a piece."""
LOSSES = 3
"""So many workers may be lost at one point."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Points for one worker: (index, changes) pairs."""

    points: tuple[tuple[int, Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Done:
    """What a worker made of a piece: a line of the journal a point, and how long it took, s."""

    lines: tuple[str, ...]
    seconds: float


class UnderWay:
    """How much of the pieces that were handed out is done, and that whoever asks is told.

    Args:
        told: Called whenever it has changed.

    Attributes:
        points: How many of their points; a fraction within one.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self.points = 0.0
        self._told = told

    def tell(self, points: float) -> None:
        """Note a number and say so.

        Args:
            points: The number.
        """
        self.points = points
        self._told()


def carry_out(base: Scenario, piece: Piece, told: Callable[[float], None] | None = None) -> Done:
    """Simulate the points of a piece.

    Args:
        base: What they change.
        piece: The points.
        told: Given how many of them are done now and then; a fraction within one.
    """
    started = time.perf_counter()
    lines: list[str] = []

    def within(done: float, total: int) -> None:
        if told is not None:
            told(len(lines) + min(done / max(total, 1), 1.0))

    for index, sets in piece.points:
        lines.append(line(index, outcome(base, sets, within)))
    return Done(tuple(lines), time.perf_counter() - started)


def line(index: int, told: Mapping[str, Any]) -> str:
    """Return a line of the journal.

    Args:
        index: Of the point.
        told: Its `row`, `error` or `lost`.
    """
    return json.dumps({"point": index, **told}, ensure_ascii=False, separators=(",", ":")) + "\n"


class Tasks:
    """Hands out the points that are left.

    Args:
        left: Their indices.
        sets: What a point changes.
    """

    def __init__(self, left: Sequence[int], sets: Callable[[int], Mapping[str, Any]]) -> None:
        self._left: Iterator[int] = iter(left)
        self._count = len(left)
        self._sets = sets
        self._again: deque[int] = deque()
        self._losses: dict[int, int] = {}
        self._size = 1

    def next(self) -> Piece | None:
        """Return the next piece; None if there is none now."""
        again = self._again
        if again:
            indices = [again.popleft()]
        else:
            indices = list(islice(self._left, self._size))
            self._count -= len(indices)
        return Piece(tuple((index, self._sets(index)) for index in indices)) if indices else None

    def done(self, piece: Piece, done: Done) -> tuple[str, ...]:
        """Take what came of a piece, and return its lines.

        Args:
            piece: That was handed out.
            done: What came of it.
        """
        each = max(done.seconds / len(piece.points), 1e-6)
        short, long = (int(seconds / each) for seconds in PIECE_S)
        fitting = max(short, min(long, self._count // _PARTS))
        self._size = max(1, min(MOST_POINTS, 2 * self._size, fitting))
        return done.lines

    def give_back(self, piece: Piece) -> None:
        """Hand a piece out again that nobody had begun.

        Args:
            piece: That was handed out.
        """
        self._again.extend(index for index, _ in piece.points)

    def lost(self, piece: Piece, why: str) -> tuple[str, ...]:
        """Hand a piece out again whose worker is gone.

        Args:
            piece: That was handed out.
            why: What is known of it.

        Returns:
            The line of a point that is given up.
        """
        indices = [index for index, _ in piece.points]
        if len(indices) > 1:
            self.give_back(piece)
            return ()
        index = indices[0]
        self._losses[index] = self._losses.get(index, 0) + 1
        if self._losses[index] < LOSSES:
            self._again.append(index)
            return ()
        text = f"its worker was lost {LOSSES} times: {why}"
        return (line(index, {"error": text, "lost": True}),)
