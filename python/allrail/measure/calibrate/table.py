"""A measured collective: how long it took at each size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from allrail.base.errors import InputError, did_you_mean
from allrail.base.units import show_count

AROUND: dict[str, Callable[[float], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0 if ranks else 0.0,
    "reduce": lambda ranks: 1.0 if ranks else 0.0,
    "sendrecv": lambda ranks: 1.0 if ranks else 0.0,
}
"""Bus bandwidth over algorithm bandwidth, by collective and ranks (nccl-tests, PERFORMANCE.md)."""

_ROUNDED = 0.0051
"""GB/s, of a printed bandwidth."""
_MOST = 1 << 15


@dataclass(frozen=True, slots=True)
class Row:
    """A size.

    Attributes:
        bytes: Of the buffer, as nccl-tests count it.
        time_us: Out of place; of what tells only one, that.
        in_place_us: None where it was not measured.
    """

    bytes: int
    time_us: float
    in_place_us: float | None = None


@dataclass(frozen=True)
class Table:
    """What somebody measured.

    Attributes:
        collective: As of `AROUND`; None where nothing says.
        ranks: How many took part; None where nothing says.
        hosts: On how many machines; None where nothing says.
        device: What the first rank ran on; empty where nothing says.
        rows: By size.
        source: The file.
        notes: What was left out, and what contradicts itself.
        groups: How many groups of so many ranks ran at the same time (`NCCL_TESTS_SPLIT`); ranks
            and hosts are those of one.
        dtype: Type of the elements; empty where nothing says.
        redop: The reduction; empty likewise.
        algorithm: The one that the tool was made to run, in lower case; None where it chose.
        per_rank: Whether sizes are those of one rank's part, as MPI's benchmarks count an
            all-gather's; `counted` makes them the whole buffer's.
    """

    collective: str | None
    ranks: int | None
    hosts: int | None
    device: str
    rows: tuple[Row, ...]
    source: str
    notes: tuple[str, ...] = field(default=())
    groups: int = 1
    dtype: str = ""
    redop: str = ""
    algorithm: str | None = None
    per_rank: bool = False

    def counted(self) -> Table:
        """Return it with sizes as nccl-tests count them, as far as its ranks are known."""
        if not self.per_rank or not self.ranks:
            return self
        rows = tuple(replace(row, bytes=row.bytes * self.ranks) for row in self.rows)
        return replace(self, rows=rows, per_rank=False)

    def busbw(self, row: Row) -> float | None:
        """Return GB/s, as nccl-tests count them.

        Args:
            row: One of its rows.
        """
        if self.ranks is None or self.collective is None:
            return None
        return AROUND[self.collective](self.ranks) * row.bytes / row.time_us / 1e3

    @property
    def best_busbw(self) -> float | None:
        """The largest of its rows, GB/s."""
        return max((found for row in self.rows if (found := self.busbw(row))), default=None)


def chosen(
    tables: Sequence[Table],
    *,
    source: str,
    collective: str | None = None,
    ranks: int | None = None,
    number: int | None = None,
    dtype: str | None = None,
    most: int = 1,
) -> list[Table]:
    """Return those that somebody asks for, of one collective and type.

    Args:
        tables: Of a file, or several.
        source: The file, for messages.
        collective: Those of it alone.
        ranks: Those over so many alone; a table that does not say is taken as one of them.
        number: That one alone, counted from 1.
        dtype: Those of elements of this type alone; a table that does not say counts as one.
        most: How many there may be.

    Raises:
        InputError: There is none, or there are more.
    """
    if number is not None and number > len(tables):
        raise InputError(
            f"there is no table {number}: {_named(tables)}",
            source=source,
            hint=f"`--table` takes 1 to {len(tables)}",
        )
    meant = tables if number is None else [tables[number - 1]]
    told = [one if one.ranks or ranks is None else replace(one, ranks=ranks) for one in meant]
    found = [
        one.counted()
        for one in told
        if collective in (None, one.collective)
        and ranks in (None, one.ranks)
        and dtype in (None, one.dtype or dtype)
    ]
    if not found:
        names = {one.collective for one in tables if one.collective}
        types = {one.dtype for one in tables if one.dtype}
        hint = "leave them out"
        if collective not in (None, *names):
            hint = did_you_mean(str(collective), sorted(names)) or hint
        elif dtype not in (None, *types) and types:
            hint = did_you_mean(str(dtype), sorted(types)) or hint
        options = (
            "`--collective`, `--ranks` and `--type`" if dtype else "`--collective` and `--ranks`"
        )
        raise InputError(
            f"no table is what {options} say: {_named(meant)}",
            source=source,
            hint=hint,
        )
    # Two of one file may be of a machine and of several, but not twice the same.
    where = {(one.source, one.ranks, one.hosts) for one in found}
    types = {one.dtype for one in found if one.dtype}
    several = len({one.collective for one in found}) > 1 or len(types) > 1
    if len(found) > most or several or (len(where) < len(found) and most > 1):
        options = "`--table`, `--collective` or `--ranks`"
        if len({one.dtype for one in tables}) > 1:
            options = "`--table`, `--type`, `--collective` or `--ranks`"
        raise InputError(
            f"there are {len(tables)} tables: {_named(tables)}",
            source=source,
            hint=f"name one by {options}" + (", or give a file for each" if most > 1 else ""),
        )
    return found


def _named(tables: Sequence[Table]) -> str:
    """Each by what it differs in; of several with its number."""
    names = [
        f"{one.collective or 'of no name'} over {one.ranks or 'untold'} ranks" for one in tables
    ]
    for told in (
        [f" of {one.dtype}" if one.dtype else "" for one in tables],
        [f" of {one.redop}" if one.redop else "" for one in tables],
        [f" on {show_count(one.hosts, 'machine')}" if one.hosts else "" for one in tables],
    ):
        if len(set(told)) > 1 and len(set(names)) < len(names):
            names = [name + more for name, more in zip(names, told, strict=True)]
    if len(names) == 1:
        return names[0]
    return ", ".join(f"{number} is {name}" for number, name in enumerate(names, 1))


def bounds(rates: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return between what the bus bandwidth over the algorithm's is; None if rows contradict.

    Args:
        rates: Algorithm and bus bandwidth of rows, GB/s, rounded to two digits.
    """
    low = max((bus - _ROUNDED) / (alg + _ROUNDED) for alg, bus in rates)
    high = min((bus + _ROUNDED) / max(alg - _ROUNDED, 1e-9) for alg, bus in rates)
    return (low, high) if low <= high else None


def ranks_of(
    collective: str, rates: Sequence[tuple[float, float]], told: int | None = None
) -> int | None:
    """Return how many ranks make these bandwidths; None if any number does.

    Rounded to two digits they leave several numbers of ranks: of these the one that is told, else
    the one that the largest power of two divides.

    Args:
        collective: As of `AROUND`.
        rates: Algorithm and bus bandwidth of rows, GB/s.
        told: How many are listed, if they are.
    """
    around = AROUND.get(collective)
    if around is None or around(2) == around(3) or not rates:
        return None
    found = bounds(rates)
    if found is None:
        found = (median(bus / max(alg, 1e-9) for alg, bus in rates),) * 2
    low, high = found
    fitting = [n for n in range(2, _MOST) if low <= around(n) <= high]
    if told in fitting:
        return told
    if not fitting:
        return min(range(2, _MOST), key=lambda n: abs(around(n) - (low + high) / 2))
    return max(fitting[:_MOST], key=lambda n: (n & -n, -n))
