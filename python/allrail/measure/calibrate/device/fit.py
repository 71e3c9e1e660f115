"""A device's file of what was measured, and what it predicts for each of these.

    peak         the fastest that any product of the format was, a single time
    reached      r with the least Σ |log(predicted / measured)| over its products, r <= 1
    cache        the same, of all formats together
    bandwidth    the fastest stream beyond all caches; `stream` the median part of it
    attention    rate and half likewise: seconds = FLOPs / rate · (1 + half / tokens) + starts
    start        from one kernel's end to the next one's work

Absolute distances of logarithms: a few shapes that were disturbed, or that the model does not fit,
do not move the rest. What is predicted is the core's, tiles and waves and all. Nothing that is
fitted may be faster than the peak that was measured: such a value is not taken, and where there is
no other, there is no file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.measure.calibrate.device.points import (
    Attention,
    Measured,
    Point,
    Product,
    Start,
    Stream,
    is_beyond,
)

_PARTS = [math.exp(math.log(0.005) * (1 - step / 120)) for step in range(121)]
"""Of a peak: each is 4.5 % above the one before; between two of them is refined."""
_HALVES = [0, *(round(16 * 1.1**step) for step in range(60))]
_FASTER = 1.005
"""Above the peak by so much is rounding."""
_FASTEST = 1e15
"""Bytes a second; more is no bandwidth."""
_AS_WELL = 0.002
"""Of two fits, the mean distance that makes no difference."""


@dataclass(frozen=True, slots=True)
class Found:
    """A device, and all that was measured of it.

    Attributes:
        name: As a tag.
        about: As its maker calls it.
        units: Over how many units tiles are shared out.
        memory: Bytes that it has.
        cache: Bytes of its largest cache.
        how: When, by what and how it was measured.
        measured: The points.
        notes: What was not measured, and why.
        warnings: What makes the times less than they seem.
    """

    name: str
    about: str
    units: int
    memory: int
    cache: int
    how: str
    measured: tuple[Measured, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A point beside its prediction.

    Attributes:
        measured: What was measured.
        predicted: Seconds that the file predicts.
        cached: Whether it is a stream that a cache holds, which a file knows nothing of.
    """

    measured: Measured
    predicted: float
    cached: bool = False

    @property
    def off(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured.seconds - 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """A device's file.

    Attributes:
        file: As `workload.compute.device` takes it.
        rows: Every point.
        notes: What the times do not tell.
    """

    file: dict[str, Any]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def fit(found: Found) -> Fitted:
    """Make a device's file of what was measured.

    Args:
        found: All of it.

    Raises:
        InputError: Something is missing, or is faster than the peak.
    """
    starts = {one.point.mode: one.seconds for one in found.measured if isinstance(one.point, Start)}
    if "eager" not in starts:
        raise _nothing("what starting a kernel costs")
    products = [one for one in found.measured if isinstance(one.point, Product)]
    peak = {
        name: max(_flops(one.point) / one.best for one in products if _format(one) == name)
        for name in dict.fromkeys(map(_format, products))
    }
    for name in ("fp32", "bf16"):
        if name not in peak:
            raise _nothing(f"products in {name}")
    start = starts.get("device", starts["eager"])
    notes: list[str] = []
    bandwidth, stream = _memory(found, start)
    cached = [
        one.point.bytes / one.seconds for one in found.measured if isinstance(one.point, Stream)
    ]
    file: dict[str, Any] = {
        "schema_version": 1,
        "name": found.name,
        "about": found.about,
        "source": found.how,
        "memory": f"{found.memory} B",
        "memory_bandwidth": _bandwidth(bandwidth),
        "peak": {name: _rate(value) for name, value in peak.items()},
        "kernels": {
            "units": found.units,
            "reached": dict.fromkeys(peak, 1.0),
            "cache_bandwidth": "1000 TB/s",
            "stream": stream,
            "start": _time(start),
            "launch": _launch(starts, start, notes),
            "attention": [],
        },
    }
    _products(file, products, max(cached), notes)
    file["kernels"]["attention"] = _attention(found, start, max(peak["fp32"], peak["bf16"]))
    rows = _rows(file, found)
    _refuse_faster(rows, peak)
    return Fitted(file, rows, tuple(notes))


def _flops(point: Point) -> float:
    return point.flops if isinstance(point, Product | Attention) else 0.0


def _format(one: Measured) -> str:
    return one.point.format if isinstance(one.point, Product) else ""


def _nothing(what: str) -> InputError:
    return InputError(
        f"{what} could not be measured",
        source="calibrate device",
        hint="is this PyTorch made for this device? what was not measured is named above",
    )


def _memory(found: Found, start: float) -> tuple[float, float]:
    """Bytes a second at best, and the part of them that is usual."""
    rates = [
        tuple(one.point.bytes / max(time - start, time / 2) for time in (one.best, one.seconds))
        for one in found.measured
        if isinstance(one.point, Stream) and is_beyond(one.point, found.cache)
    ]
    if not rates:
        raise _nothing("the memory's bandwidth")
    best = max(fastest for fastest, _ in rates)
    return best, round(min(1.0, median(usual for _, usual in rates) / best), 4)


def _launch(starts: dict[str, float], start: float, notes: list[str]) -> dict[str, str]:
    """Costs of the host; where a way was not measured, what the slower way costs."""
    eager = starts["eager"]
    compiled = min(starts.get("compiled", eager), eager)
    graph = min(starts.get("graph", compiled), compiled)
    if "compiled" not in starts:
        notes.append("launch.compiled: not measured, as eager")
    # A CPU's kernels are its host's: nothing waits, and nothing runs meanwhile.
    blocking = max(0.0, starts["blocking"] - start) if "blocking" in starts else 0.0
    return {
        "eager": _time(eager),
        "compiled": _time(compiled),
        "graph": _time(graph),
        "blocking": _time(blocking),
    }


def _products(
    file: dict[str, Any], products: Sequence[Measured], slowest: float, notes: list[str]
) -> None:
    """Put the parts that are reached, and the cache's bandwidth, into a file.

    The cache is as fast as the fastest copy, or faster.
    """
    kernels = file["kernels"]
    by = {name: [one for one in products if _format(one) == name] for name in file["peak"]}

    def best(cache: float) -> tuple[float, dict[str, float]]:
        kernels["cache_bandwidth"] = _bandwidth(cache)
        found, sum_of = {}, 0.0
        for name, mine in by.items():
            part, distance = _part(file, name, mine)
            found[name] = part
            sum_of += distance * len(mine)
        return sum_of / len(products), found

    tried = {rate: best(rate) for rate in _caches(slowest)}
    least = min(distance for distance, _ in tried.values())
    # The slowest cache that explains the times: what is not seen is not promised.
    cache = min(rate for rate, (distance, _) in tried.items() if distance <= least + _AS_WELL)
    unbound = tried[max(tried)][0] <= least + _AS_WELL
    _, parts = best(cache)
    kernels["reached"] = {name: round(part, 4) for name, part in parts.items()}
    if unbound:
        notes.append(
            "cache_bandwidth: no product is bound by it; what copies reach, or little more"
        )
    notes += [
        f"reached.{name}: the times ask for more than the peak, and do not get it"
        for name, part in parts.items()
        if part >= 1
    ]


def _caches(slowest: float) -> list[float]:
    """Bandwidths from that of the fastest copy on, as far as any is written."""
    return [min(_FASTEST, slowest * 1.5**step) for step in range(16)]


def _part(file: dict[str, Any], name: str, mine: Sequence[Measured]) -> tuple[float, float]:
    """The part of the peak, and the mean distance that it leaves."""
    reached = file["kernels"]["reached"]
    text = _kernels(mine)

    def distance(part: float) -> float:
        reached[name] = part
        predicted = _core.kernel_seconds(json.dumps(file), text)
        return sum(
            abs(math.log(said / one.seconds)) for said, one in zip(predicted, mine, strict=True)
        ) / len(mine)

    around = min(_PARTS, key=distance)
    step = _PARTS[1] / _PARTS[0]
    finer = [min(1.0, around * step ** (place / 10)) for place in range(-10, 11)]
    part = min(finer, key=distance)
    return part, distance(part)


def _attention(found: Found, start: float, peak: float) -> list[dict[str, Any]]:
    by: dict[tuple[str, int], list[tuple[Attention, float]]] = {}
    for one in found.measured:
        if isinstance(one.point, Attention):
            starts = start * (2 if one.point.backward else 1)
            seconds = max(one.seconds - starts, one.seconds / 10)
            by.setdefault((one.point.kind, one.point.head), []).append((one.point, seconds))
    rows = []
    for (kind, head), times in sorted(by.items()):
        ways = [[each for each in times if each[0].backward is way] for way in (False, True)]
        if not all(ways):
            continue
        fitting = []
        for half in _HALVES:
            rates = [_middle_rate(way, half) for way in ways]
            if max(rates) <= peak:
                fitting.append((sum(map(_left(half), ways, rates)), half, rates))
        if not fitting:
            raise InputError(
                f"attention of kind `{kind}` with heads of {head} is faster than the fastest"
                f" product, {_rate(peak)}",
                source="calibrate device",
                hint="products were held up: measure again, alone on the machine, or for longer",
            )
        _, half, (forward, backward) = min(fitting)
        rates_of = {"forward": _rate(forward), "backward": _rate(backward)}
        rows.append({"kind": kind, "head": head, **rates_of, "half": half})
    return rows


def _middle_rate(times: Iterable[tuple[Attention, float]], half: int) -> float:
    return median(one.flops * (1 + half / one.tokens) / seconds for one, seconds in times)


def _left(half: int) -> Any:
    def distance(times: Iterable[tuple[Attention, float]], rate: float) -> float:
        return sum(
            abs(math.log(one.flops * (1 + half / one.tokens) / rate / seconds))
            for one, seconds in times
        )

    return distance


def _kernels(measured: Iterable[Measured]) -> str:
    return json.dumps([one.point.kernel() for one in measured if not isinstance(one.point, Start)])


def _rows(file: dict[str, Any], found: Found) -> tuple[Row, ...]:
    said = iter(_core.kernel_seconds(json.dumps(file), _kernels(found.measured)))
    rows = []
    for one in found.measured:
        if isinstance(one.point, Start):
            rows.append(Row(one, _start_of(file, one.point.mode)))
        else:
            cached = isinstance(one.point, Stream) and not is_beyond(one.point, found.cache)
            rows.append(Row(one, next(said), cached))
    return tuple(rows)


def _start_of(file: dict[str, Any], mode: str) -> float:
    kernels = file["kernels"]
    start = _core.parse_quantity("time", kernels["start"]) / 1e12
    if mode == "device":
        return start
    cost = _core.parse_quantity("time", kernels["launch"][mode]) / 1e12
    return cost + start if mode == "blocking" else cost


def _refuse_faster(rows: Iterable[Row], peak: dict[str, float]) -> None:
    """Refuse a file by which anything is faster than the peak that was measured."""
    for row in rows:
        point = row.measured.point
        if not isinstance(point, Product | Attention):
            continue
        most = peak[point.format] if isinstance(point, Product) else max(peak.values())
        rate = point.flops / row.predicted
        if rate > _FASTER * most:
            raise InputError(
                f"the fit makes {point} run at {_rate(rate)}, and the fastest that was measured is"
                f" {_rate(most)}",
                source="calibrate device",
                hint="measure again, alone on the machine, or for longer",
            )


def _rate(flops: float) -> str:
    """As a file has it: four digits, rounded up, so that no time is better than its peak."""
    unit, factor = ("TFLOP/s", 1e12) if flops >= 1e12 else ("GFLOP/s", 1e9)
    value = flops / factor
    digits = max(0, 3 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f} {unit}"


def _bandwidth(rate: float) -> str:
    unit, factor = ("TB/s", 1e12) if rate >= 1e12 else ("GB/s", 1e9)
    return f"{rate / factor:.6g} {unit}"


def _time(seconds: float) -> str:
    return f"{round(seconds * 1e6, 3):g} us"
