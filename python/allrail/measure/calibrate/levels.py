"""Which dimensions tables speak of, and on which of them each table's ranks lie.

The first dimension is a machine: the most ranks that a table has on one machine, by its list of
ranks; where none has a list, the ranks of the smallest table. The second joins machines. A table of
one rank a machine (rails, `NCCL_TESTS_SPLIT`, `--gpus-per-node 1`) lies on the second alone. Tables
of one shape alone cannot tell the two apart and give one dimension that stands for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allrail.base.errors import InputError
from allrail.measure.calibrate.table import Table


@dataclass(frozen=True, slots=True)
class Levels:
    """Dimensions and what lies where.

    Attributes:
        sizes: Size of each dimension, innermost first.
        parts: By table, how many of its ranks differ on each dimension.
        between: The first dimension that joins machines; None where none is known to.
    """

    sizes: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]
    between: int | None

    @property
    def known(self) -> bool:
        """Whether what is within a machine and what joins machines are told apart."""
        return len(self.sizes) > 1 or self.between == 0 or self.sizes[0] <= _MACHINE


_MACHINE = 8
"""Ranks: so many may be one machine where nothing says."""


def levels_of(tables: Sequence[Table]) -> list[Levels]:
    """Return the dimensions that tables may speak of, the fewest first.

    Args:
        tables: Each with its ranks.

    Raises:
        InputError: Ranks are no multiple of a machine's.
    """
    counts = [table.ranks or 0 for table in tables]
    told = [_each(table) for table in tables]
    known = [each for each in told if each]
    machine = max(known) if known else min(counts)
    shapes = [_shape(table, each, machine) for table, each in zip(tables, told, strict=True)]
    several = any(hosts > 1 for _, hosts in shapes)
    if len(set(shapes)) == 1:
        ((each, hosts),) = set(shapes)
        size = each * hosts
        between = 0 if each == 1 and known else None
        return [Levels((size,), ((size,),) * len(tables), between)]
    if not several:
        size = max(counts)
        return [Levels((size,), tuple((count,) for count in counts), None)]
    if machine == 1:
        size = max(counts)
        return [Levels((size,), tuple((count,) for count in counts), 0)]
    outer = max(hosts for _, hosts in shapes)
    found = [Levels((machine, outer), tuple(shapes), 1)]
    groups = sorted({hosts for _, hosts in shapes if hosts > 1})
    for first in groups[:-1]:
        # So many machines may be a group, with another network between groups: a third dimension.
        if outer % first == 0 and all(first % n == 0 or n % first == 0 for n in groups):
            split = tuple((each, min(n, first), max(1, n // first)) for each, n in shapes)
            found.append(Levels((machine, first, outer // first), split, 1))
    return found


def _each(table: Table) -> int | None:
    """Ranks of a machine; None where nothing says."""
    ranks, hosts = table.ranks or 0, table.hosts
    return ranks // hosts if hosts and ranks % hosts == 0 else None


def _shape(table: Table, each: int | None, machine: int) -> tuple[int, int]:
    """Ranks of a machine, and machines."""
    ranks = table.ranks or 0
    if each is not None:
        return each, ranks // each
    if ranks <= machine:
        return ranks, 1
    if ranks % machine:
        raise InputError(
            f"it is over {ranks} ranks, no multiple of the {machine} of the smallest table",
            source=table.source,
            hint="give tables of whole machines, or each alone",
        )
    return machine, ranks // machine
