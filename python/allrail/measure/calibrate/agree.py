"""Whether tables can be of one network and one algorithm.

Of two tables of a collective, on g ranks of each of h machines, the one on more machines moves at
least as many bytes over every link of the other, and over further links besides. Its size over its
time is therefore at most

    same g, more h                 1       (all-to-all: (1 − 1/g) / (1 − 1/h), see below)
    fewer g, both over machines    g'/g · h'/(h' − 1) · (n − 1)/n     (a ring, and stages beside)
    fewer g, both on one machine   (g' − 1)/(g − 1): links may be of pairs, not of a switch

times the other's, n = g·h. Of an all-to-all, whose bytes within a machine become fewer with more
machines, that holds where interfaces are no faster than links. A bus bandwidth counts 2(n − 1)/n
of the size, so of an all-reduce it may grow by as much, 1.125 from 8 ranks to many.

What is above by more than repeated runs differ is refused where no network has it, and said where
a network of another kind may.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from allrail.base.errors import InputError
from allrail.base.units import show_count
from allrail.measure.calibrate.fit import Fit, fit
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.shape import LARGE, size_text
from allrail.measure.calibrate.table import AROUND, Table

APART = 1.15
"""Repeated runs of posted tables differ by 5 %; so much more is another network or algorithm."""
_FIXED_APART = 2.0
"""The same where most of the time is fixed: that of posted tables differs by half."""
_BYTES = 1.0
"""Times the fixed part of its time, from where on a size tells of bytes."""
_ONE_MACHINE = 16
"""Ranks: as many may be one machine where no list of ranks says (a DGX-2 has 16)."""
_RACK = re.compile(r"\bGB[23]00\b")
"""Devices of which a machine has 72 (GB200 NVL72)."""
_LEFT = 1.15
"""Between two tables, what the best fit may leave unsaid."""
_HINT = (
    "tables are of one network, algorithm and library: check which is which, or calibrate each"
    " alone"
)
_NOT_LINKS = re.compile(r"(?i)\b(NVIDIA|AMD|Instinct|Tesla|HBM\w*|\d+ ?GB|OAM)\b|-\d+ ?GB\b")
"""Of a device's name, what does not tell its links."""
_LINKS_OF = {"H200": "H100 80GB HBM3", "GH200": "H100 80GB HBM3"}
"""Devices with the links of another (datasheets)."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A table, its fit, and where its ranks lie."""

    table: Table
    fit: Fit
    each: int
    hosts: int

    @property
    def told(self) -> bool:
        """Whether the table says on how many machines it is."""
        return bool(self.table.hosts)

    @property
    def ranks(self) -> int:
        return self.each * self.hosts

    @property
    def name(self) -> str:
        where = f" on {show_count(self.hosts, 'machine')}" if self.told else ""
        return f"{self.ranks:,} ranks{where}"


@dataclass(frozen=True, slots=True)
class _Faster:
    """A table that is `factor` times as fast as another allows; up to `slack`, runs differ."""

    first: _Known
    second: _Known
    factor: float
    slack: float
    size: int
    sure: bool

    @property
    def said(self) -> str:
        """It in words: the second table's part stands in the message's source."""
        one, other = self.second, self.first
        file = "" if one.table.source == other.table.source else f" of {other.table.source}"
        return (
            f"its {one.name} reach {_busbw(one, self.size):.4g} GB/s at {size_text(self.size)}, the"
            f" {other.name}{file} {_busbw(other, self.size):.4g}: {self.factor:.3g}"
            " times what one network allows"
        )


