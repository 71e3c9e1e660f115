"""Tables that users have posted, judged by `expect`: verdicts beside those of the posters.

A folder has tables and `index.csv`, a line a table: `file`, `gpu`, `network`, `verdict` (which
begins with what it was, such as `healthy` or `sick`). The network of each is made of these columns
alone: the links of that GPU (datasheets) and as many interfaces as the poster had. Each is judged
as `allrail expect` judges it; `as expected` must be what was healthy, and nothing else.

`HOST_US` and the thresholds of `calibrate` were chosen with the tables in `BUILT_WITH` in view; all
others are held out, and counted apart.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.base.units import show_count
from allrail.measure.calibrate.expected import cluster_for, rows_of
from allrail.measure.calibrate.judge import judge
from allrail.measure.calibrate.nccl import Cluster, ways
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import AROUND, Table

BUILT_WITH = (
    "a100x8_nvlink_allgather_v29.txt",
    "a100x8_nvlink_allreduce_v29.txt",
    "a100x8_nvlink_alltoall_v29.txt",
    "gb200_2racks_allreduce.txt",
    "gb200x1440_20racks_allreduce.txt",
    "h100x16_efa_p5_allreduce.txt",
    "h100x16_gcp_a3mega_tcpxo_allreduce.txt",
    "h100x16_roce_oci_allreduce.txt",
    "h100x8_nvlink_allreduce.txt",
    "issue_nccl1244_h20x16_nvlstree_partial.txt",
    "issue_nccl1453_h100_sick_allreduce_partial.txt",
    "issue_nccl527_p4d_1to4nodes_allreduce_1GiB.txt",
    "issue_nccltests119_a100x24_hdr_allreduce_tail.txt",
    "issue_nccltests152_a100_after_fix_partial.txt",
    "torchdist_b200_1node_vs_4nodes.txt",
    "torchdist_h200x8_all_reduce_bench.txt",
)
"""Tables that were looked at while the model was built."""

_GPUS = (
    # What the column `gpu` holds; GB/s of all links a direction (datasheets), GPUs joined by them.
    (r"GB200", 900, 72),
    (r"B200", 900, 8),
    (r"H100|H200|H20\b", 450, 8),
    (r"MI300X", 448, 8),
    (r"A100", 300, 8),
    (r"V100", 150, 8),
    (r"2080 Ti", 50, 2),
    (r"A40", 32, 8),
    (r"RTX", 64, 8),
)
_SUMMING = r"H100|H200|H20\b|B200"
_SICK = ("sick", "slow", "below", "limited", "half", "erratic")


@dataclass(frozen=True)
class Verdict:
    """A table and what is said of it.

    Attributes:
        file: Its name.
        ranks: How many took part; None where it could not be judged.
        posted: Whether it is healthy by the index; None where that says neither.
        ours: Whether it is as expected; None where it could not be judged.
        large: Share of the expected bandwidth that the large sizes reach.
        causes: What may be the matter, the best explanation first.
        held_out: Whether it was not looked at while the model was built.
        why: Why it was not judged.
    """

    file: str
    ranks: int | None
    posted: bool | None
    ours: bool | None
    large: float | None = None
    causes: tuple[str, ...] = ()
    held_out: bool = True
    why: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether both say the same; None where one says nothing."""
        return None if self.posted is None or self.ours is None else self.posted == self.ours


@dataclass(frozen=True)
class Verdicts:
    """All of a folder.

    Attributes:
        rows: Each table.
    """

    rows: list[Verdict]

    @property
    def table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """The header and the rows as text."""
        header = ("file", "ranks", "posted", "ours", "large_%", "agrees", "held_out", "first_cause")
        return header, [_cells(one) for one in self.rows]

    @property
    def told(self) -> list[str]:
        """How many agree."""
        lines = []
        for name, some in (
            ("held out", [one for one in self.rows if one.held_out]),
            ("looked at while the model was built", [one for one in self.rows if not one.held_out]),
            ("all", self.rows),
        ):
            judged = [one for one in some if one.agrees is not None]
            right = sum(bool(one.agrees) for one in judged)
            lines.append(
                f"{name}: {right} of {show_count(len(judged), 'verdict agrees', 'verdicts agree')}"
            )
        left = [one for one in self.rows if one.agrees is None]
        lines += [f"not judged: {one.file}: {one.why}" for one in left]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """It as plain values."""
        keys = ("file", "ranks", "posted", "ours", "large", "held_out", "agrees", "why")
        rows = [
            {key: getattr(one, key) for key in keys} | {"causes": list(one.causes)}
            for one in self.rows
        ]
        return {"rows": rows, "told": self.told}


def run(folder: Path) -> Verdicts:
    """Judge every table of a folder.

    Args:
        folder: Tables and their `index.csv`.

    Raises:
        InputError: There is no index, or it has no such columns.
    """
    index = folder / "index.csv"
    if not index.is_file():
        raise InputError(
            "there is no `index.csv`",
            source=str(folder),
            hint="give a folder of tables whose `index.csv` has file, gpu, network, verdict",
        )
    with index.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    missing = {"file", "gpu", "network", "verdict"} - set(lines[0] if lines else ())
    if missing:
        raise InputError(f"it has no column `{min(missing)}`", source=str(index), hint="add it")
    return Verdicts([one for line in lines for one in _of_file(folder, line)])


