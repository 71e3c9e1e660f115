"""Arguments of a communicator's operations: which arrays, ranks, names and reductions there are."""

from __future__ import annotations

import re
from typing import Any, Literal

from allrail.base.arguments import Kind, check
from allrail.base.errors import InputError, did_you_mean, show
from allrail.runtime.arrays import view_of
from allrail.runtime.nodes import SUMMED, Asked, Memory
from allrail.runtime.view import COMBINED, View

Op = Literal["sum", "average", "max", "min", "product"]
OPS = ("sum", "average", *COMBINED)

_HALVES = re.compile("[\ud800-\udfff]")
NUMBER = Kind(lambda value: type(value) is int and -(2**63) <= value < 2**63, "a rank", "0")
RANKS = Kind(
    lambda value: isinstance(value, (list, tuple, range, set)) and all(map(NUMBER.is_it, value)),
    "a list of ranks",
    "[0, 1]",
)
TAG = Kind(NUMBER.is_it, "a whole number", "0")
NAME = Kind(lambda value: isinstance(value, str) and not _HALVES.search(value), "a text", '"loss"')


def summed(array: Any, op: str) -> View:
    """Return the memory of an array whose elements are combined.

    Args:
        array: The array.
        op: One of `OPS`.

    Raises:
        InputError: There is no such combination, or not of these elements.
    """
    view = view_of(array)
    if op not in OPS:
        raise InputError(
            "there is no such operation",
            field="op",
            value=show(op),
            hint=did_you_mean(show(op), OPS),
        )
    if op in COMBINED:
        if not view.dtype.startswith(("float8", "complex")):
            return view
        raise InputError(
            f"elements of type {view.dtype} have no {op} here",
            field="op",
            value=op,
            hint="cast the array to float32, or ask for the sum",
        )
    if view.dtype not in SUMMED:
        raise InputError(
            f"elements of type {view.dtype} cannot be summed",
            field="array",
            hint=f"cast it to one of {', '.join(SUMMED)}",
        )
    if op == "average" and "int" in view.dtype:
        raise InputError(
            f"the average of elements of type {view.dtype} is none of them",
            field="op",
            value=op,
            hint="cast the array to float32, or ask for the sum",
        )
    return view


def rows_of(view: View, ranks: int) -> int:
    """Return how many rows of an array each rank has.

    Args:
        view: Its memory.
        ranks: How many ranks there are.

    Raises:
        InputError: They cannot be divided evenly.
    """
    rows = view.shape[0] if view.shape else 0
    if not view.shape or rows % ranks:
        raise InputError(
            f"its first axis, of {rows}, cannot be divided among {ranks} ranks"
            if view.shape
            else "it has no axis to divide among ranks",
            field="array",
            hint="pad it, or reshape it, so that its first axis is a multiple of the ranks",
        )
    return rows // ranks


def check_rank(rank: int, ranks: int, field: str) -> None:
    """Refuse what is no rank of a group.

    Args:
        rank: What is said to be one.
        ranks: How many the group has.
        field: The argument.
    """
    check(field, rank, kind=NUMBER)
    if not 0 <= rank < ranks:
        raise InputError(
            f"there are {ranks} ranks, counted from 0",
            field=field,
            value=str(rank),
            hint=f"one of 0 to {ranks - 1}",
        )


def moved(view: View) -> Memory:
    """Memory that is only moved; where elements could be summed, ranks compare their type."""
    return view.memory(in_bytes=view.dtype not in SUMMED)


def moves(view: View) -> Asked:
    """What ranks compare of memory that is only moved: the type of what counts as bytes there."""
    return Asked(dtype="" if view.dtype in SUMMED else view.dtype)
