"""What the core calls of a chunk scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from allrail.simulation.plugins.answer import read
from allrail.simulation.plugins.function import Function
from allrail.simulation.plugins.problem import Problem

if TYPE_CHECKING:
    from allrail import _core

_RETURN = "return the stages of each chunk: `[problem.visit(order) for _ in problem.chunks]`"
_VISIT = "`problem.visit(order)` makes all stages of a chunk that visits the dimensions in an order"


class ChunkFunction(Function):
    """The function, its limits, and how its failures are told."""

    decorator = "chunk_scheduler"
    field = "schedule.policy"
    kind = "chunk scheduler"

    def __call__(
        self, asked: _core.PolicyProblem, stopped: Callable[[], bool]
    ) -> list[list[tuple[str, int]]]:
        """Return the stages of every chunk.

        Args:
            asked: The problem.
            stopped: Whether nobody wants the answer any more.

        Raises:
            InputError: The function raised, took too long, or returned no schedule.
        """
        problem = Problem.of(asked)
        answer: list[list[tuple[str, int]]] = self.run(
            lambda: read(self.function(problem), problem), stopped, hint=_RETURN
        )
        try:
            asked.check(answer)
        except ValueError as error:
            raise self.error(f"it returned no schedule: {error}", hint=_VISIT) from None
        return answer