def check(tables: Sequence[Table], levels: Levels) -> list[str]:
    """Refuse tables that no network gives together; return what only some networks do.

    Args:
        tables: By ranks, of one collective.
        levels: Where they lie.

    Raises:
        InputError: Names the faster table and the other one, their bandwidths and the factor.
    """
    _check_devices(tables)
    known = [
        _Known(table, fit(table.rows), part[0], max(1, (table.ranks or 1) // part[0]))
        if levels.between != 0
        else _Known(table, fit(table.rows), 1, table.ranks or 1)
        for table, part in zip(tables, levels.parts, strict=True)
    ]
    found = [
        one for pair in combinations(known, 2) for one in _faster(*pair) if one.factor > one.slack
    ]
    sure = [one for one in found if one.sure]
    if sure:
        worst = max(sure, key=lambda one: one.factor / one.slack)
        raise InputError(worst.said, source=worst.second.table.source, hint=_HINT)
    return [
        f"{one.second.table.source}: {one.said}, unless its links are of pairs, switches sum, or"
        " interfaces are faster than links"
        for one in found
    ]


def unexplained(tables: Sequence[Table], off: Sequence[float]) -> list[str]:
    """Return what a fit averages: two tables whose large sizes it misses to opposite sides.

    Args:
        tables: By ranks.
        off: Of each, the fit's time of large sizes over the measured one, the median.
    """
    if len(tables) < 2:
        return []
    places = range(len(tables))
    low, high = min(places, key=lambda at: off[at]), max(places, key=lambda at: off[at])
    if off[high] / off[low] <= _LEFT:
        return []
    one, other = tables[high], tables[low]
    both = f"{one.source} ({one.ranks} ranks) and {other.source} ({other.ranks} ranks)"
    times = f"takes {off[high]:.2f} times as long as the first at large sizes, {off[low]:.2f} times"
    return [f"a network that explains both {both}: of what was tried, the best {times} the second"]


def _check_devices(tables: Sequence[Table]) -> None:
    named = [table for table in tables if table.device]
    for one, other in combinations(named, 2):
        if _links(one.device) != _links(other.device):
            raise InputError(
                f"it was measured on {other.device}, {one.source} on {one.device}: no network has"
                " the links of both",
                source=other.source,
                hint="calibrate each cluster alone",
            )


def _links(device: str) -> str:
    for name, like in _LINKS_OF.items():
        if re.search(rf"\b{name}\b", device):
            device = like
    return " ".join(re.split(r"[-\s]+", _NOT_LINKS.sub(" ", device))).strip().casefold()


def _faster(one: _Known, other: _Known) -> Iterator[_Faster]:
    """How much faster each is than the other, and how much it may be."""
    compared = _times(one, other)
    if compared is None:
        return
    factor, size, slack = compared
    if (one.each, one.hosts) == (other.each, other.hosts):
        # Twice the same: the faster of both stands second.
        first, second = (one, other) if factor >= 1 else (other, one)
        yield _Faster(first, second, max(factor, 1 / factor), slack, size, sure=True)
        return
    for first, second, ahead in ((one, other, factor), (other, one, 1 / factor)):
        allowed = _allowed(first, second)
        if allowed is None:
            continue
        switch, any_network = allowed
        sure = any_network is not None and ahead > any_network * slack
        most = any_network if sure and any_network else switch
        yield _Faster(first, second, ahead / most, slack, size, sure=sure)


def _allowed(one: _Known, other: _Known) -> tuple[float, float | None] | None:
    """How much faster another table may be: where switches join its ranks, and on any network.

    None stands for no limit.
    """
    collective = str(one.table.collective)
    if other.hosts < one.hosts or other.each < one.each:
        return None
    wider = other.each / one.each
    if one.hosts == 1 and (other.hosts == 1 or not _several(other)):
        # Links of pairs: more of them with more ranks.
        return 1.0, max(1.0, (other.ranks - 1) / (one.ranks - 1))
    if one.hosts == 1:
        if wider > 1:
            return None
        if collective != "all_to_all":
            return 1.0, 1.0
        return max(1.0, (1 - 1 / one.each) / (1 - 1 / other.hosts)), None
    if wider == 1:
        return 1.0, 1.0
    if collective == "all_to_all":
        return 1.0, None
    if collective in ("broadcast", "reduce", "sendrecv"):
        return wider, None
    ring = (one.ranks - 1) / one.ranks
    return wider * max(1.0, other.hosts / (other.hosts - 1) * ring), None


def _several(known: _Known) -> bool:
    """Whether ranks are surely on several machines."""
    return known.told or (known.ranks > _ONE_MACHINE and not _RACK.search(known.table.device))


def _times(one: _Known, other: _Known) -> tuple[float, int, float] | None:
    """The first's time over the second's at large sizes of both; a size, and what is noise."""
    low = max(one.table.rows[0].bytes, other.table.rows[0].bytes)
    high = min(one.table.rows[-1].bytes, other.table.rows[-1].bytes)
    sizes = sorted({row.bytes for each in (one, other) for row in each.table.rows})
    common = [size for size in sizes if low <= size <= high]
    if not common:
        return None
    top = [size for size in common[-3:] if size * LARGE >= common[-1]]
    factor = median(_time(one, size) / _time(other, size) for size in top)
    bytes_count = all(_is_bytes(each.fit, top[-1]) for each in (one, other))
    return factor, top[-1], APART if bytes_count else _FIXED_APART


def _time(known: _Known, size: int) -> float:
    """As measured; of a size that was not, by the fit."""
    found = [row.time_us for row in known.table.rows if row.bytes == size]
    return median(found) if found else known.fit.time_us(size)


def _is_bytes(made: Fit, size: int) -> bool:
    piece = made.pieces[-1]
    return piece.us_per_byte * size >= _BYTES * piece.fixed_us


def _busbw(known: _Known, size: int) -> float:
    around = AROUND[str(known.table.collective)](known.ranks)
    return around * size / _time(known, size) / 1e3
