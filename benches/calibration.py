"""How far a calibrated fabric predicts what it has not seen: `python benches/calibration.py`.

(a) Tables drawn from random fabrics of two and three dimensions, by generators that share no code
with the simulator (`drawn_networks.py`): `stages` runs 64 chunks through one server a dimension,
first come, first served, with the steps of rings or of halving; `in_turn` runs stages uncut, one
after the other; `ring` lets every rank of one ring over all ranks send to the next, hop by hop;
`nccl` is the faster of that and a tree. Every time has noise of 3 %. Calibrated on all-reduces of
one machine and of two numbers of machines, at every fourth power of two, predictions are held
against other sizes, other numbers of machines and other collectives: as `allrail expect FABRIC`
makes them (of what the tables show to run), and as `allrail simulate` does (the default schedule,
another one in three of five). `missed` says which of the bounds are not met.

(b) Half of the tables that users have posted of one machine and of several, the other half held out
(`nccl` in the folder that `ALLRAIL_REFERENCE` names, else in `../shared/reference`; skipped where
it is missing).

Printed are, for each, how many predictions there are, the median and the 95th percentile of their
distance, and how many lie within the error that the fabric carries for them. Of (b) also how far
each held size is from the curve through its two neighbours, both of them known: what no curve
through half of the sizes can be expected to beat.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from allrail.measure.calibrate.network import Calibrated, calibrate
from allrail.measure.calibrate.predict import default_us
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import Row, Table

sys.path.insert(0, str(Path(__file__).parent))

from drawn_networks import TRUTHS, Network, Truth

BESIDE = Path(__file__).parents[2] / "shared" / "reference"
POSTED = Path(os.environ.get("ALLRAIL_REFERENCE") or BESIDE) / "nccl"
NOISE = 0.03
GIVEN = [1 << power for power in range(12, 33, 2)]
ASKED = [3 << power for power in range(12, 31, 3)]
MESSAGES = "all-to-alls"
MEDIAN, MOST, COVERED = 0.05, 0.15, 0.90
"""What (a) is judged by: the median and 95 % of distances, and the share within the error bars."""


def table(truth: Truth, part: Sequence[int], draw: random.Random) -> Table:
    """An all-reduce's table, with noise."""
    rows = tuple(
        Row(size, truth("all_reduce", part, size) * math.exp(draw.gauss(0, NOISE)))
        for size in GIVEN
    )
    ranks = math.prod(part)
    return Table("all_reduce", ranks, ranks // part[0], "", rows, f"{ranks}.txt")


def drawn(name: str, seed: int) -> tuple[Calibrated, list[tuple[str, float, float]]]:
    """A calibration; of each prediction its kind, how far `expect` is off, and `simulate`."""
    draw = random.Random(seed)
    network = Network(draw, 2 + seed % 2)
    truth = TRUTHS[name](network)
    whole = list(network.sizes)
    one = [whole[0], *[1] * (len(whole) - 1)]
    few = [whole[0], whole[1], *[1] * (len(whole) - 2)] if len(whole) > 2 else [whole[0], 2]
    given = [one, few, whole]
    if len(whole) > 2:
        given.insert(1, [whole[0], 2, 1])
    made = calibrate([table(truth, part, draw) for part in given])
    dimensions = made.fabric["dimensions"]
    sizes = [int(one["size"]) for one in dimensions]
    other = [whole[0], whole[1], 2] if len(whole) > 2 else [whole[0], whole[1] // 2]
    found = []
    for kind, part, collective in [
        ("other sizes", whole, "all_reduce"),
        ("other sizes", one, "all_reduce"),
        ("other machines", other, "all_reduce"),
        ("other collectives", whole, "all_gather"),
        ("other collectives", few, "reduce_scatter"),
        (MESSAGES, whole, "all_to_all"),
    ]:
        asked = spread(part[0], math.prod(part[1:]), sizes)
        for size in ASKED:
            real = truth(collective, part, size)
            told = made.predict_us(collective, asked, size)
            simulated = default_us(collective, asked, dimensions, size)
            found.append((kind, told / real - 1, simulated / real - 1))
    return made, found


def spread(inside: int, machines: int, sizes: Sequence[int]) -> list[int]:
    """Ranks on each dimension of so many machines, one dimension filled after the other."""
    found = [inside]
    for size in sizes[1:]:
        found.append(math.gcd(size, machines) if len(found) < len(sizes) - 1 else machines)
        machines //= found[-1]
    return found


def missed(off: Sequence[tuple[float, float]]) -> list[str]:
    """Which of the bounds of (a) predictions miss.

    Args:
        off: How far each is off, and the error that its fabric carries for it.
    """
    ordered = sorted(abs(one) for one, _ in off)
    middle, high = ordered[len(ordered) // 2], ordered[math.ceil(0.95 * len(ordered)) - 1]
    inside = _share(abs(one) <= bar for one, bar in off)
    return [
        f"{what} {100 * value:.1f} %"
        for what, value, over in (
            ("median", middle, middle > MEDIAN),
            ("95 %", high, high > MOST),
            ("in bars", inside, inside < COVERED),
        )
        if over
    ]


def show(name: str, off: Sequence[float], bar: float | None) -> None:
    """Print a line."""
    ordered = sorted(map(abs, off))
    middle = ordered[len(ordered) // 2]
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    within = "" if bar is None else f"{100 * bar:6.0f} %"
    print(f"{name:42} {len(ordered):5} {100 * middle:7.1f} % {100 * high:7.1f} % {within}")


def first(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Judge (a)."""
    print(f"{'(a) drawn tables, noise 3 %':42} {'count':>5} {'median':>9} {'95 %':>9}   in bars")
    for name in names:
        off: dict[str, list[tuple[float, float, bool, bool]]] = {}
        told: list[tuple[float, float]] = []
        ran: dict[str, int] = {}
        for seed in seeds:
            made, found = drawn(name, seed)
            ran[made.ran] = ran.get(made.ran, 0) + 1
            bars = made.fabric["library"]["error"], made.fabric["error"]
            for kind, ours, default in found:
                within = abs(ours) <= bars[0], abs(default) <= bars[1]
                off.setdefault(kind, []).append((ours, default, *within))
                if kind != MESSAGES:
                    told.append((ours, bars[0]))
        for kind, each in off.items():
            show(f"{name}: {kind}", [one[0] for one in each], _share(one[2] for one in each))
        # No table is of an all-to-all: what the simulator's has beyond a tool's is its own.
        rest = [one for kind, each in off.items() if kind != MESSAGES for one in each]
        for words, place in (("expect", 0), ("simulate", 1)):
            inside = _share(one[2 + place] for one in rest)
            show(f"   all but {MESSAGES}, `{words}`", [one[place] for one in rest], inside)
        default = [one[1] for one in off[MESSAGES]]
        show(f"   {MESSAGES}, `simulate`", default, _share(one[3] for one in off[MESSAGES]))
        print("   taken for:", ", ".join(f"{one} ({times})" for one, times in ran.items()))
        print("   bounds of `expect`:", ", ".join(missed(told)) or "met")


def _share(inside: Iterable[bool]) -> float:
    found = list(inside)
    return sum(found) / len(found)


def halves(tables: Sequence[Table]) -> list[tuple[str, list[Table], list[Table]]]:
    """Ways to halve a set: every second size; or tables, where each has one."""
    if min(len(each.rows) for each in tables) > 3:
        return [
            (
                f"every second size, from the {word}",
                [_rows(each, each.rows[begin::2]) for each in tables],
                [_rows(each, each.rows[1 - begin :: 2]) for each in tables],
            )
            for begin, word in ((0, "first"), (1, "second"))
        ]
    one, *others = tables
    return [
        (
            f"{one.ranks} and {given.ranks} ranks",
            [one, given],
            [other for other in others if other is not given],
        )
        for given in others
    ]


def _rows(each: Table, rows: Sequence[Row]) -> Table:
    return Table(each.collective, each.ranks, each.hosts, each.device, tuple(rows), each.source)


def second() -> None:
    """Judge (b)."""
    if not POSTED.is_dir():
        print(f"(b) skipped: {POSTED} is not here; set ALLRAIL_REFERENCE")
        return
    print(
        f"{'(b) posted tables, the other half':42} {'count':>5} {'median':>9} {'95 %':>9}   in bars"
    )
    for name in (
        "issue_nccl527_p4d_1to4nodes_allreduce_1GiB.txt",
        "torchdist_b200_1node_vs_4nodes.txt",
        "torchdist_4nodes_all_reduce_bench.txt",
        "torchdist_h200x8_all_reduce_bench.txt",
    ):
        for words, given, held in halves(read_tables(POSTED / name)):
            made = calibrate(given)
            off = []
            for each in held:
                sizes = [int(one["size"]) for one in made.fabric["dimensions"]]
                ranks = each.ranks or 0
                part = spread(min(sizes[0], ranks), max(1, ranks // sizes[0]), sizes)
                off += [
                    made.predict_us(str(each.collective), part, row.bytes) / row.time_us - 1
                    for row in each.rows
                ]
            within = sum(abs(one) <= made.fabric["library"]["error"] for one in off) / len(off)
            show(f"{name.split('_allreduce')[0][:24]}: {words}"[:42], off, within)
            print("   taken for:", made.ran)
            if near := between(given, held):
                show("   between the two known neighbours", near, None)


def between(given: Sequence[Table], held: Sequence[Table]) -> list[float]:
    """How far held sizes are from the line through their neighbours, in logarithms."""
    found = []
    for known, rest in zip(given, held, strict=False):
        times = {row.bytes: row.time_us for row in known.rows}
        for row in rest.rows:
            below, above = times.get(row.bytes // 2), times.get(2 * row.bytes)
            if below is not None and above is not None:
                found.append(math.sqrt(below * above) / row.time_us - 1)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fabrics", type=int, default=12, help="Random fabrics of each kind")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first fabric")
    parser.add_argument("--kind", choices=TRUTHS, action="append", help="Of (a), this kind alone")
    parser.add_argument("--posted", action="store_true", help="(b) alone")
    asked = parser.parse_args()
    if not asked.posted:
        first(asked.kind or list(TRUTHS), range(asked.first, asked.first + asked.fabrics))
    second()