def _of_file(folder: Path, line: Mapping[str, str]) -> Iterable[Verdict]:
    name = line["file"]
    held = name not in BUILT_WITH
    try:
        tables = read_tables(folder / name)
    except InputError as error:
        yield Verdict(name, None, None, None, held_out=held, why=error.why)
        return
    for read in tables:
        ranks = read.ranks or _number(line.get("gpus", ""))
        table = replace(read, ranks=ranks)
        posted = _posted(line["verdict"], table)
        if posted is None:
            why = f"the index says neither: {line['verdict'][:60]}"
            yield Verdict(name, ranks, None, None, held_out=held, why=why)
            continue
        try:
            yield _judged(table, line, posted=posted, held=held)
        except InputError as error:
            why = "; ".join(filter(None, (error.why, error.hint)))
            yield Verdict(name, ranks, posted, None, held_out=held, why=why)


def _judged(table: Table, line: Mapping[str, str], *, posted: bool, held: bool) -> Verdict:
    if table.collective not in AROUND:
        raise InputError("its collective is not known")
    cluster = cluster_in(table, line)
    found = rows_of(
        ways(cluster, table.collective),
        table.collective,
        cluster.ranks,
        [row.bytes for row in table.rows],
        {row.bytes: row.time_us for row in table.rows},
    )
    judged = judge(found, cluster, table.collective, several=cluster.nodes > 1)
    return Verdict(
        line["file"],
        cluster.ranks,
        posted,
        judged.healthy,
        judged.large,
        tuple(one.what for one in judged.causes),
        held,
    )


def cluster_in(table: Table, line: Mapping[str, str]) -> Cluster:
    """Return the machines that a line of an index describes.

    Args:
        table: With its ranks.
        line: Its columns `gpu`, `network`, `nodes`.

    Raises:
        InputError: The GPU is not known, or ranks do not fill machines.
    """
    gpu, network = line["gpu"], line["network"]
    known = next(((rate, each) for words, rate, each in _GPUS if re.search(words, gpu)), None)
    if known is None:
        raise InputError(f"no such GPU is known: {gpu}")
    rate, each = known
    ranks = table.ranks or 0
    hosts = table.hosts or _nodes(line, ranks, each)
    inside = min(each, -(-ranks // hosts)) if each == 8 else each
    count, speed = _interfaces(network, inside)
    dimensions = [
        {"kind": "switch", "size": each, "bandwidth": f"{rate} GB/s", "latency": "0 us"},
        {"kind": "switch", "size": 4096, "bandwidth": f"{speed} Gb/s", "latency": "0 us"},
    ]
    one = replace(table, hosts=hosts if hosts > 1 and each == 8 else None, device=gpu)
    cluster = cluster_for(dimensions, ranks, table=one, sums=bool(re.search(_SUMMING, gpu)))
    if cluster.nodes == 1:
        return cluster
    return replace(cluster, interfaces=count, interface=speed / 8)


def _interfaces(network: str, inside: int) -> tuple[int, float]:
    """Of a machine: how many interfaces, and Gb/s of each; one of 400 a GPU where nothing says."""
    said = network.split("(", maxsplit=1)[0]
    if "not stated" in said or "NVL72" in said:
        return inside, 400.0
    several = re.search(r"(\d+)x(\d+)", said)
    if several:
        return min(int(several[1]), 2 * inside), float(several[2])
    total = re.search(r"(\d+) Gb/s per node", said)
    if total:
        return inside, float(total[1]) / inside
    one = re.search(r"(\d+) Gb/s", said)
    if one:
        return 1, float(one[1])
    if "Socket" in said:
        return 1, 100.0
    return inside, 400.0


def _nodes(line: Mapping[str, str], ranks: int, each: int) -> int:
    told = _number(line.get("nodes", ""))
    if told and "/" not in line.get("nodes", "") and "and" not in line.get("nodes", ""):
        return told
    return max(1, ranks // each)


def _number(text: str) -> int | None:
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else None


def _posted(verdict: str, table: Table) -> bool | None:
    """Whether a verdict calls a table healthy; None where it says neither."""
    text = verdict.lower()
    several = re.match(r"1 node healthy[^;]*; *multi-node.*below", text)
    if several:
        return table.ranks is not None and table.ranks <= 8
    if "healthy" in text:
        return True
    if "not comparable" in text:
        return None
    if text.lstrip('"').startswith(_SICK):
        return False
    return None


def _cells(one: Verdict) -> list[str]:
    def word(value: bool | None, yes: str, no: str) -> str:  # noqa: FBT001
        return "-" if value is None else yes if value else no

    return [
        one.file,
        str(one.ranks or "-"),
        word(one.posted, "healthy", "sick"),
        word(one.ours, "healthy", "sick"),
        "-" if one.large is None else f"{100 * one.large:.0f}",
        word(one.agrees, "yes", "no"),
        "yes" if one.held_out else "no",
        one.causes[0].split(":")[0].split(" (")[0].replace(" ", "_") if one.causes else "-",
    ]
