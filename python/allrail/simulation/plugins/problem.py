"""What a chunk scheduler is given and returns: the problem, and stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allrail import _core


class Stage(NamedTuple):
    """One phase of a chunk on one dimension.

    Attributes:
        operation: Of an all-reduce `reduce_scatter` or `all_gather`, else the collective itself.
        dimension: Which, from 0.
    """

    operation: str
    dimension: int


class StageTime(NamedTuple):
    """How long a stage takes.

    Attributes:
        busy_us: For how long it keeps its dimension busy.
        latency_us: How long after that it ends; the dimension may serve others meanwhile.
    """

    busy_us: float
    latency_us: float


@dataclass(frozen=True, slots=True)
class Problem:
    """What a chunk scheduler knows of the collective that it schedules.

    Attributes:
        operation: Such as `all_reduce`.
        dimensions: Those that it spans, from 0, innermost first.
        sizes: The NPUs along each of them.
        chunks: The bytes of every chunk, in the order in which they are issued.
        order: How the dimensions will order their stages.
        active_chunks: How many stages a dimension runs at once, or `fill`; None for no limit.
        seed: For schedulers that draw: `random.Random(problem.seed)`.
    """

    operation: str
    dimensions: tuple[int, ...]
    sizes: Mapping[int, int]
    chunks: tuple[int, ...]
    order: str
    active_chunks: int | str | None
    seed: int
    _asked: _core.PolicyProblem = field(repr=False)

    @classmethod
    def of(cls, core: _core.PolicyProblem) -> Problem:
        """Return the problem that the core poses.

        Args:
            core: As the core has it.
        """
        dimensions = tuple(core.dimensions)
        return cls(
            operation=core.operation,
            dimensions=dimensions,
            sizes=dict(zip(dimensions, core.sizes, strict=True)),
            chunks=tuple(core.chunks),
            order=core.order,
            active_chunks=core.active_chunks,
            seed=core.seed,
            _asked=core,
        )

    def visit(self, order: Iterable[int]) -> list[Stage]:
        """Return the stages of a chunk that visits the dimensions in an order.

        An all-reduce scatters in that order and gathers in its reverse.

        Args:
            order: Dimensions, each once.
        """
        there = list(order)
        if self.operation != "all_reduce":
            return [Stage(self.operation, dimension) for dimension in there]
        scatter = [Stage("reduce_scatter", dimension) for dimension in there]
        return scatter + [Stage("all_gather", dimension) for dimension in reversed(there)]

    def times(self, chunk: int, stages: Sequence[Stage]) -> list[StageTime]:
        """Return the time of each of a chunk's stages: the simulator's own, in `dims`.

        Args:
            chunk: Its bytes, such as `problem.chunks[0]`.
            stages: All of them from the first on: what was scattered before makes a stage shorter.

        Raises:
            ValueError: The collective has no such stage, or spans no such dimension.
        """
        return [StageTime(*pair) for pair in self._asked.times(chunk, list(stages))]
