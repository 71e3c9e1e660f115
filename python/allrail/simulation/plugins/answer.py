"""A function's answer, read as the stages of every chunk."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from itertools import islice

from allrail.base.errors import shorten
from allrail.simulation.plugins.problem import Problem


class NoScheduleError(Exception):
    """What a function returned is not of the form of a schedule."""


def read(answer: object, problem: Problem) -> list[list[tuple[str, int]]]:
    """Read an answer as plain pairs; of an endless one, no more than is needed to refuse it.

    Args:
        answer: What the function returned.
        problem: What it was given.

    Raises:
        NoScheduleError: It is not of that form.
    """
    lists = _listed(answer, len(problem.chunks), "no list with the stages of each chunk")
    most = 2 * len(problem.dimensions)
    return [
        [
            _pair(stage, f"chunk {chunk}")
            for stage in _listed(stages, most, "no list of stages", f"chunk {chunk}: ")
        ]
        for chunk, stages in enumerate(lists)
    ]


def _listed(value: object, most: int, what: str, where: str = "") -> list[object]:
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise NoScheduleError(f"{where}`{_shown(value)}` is {what}")
    return list(islice(value, most + 1))


def _pair(stage: object, where: str) -> tuple[str, int]:
    if isinstance(stage, (tuple, list)) and len(stage) == 2:
        operation, dimension = stage
        if isinstance(operation, str) and not isinstance(dimension, bool):
            try:
                number = operator.index(dimension)
            except TypeError:
                number = -1
            if 0 <= number < 2**32:
                return str(operation), number
    raise NoScheduleError(f"{where}: `{_shown(stage)}` is no pair of an operation and a dimension")


def _shown(value: object) -> str:
    return shorten(str(value)) if isinstance(value, (str, int, float)) else shorten(repr(value))
