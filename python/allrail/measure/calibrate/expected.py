"""What a table of nccl-tests should show on a fabric: NCCL's own algorithms, size by size.

    t(S) = HOST_US + the least over NCCL's algorithms and protocols (`nccl/model.py`)

HOST_US is fitted: what healthy single machines whose tables users have posted (8 A100, 8 H200; half
of the set, see `allrail reproduce verdicts`) take at up to 64 KiB beyond NCCL's own figure: 20 and
24 µs. It stands for launching the kernel and for what nccl-tests measure besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.measure.calibrate.nccl import Cluster, Way, cluster_of, fastest, ways
from allrail.measure.calibrate.predict import part_of, predict_us, tree_of
from allrail.measure.calibrate.table import AROUND, Table
from allrail.scenario.fabric import Fabric

HOST_US = 22.0


@dataclass(frozen=True, slots=True)
class Expected:
    """One size of a table.

    Attributes:
        bytes: Size of the buffer.
        expected_us: Time that the fabric should show, µs.
        expected_busbw: The same as bus bandwidth, GB/s.
        algorithm: Algorithm and protocol that NCCL runs at this size.
        measured_us: Measured time, µs; None where nothing was measured.
        measured_busbw: The same as bus bandwidth, GB/s.
    """

    bytes: int
    expected_us: float
    expected_busbw: float
    algorithm: str = ""
    measured_us: float | None = None
    measured_busbw: float | None = None

    @property
    def share(self) -> float | None:
        """Measured over expected bandwidth; None where nothing was measured."""
        return None if self.measured_us is None else self.expected_us / self.measured_us


def check(collective: str, ranks: int) -> None:
    """Refuse what cannot be expected.

    Args:
        collective: As of `AROUND`.
        ranks: How many take part.

    Raises:
        InputError: The collective is not known, or there is one rank.
    """
    if collective not in AROUND:
        raise InputError(
            "nccl-tests have no such collective",
            field="collective",
            value=collective,
            hint=did_you_mean(collective, tuple(AROUND)),
        )
    if ranks < 2:
        raise InputError(
            "one rank has nobody to send to",
            field="ranks",
            value=str(ranks),
            hint="give a table of two ranks or more",
        )


def expect(
    dimensions: Sequence[dict[str, Any]],
    *,
    collective: str,
    ranks: int,
    sizes: Sequence[int],
    table: Table | None = None,
    calibrated: bool = False,
    sums: bool = False,
) -> list[Expected]:
    """Return what a fabric should show of a collective.

    Args:
        dimensions: Dimensions of the fabric, innermost first.
        collective: As of `AROUND`.
        ranks: How many take part.
        sizes: Bytes.
        table: What was measured, if anything was.
        calibrated: Whether the fabric's rates were measured.
        sums: Whether switches sum although the fabric does not say so, where GPUs can (NVLS).

    Raises:
        InputError: The collective is not known, or the ranks are no part of the fabric.
    """
    check(collective, ranks)
    cluster = cluster_for(dimensions, ranks, table=table, calibrated=calibrated, sums=sums)
    measured = {} if table is None else {row.bytes: row.time_us for row in table.rows}
    return rows_of(ways(cluster, collective), collective, ranks, sizes, measured)


def cluster_for(
    dimensions: Sequence[dict[str, Any]],
    ranks: int,
    *,
    table: Table | None = None,
    hosts: int | None = None,
    calibrated: bool = False,
    sums: bool = False,
) -> Cluster:
    """Return what NCCL sees of the ranks of a table.

    Args:
        dimensions: Dimensions of the fabric, innermost first.
        ranks: How many take part.
        hosts: On how many machines; as the table says, else one filled after the other, if None.
        table: What was measured, with its machines and device, if anything was.
        calibrated: Whether the fabric's rates were measured.
        sums: Whether switches sum although the fabric does not say so, where GPUs can (NVLS).

    Raises:
        InputError: The ranks, or so many machines, are no part of the fabric.
    """
    told = None if table is None else table.hosts
    cluster = cluster_of(
        dimensions,
        ranks,
        hosts=told if hosts is None else hosts,
        device="" if table is None else table.device,
        calibrated=calibrated,
    )
    if hosts is not None and cluster.nodes != hosts:
        raise InputError(
            f"{ranks:,} ranks are not on so many machines of the fabric",
            field="machines",
            value=str(hosts),
            hint="the first dimension is a machine: ranks are a multiple of machines, and each"
            " has as many as its `size` or fewer",
        )
    able = cluster.generation.nvls > 0 and cluster.each > 1 and not cluster.pcie
    return replace(cluster, sums=cluster.sums or (sums and able))


def rows_of(
    found: Sequence[Way],
    collective: str,
    ranks: int,
    sizes: Sequence[int],
    measured: dict[int, float],
) -> list[Expected]:
    """Return a row for each size.

    Args:
        found: What NCCL may run.
        collective: As of `AROUND`.
        ranks: How many take part.
        sizes: Bytes.
        measured: Times by size, µs.
    """
    around, rows = AROUND[collective](ranks), []
    for size in sizes:
        time, way = fastest(found, size)
        time += HOST_US
        seen = measured.get(size)
        rows.append(
            Expected(
                size,
                time,
                around * size / time / 1e3,
                way.name,
                seen,
                None if seen is None else around * size / seen / 1e3,
            )
        )
    return rows


def as_measured(
    fabric: Fabric, rows: Sequence[Expected], collective: str, ranks: int, hosts: int | None
) -> list[Expected]:
    """Return rows as the tables say that a fabric was calibrated from (`predict.py`).

    Args:
        fabric: With what was measured of a library.
        rows: By size.
        collective: As of `AROUND`.
        ranks: How many take part.
        hosts: On how many machines; None fills one after the other.
    """
    if fabric.library is None:
        return list(rows)
    tree = tree_of(fabric)
    part = part_of([one.size for one in fabric.dimensions], ranks, hosts)
    found = []
    for row in rows:
        time = predict_us(tree, collective, part, row.bytes)
        busbw = AROUND[collective](ranks) * row.bytes / time / 1e3
        found.append(replace(row, expected_us=time, expected_busbw=busbw, algorithm="as measured"))
    return found
