"""What a record says to people: times, who was waited for, predicted beside measured.

    print(report_of(record))

| in the table | what it is |
|---|---|
| step | from the end of one backward pass to that of the next; median, and its 95 % interval |
| exposed | of it, how long the script waited for gradients |
| a dimension | how long a stage was under way on it, what this rank sent, that over the time |
| waited for | the tensors with most of the exposed time |
| predicted | what the simulator says for the same tensors, compute times and settings |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from statistics import median, quantiles
from typing import Any

from allrail.base.foreign import printable
from allrail.runtime.predict import Prediction, predict
from allrail.runtime.record import Record
from allrail.runtime.steps import Step, steps_of
from allrail.scenario.dimensions import aggregate

_MOST_TENSORS = 8
_LATE_SHARE = 0.5
"""A rank is late if it was so in half of what was seen of it, and"""
_LATE_OF_STEP = 0.02
"""by more than this share of a step."""
_SLOW = 0.5
"""A dimension is slow that carries less than this share of what was planned with, at its best:"""
ENOUGH = 1 << 18
"""over so many bytes at a time."""


@dataclass(frozen=True, slots=True)
class Use:
    """A dimension in the steps that were seen.

    Attributes:
        dimension: Its number.
        busy: The share of the time in which a stage was under way.
        bytes_per_step: What this rank has sent.
        gbps: The same over the time in which it was busy, Gb/s.
        best_gbps: The upper quartile of that over its busy times; None if too little was sent.
        planned_gbps: What plans are made with, Gb/s; None if not known.
    """

    dimension: int
    busy: float
    bytes_per_step: float
    gbps: float
    best_gbps: float | None
    planned_gbps: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """See the module; times in milliseconds.

    Attributes:
        rank: Whose.
        ranks: How many there are.
        steps: How many were seen whole.
        step_ms: The median; None if none was.
        interval_ms: Of the median, at 95 %.
        exposed_ms: The median; None likewise.
        dimensions: None of a transport that does not tell.
        waited: The tensors that were waited for most, with the mean per step.
        predicted: What the simulator says.
        unpredicted: Why it says nothing; empty if it does.
        difference: Predicted over measured, less one.
        findings: Who is late, which dimension is slow: a line each.
        barriers: How many steps waited for a whole view, by cause.
        lost: Records of the node that were overwritten.
        exchange: What came of trying ways to exchange, or of planning anew; empty if neither was.
    """

    rank: int
    ranks: int
    steps: int
    step_ms: float | None
    interval_ms: tuple[float, float] | None
    exposed_ms: float | None
    dimensions: tuple[Use, ...]
    waited: tuple[tuple[str, float], ...]
    predicted: Prediction | None
    unpredicted: str
    difference: float | None
    findings: tuple[str, ...] = ()
    barriers: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    exchange: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, under the same names."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the table."""
        return printable("\n".join(_lines(self)), lines=True)


def report_of(record: Record) -> Report:
    """Return the report of one rank.

    Args:
        record: What it has recorded.
    """
    steps = steps_of(record)
    times = [(step.end - step.start) / 1e6 for step in steps]
    step_ms = median(times) if times else None
    predicted = predict(record, steps)
    found = predicted if isinstance(predicted, Prediction) else None
    uses = _uses(record, steps)
    return Report(
        rank=record["rank"],
        ranks=record["ranks"],
        steps=len(steps),
        step_ms=step_ms,
        interval_ms=_interval(times) if times else None,
        exposed_ms=median(step.waited / 1e6 for step in steps) if steps else None,
        dimensions=uses,
        waited=_waited(record, steps),
        predicted=found,
        unpredicted="" if isinstance(predicted, Prediction) else predicted,
        difference=None if found is None or not step_ms else found.step_ms / step_ms - 1,
        findings=(*_late(record, step_ms or 0.0), *_slow(record, uses)),
        barriers=dict(record["barriers"]),
        lost=record["timeline"]["lost"] if record["timeline"] else 0,
        exchange=record.get("exchange", ""),
    )


def _interval(times: Sequence[float]) -> tuple[float, float]:
    """Between order statistics, whatever the distribution."""
    ordered = sorted(times)
    half = 0.98 * len(ordered) ** 0.5
    low = max(0, int(len(ordered) / 2 - half))
    high = min(len(ordered) - 1, int(len(ordered) / 2 + half))
    return ordered[low], ordered[high]


def _waited(record: Record, steps: Sequence[Step]) -> tuple[tuple[str, float], ...]:
    total: dict[int, int] = {}
    for step in steps:
        for tensor, time in step.waits.items():
            total[tensor] = total.get(tensor, 0) + time
    most = sorted(total.items(), key=lambda each: -each[1])[:_MOST_TENSORS]
    return tuple(
        (record["tensors"][tensor]["name"], time / len(steps) / 1e6)
        for tensor, time in most
        if tensor >= 0 and time > 0
    )


