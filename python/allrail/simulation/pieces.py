"""How far work is that is done piece by piece, each of which tells how far it is."""

from __future__ import annotations

from collections.abc import Sequence

from allrail.base.progress import Progress


class Pieces:
    """Puts pieces on one scale, by about how long each takes.

    Args:
        progress: Told how much is done of the sum of all weights; nobody if None.
        weights: Of each piece, in the order in which they come: numbers that are as long to each
            other as the pieces' times.
    """

    def __init__(self, progress: Progress | None, weights: Sequence[float]) -> None:
        self._progress = progress
        self._weights = list(weights)
        self._at = 0
        self._over = 0.0
        self._total = max(1, round(sum(weights)))

    @property
    def progress(self) -> Progress | None:
        """Who is told how far the piece is that is under way; None if nobody is."""
        return None if self._progress is None else self._tell

    def next(self) -> None:
        """Say that the piece under way is over."""
        self._over += self._weights[self._at]
        self._at += 1
        self._tell(0, 1)

    def _tell(self, done: float, total: int) -> None:
        if self._progress is None:
            return
        weight = self._weights[self._at] if self._at < len(self._weights) else 0.0
        share = min(done / max(total, 1), 1.0)
        self._progress(min(self._over + weight * share, self._total), self._total)
