"""The points of a study: every combination of its axes, or a number of them that are drawn.

Points are made when they are asked for, so a study of a million costs nothing before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from allrail.search.sweeps.axes import Axis, Value

if TYPE_CHECKING:
    import numpy as np

MOST = 1_000_000
"""Points of a study."""


@dataclass(frozen=True, slots=True)
class Points:
    """A sequence of points.

    Attributes:
        axes: What is changed.
        shares: Of each drawn point, where on each axis it is, 0 to 1; None of a grid.
    """

    axes: tuple[Axis, ...]
    shares: np.ndarray[Any, Any] | None = None

    @classmethod
    def grid(cls, axes: Sequence[Axis]) -> Points:
        """Return every combination; the last axis changes fastest.

        Args:
            axes: Whose values are listed or counted.
        """
        return cls(tuple(axes))

    @classmethod
    def drawn(cls, axes: Sequence[Axis], *, method: str, count: int, seed: int) -> Points:
        """Return points that are drawn.

        Args:
            axes: Values, or ranges.
            method: `latin_hypercube` (each axis is cut into as many parts as there are points, and
                each part has one: McKay, Beckman and Conover 1979) or `random`.
            count: How many.
            seed: The same seed gives the same points.
        """
        import numpy as np

        random = np.random.default_rng(seed)
        if method == "random":
            return cls(tuple(axes), random.random((count, len(axes))))
        from scipy.stats import qmc

        return cls(tuple(axes), qmc.LatinHypercube(len(axes), seed=random).random(count))

    def __len__(self) -> int:
        if self.shares is not None:
            return len(self.shares)
        return prod(axis.steps or 0 for axis in self.axes)

    def __getitem__(self, index: int) -> list[Value]:
        if self.shares is not None:
            places = zip(self.axes, self.shares[index], strict=True)
            return [axis.drawn(float(share)) for axis, share in places]
        values: list[Value] = []
        for axis in reversed(self.axes):
            index, rest = divmod(index, axis.steps or 1)
            values.append(axis.at(rest))
        return values[::-1]

    def __iter__(self) -> Iterator[list[Value]]:
        return (self[index] for index in range(len(self)))

    def sets(self, index: int) -> dict[str, Any]:
        """Return what a point changes, as `load_scenario` takes it.

        Args:
            index: Which point.
        """
        return {path: one for value in self[index] for path, one in value.sets.items()}

    def cells(self, index: int) -> dict[str, Any]:
        """Return what stands of it in the table.

        Args:
            index: Which point.
        """
        return {field: one for value in self[index] for field, one in value.cells.items()}