def merged(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the times in which any span was open, each with the sum of what the spans have.

    Args:
        spans: Start, end, and what each has, such as bytes.
    """
    found: list[tuple[int, int, int]] = []
    for start, end, amount in sorted(spans):
        if found and start <= found[-1][1]:
            first, last, before = found[-1]
            found[-1] = (first, max(last, end), before + amount)
        else:
            found.append((start, end, amount))
    return found


def _uses(record: Record, steps: Sequence[Step]) -> tuple[Use, ...]:
    timeline = record["timeline"]
    if timeline is None or not steps:
        return ()
    ended = [stage for stage in timeline["stages"] if stage["end"] is not None]
    begin, end = steps[0].start, steps[-1].end
    if timeline["lost"] and ended:
        begin = max(begin, ended[0]["start"])
    seen = [stage for stage in ended if stage["start"] >= begin and stage["end"] <= end]
    count = sum(step.start >= begin for step in steps)
    uses = []
    seen.sort(key=lambda stage: int(stage["dimension"]))
    for dimension, stages in groupby(seen, key=lambda stage: int(stage["dimension"])):
        spans = merged((each["start"], each["end"], each["bytes"]) for each in stages)
        busy = sum(last - first for first, last, _ in spans)
        sent = sum(amount for *_, amount in spans)
        large = [rate(*span) for span in spans if span[2] >= ENOUGH]
        uses.append(
            Use(
                dimension=dimension,
                busy=busy / max(1, end - begin),
                bytes_per_step=sent / max(1, count),
                gbps=rate(0, busy, sent),
                best_gbps=quantiles(large, n=4)[2] if len(large) >= 4 else None,
                planned_gbps=_planned(record, dimension),
            )
        )
    return tuple(uses)


def rate(start: int, end: int, sent: int) -> float:
    """Return Gb/s, which are bits per nanosecond; `sent` is in bytes, times in ns."""
    return 8 * sent / max(1, end - start)


def _planned(record: Record, dimension: int) -> float | None:
    dimensions = (record["settings"] or {}).get("dimensions", [])
    if dimension >= len(dimensions):
        return None
    return planned_gbps(dimensions[dimension])


def planned_gbps(dimension: Mapping[str, Any]) -> float:
    """Return what plans are made with, Gb/s.

    Args:
        dimension: Of a node's settings.
    """
    return 8e-9 * aggregate(dimension)


def _late(record: Record, step_ms: float) -> list[str]:
    """Who submits later than the others: by the times that ranks tell each other."""
    peers = (record["report"] or {}).get("peers", [])
    later = {peer["rank"]: peer["later"] for peer in peers if peer["later"]}
    typical = {rank: median(ns for _, ns in seen) for rank, seen in later.items()}
    if not typical:
        return []
    middle = median([0.0, *typical.values()])
    least = max(1e6, _LATE_OF_STEP * step_ms * 1e6)
    lines = []
    for rank, seen in later.items():
        by_tensor: dict[str, list[float]] = {}
        for name, ns in seen:
            if ns - middle > least:
                by_tensor.setdefault(name, []).append(ns - middle)
        late = sum(map(len, by_tensor.values()))
        if typical[rank] - middle <= least or late < _LATE_SHARE * len(seen):
            continue
        worst = sorted(by_tensor, key=lambda name: -median(by_tensor[name]))[:3]
        lines.append(
            f"rank {rank} is {(typical[rank] - middle) / 1e6:.0f} ms later than the median in"
            f" {100 * late / len(seen):.0f} % of what was seen: {', '.join(worst)}"
        )
    if -middle > least:
        lines.append(f"this rank is {-middle / 1e6:.0f} ms later than the median")
    return lines


def _slow(record: Record, uses: Sequence[Use]) -> list[str]:
    dimensions = (record["settings"] or {}).get("dimensions", [])
    lines = []
    for use in uses:
        if use.best_gbps is None or use.planned_gbps is None:
            continue
        interface = str(dimensions[use.dimension].get("interface", "127.0.0.1"))
        # Nobody has measured the loopback interface: what plans are made with is a guess.
        if interface.startswith("127.") or interface in {"lo", "::1"}:
            continue
        if use.best_gbps < _SLOW * use.planned_gbps:
            lines.append(
                f"dimension {use.dimension} carries {use.best_gbps:.2f} Gb/s at its best and is"
                f" planned with {use.planned_gbps:.2f}: look for a fault, or correct the fabric"
            )
    return lines


def _lines(report: Report) -> list[str]:
    many = "s" * (report.steps != 1)
    lines = [f"rank {report.rank} of {report.ranks}, {report.steps} step{many}"]
    if report.step_ms is None or report.interval_ms is None or report.exposed_ms is None:
        lines.append("no step was seen whole: three or more are needed")
    else:
        low, high = report.interval_ms
        share = 100 * report.exposed_ms / report.step_ms
        lines.append(f"step       {report.step_ms:10.3f} ms  (95 %: {low:.3f} to {high:.3f})")
        lines.append(f"exposed    {report.exposed_ms:10.3f} ms  ({share:.1f} % of the step)")
        if report.predicted is None:
            lines.append(f"predicted           -     ({report.unpredicted})")
        else:
            one = report.predicted
            note = f"; {one.note}" if one.note else ""
            lines.append(
                f"predicted  {one.step_ms:10.3f} ms  ({100 * (report.difference or 0):+.1f} %,"
                f" network model `{one.network_model}`{note})"
            )
            lines.append(f"  exposed  {one.exposed_ms:10.3f} ms")
    for use in report.dimensions:
        planned = "" if use.planned_gbps is None else f", planned with {use.planned_gbps:.2f}"
        lines.append(
            f"dimension {use.dimension}  busy {100 * use.busy:5.1f} %,"
            f" {use.bytes_per_step / 1e6:.3f} MB a step, {use.gbps:.2f} Gb/s while busy{planned}"
        )
    if report.waited:
        lines.append("waited for, ms a step:")
        lines += [f"  {time:9.3f}  {name}" for name, time in report.waited]
    if report.barriers:
        causes = ", ".join(f"{count} by `{cause}`" for cause, count in report.barriers.items())
        lines.append(f"whole views: {causes}")
    if report.exchange:
        lines.append(report.exchange)
    lines += [f"! {line}" for line in report.findings]
    if report.lost:
        lines.append(f"# overwritten, of the node's older records: {report.lost}")
    return lines
