"""The choice of dimensions, and of what tables were made by.

The fewest dimensions that explain the tables; the default schedule, unless something else explains
them much better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from allrail.base.errors import InputError
from allrail.measure.calibrate import agree
from allrail.measure.calibrate.fit import fit
from allrail.measure.calibrate.joint import Joint, solve
from allrail.measure.calibrate.levels import Levels, levels_of
from allrail.measure.calibrate.nic import check_need, check_rates, nic_rate
from allrail.measure.calibrate.ran import STAGES, forward_of, may_have_run, near_of, told_apart
from allrail.measure.calibrate.table import Table

_LATENCY_US = {"machine": 3.4, "between": 9.6}
"""Where no row tells: NCCL's `src/graph/tuning.cc`, a ring's step in Simple (as presets have)."""
_BETTER = 0.7
"""Times the loss of another: what leaves less explains the tables much better. Chosen with drawn
tables in view (`benches/calibration.py`): noise of 3 % on tables of the default schedule never tips
it to a library's algorithms there."""
_CONTRADICT = 1.5
"""Times the measured time of large sizes, by the best fit: then tables are not of one network."""
_PLAIN = 0.15
"""Loss of rows that are 4 % off: what explains them so needs no further dimension."""
_NOISE = 0.01
"""Loss of rows that are a hundredth off: less is as good."""


@dataclass(frozen=True, slots=True)
class Found:
    """A fit.

    Attributes:
        levels: Of which dimensions.
        joint: Their rates and latencies.
        ran: Under what.
        doubts: Tables that only some networks give together (`agree.py`).
        near: Other fits on as many dimensions that explain the tables nearly as well.
    """

    levels: Levels
    joint: Joint
    ran: str
    doubts: tuple[str, ...] = ()
    near: tuple[Found, ...] = ()


def fitted(tables: Sequence[Table], nic: float | None) -> tuple[Found, Found | None]:
    """Return what was fitted, and the library's own algorithms where these explain it as well.

    Args:
        tables: By ranks.
        nic: What the network interfaces of one rank carry, bytes a second; None where not known.

    Raises:
        InputError: They do not say enough, contradict each other, or are above what a network
            interface carries.
    """
    for table in tables:
        _check_sizes(table, len(tables))
    doubts = agree.check(tables, levels_of(tables)[0])
    found, own = _chosen(tables, nic)
    limit = nic_rate(tables, found.levels, nic)
    if limit is not None and found.joint.loss > _PLAIN:
        free, _ = _chosen(tables, math.inf)
        if free.joint.loss + _NOISE < _BETTER * (found.joint.loss + _NOISE):
            check_need(tables, free.levels, free.joint, limit)
    check_rates(
        tables, found.levels, found.joint, nic, forward=forward_of(found.ran, found.levels.between)
    )
    _check_faster(tables, found)
    if found.ran not in STAGES:
        own = found
    elif own is not None and (told_apart(found.levels) or own.levels != found.levels):
        # Several numbers of machines tell them apart, and these were the simulator's.
        own = None
    return replace(found, doubts=tuple(doubts)), own


def _chosen(tables: Sequence[Table], nic: float | None) -> tuple[Found, Found | None]:
    """What explains tables best, and the best of the library's own algorithms."""
    found: Found | None = None
    own: Found | None = None
    tried: list[Found] = []
    for levels in levels_of(tables):
        if found is not None and found.joint.loss < _PLAIN and _has_more(levels, found.levels):
            # More dimensions explain anything: fewer do.
            break
        limit = nic_rate(tables, levels, nic)
        between = len(levels.sizes) if levels.between is None else levels.between
        places = range(len(levels.sizes))
        steps = [_LATENCY_US["machine" if place < between else "between"] for place in places]
        most = [math.inf if limit is None or p < between else limit / 1e6 for p in places]
        for ran in may_have_run(tables, levels):
            least = math.inf if found is None else found.joint.loss
            about, near = near_of(ran, str(tables[0].collective)), None
            if about is not None:
                near = solve(tables, levels.parts, about, latencies=steps, most=most)
                if near.loss > least:
                    continue
            forward = forward_of(ran, levels.between)
            joint = solve(tables, levels.parts, forward, latencies=steps, most=most, start=near)
            this = Found(levels, joint, ran)
            tried.append(this)
            told = ran in STAGES or told_apart(levels)
            if found is None or (told and _is_better(joint, found.joint)):
                found = this
            if ran not in STAGES and (own is None or _is_better(joint, own.joint)):
                own = this
    if found is None:
        raise AssertionError("no dimensions were tried")
    as_good = tuple(
        one
        for one in tried
        if one.ran != found.ran
        and one.levels.sizes == found.levels.sizes
        and not _is_better(found.joint, one.joint)
    )
    return replace(found, near=as_good), own


def _has_more(one: Levels, other: Levels) -> bool:
    """Whether there are more dimensions; groups of other sizes are as many, and may fit better."""
    return len(one.sizes) > len(other.sizes)


def _is_better(one: Joint, other: Joint) -> bool:
    """Whether a fit explains tables much better than another one.

    Small and large sizes tell; where they do not, those between tell, where algorithms differ most:
    how a pipeline fills, and from where on a ring is faster than a tree.
    """
    if _much_less(one.loss, other.loss):
        return True
    return _much_less(one.alike, other.alike) and not _much_less(other.loss, one.loss)


def _much_less(one: float, other: float) -> bool:
    return one + _NOISE < _BETTER * (other + _NOISE)


def _check_faster(tables: Sequence[Table], found: Found) -> None:
    """Refuse a table that is faster than what it shares with another allows."""
    forward = forward_of(found.ran, found.levels.between)
    joint, first = found.joint, tables[0]
    for table, part in zip(tables[1:], found.levels.parts[1:], strict=True):
        times = [
            forward(table, part, joint.rates, joint.latencies, row.bytes) / row.time_us
            for row in table.rows[-3:]
        ]
        if median(times) > _CONTRADICT and table.ranks != first.ranks:
            raise InputError(
                f"it is faster than {first.ranks} ranks of it alone",
                source=table.source,
                hint="tables are of one network and one algorithm: check them, or give this one"
                " alone",
            )


def _check_sizes(table: Table, tables: int) -> None:
    """Refuse what has no rate."""
    made = fit(table.rows)
    if len({row.bytes for row in table.rows}) == 1:
        if tables == 1:
            raise InputError(
                "one size was measured: what it takes beside its bytes cannot be told",
                source=table.source,
                hint="measure sizes from a few KiB to hundreds of MiB: `-b 1K -e 1G -f 2`",
            )
        return
    if made.time_us(table.rows[-1].bytes) <= made.pieces[-1].fixed_us:
        raise InputError(
            "its largest size takes no longer than any other: its rate cannot be told",
            source=table.source,
            hint="measure larger sizes too, up to hundreds of megabytes",
        )
