"""Tables of DeepSpeed's communication logger: of a running job, one for each collective.

`deepspeed.comm.log_summary()` lists for each operation its sizes (of 1,024s, two digits), how many
calls there were, their mean latency in ms and two bandwidths in Gb/s; with `verbose` there is a
line of each call. The size is that of the tensor that a rank hands in: of an all-gather its part,
elsewhere the whole. The algorithm's bandwidth is size over latency times 1, 2 or the number of
ranks, by operation and version (DeepSpeed's `utils/comms_logging.py`); it has more digits than the
latency, which tells the factor. The ratio of both bandwidths tells the ranks: those of the job,
also where an operation is over fewer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain
from allrail.measure.calibrate.table import Row, Table

_NUMBER = r"(\d{1,12}(?:\.\d*)?)"
_SIZE = r"(\d{1,12}(?:\.\d*)?)\s*([KMGT]?B)"
_SUMMARY = re.compile(rf"^{_SIZE}\s+\d+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}$")
_CALL = re.compile(
    rf"comm op: (?P<name>\w+).*?\| time \(ms\): {_NUMBER} \| msg size: {_SIZE} \|"
    rf" algbw \(Gbps\): {_NUMBER}\s*\| busbw \(Gbps\): {_NUMBER}"
)
_HEAD = re.compile(r"Comm\. Op\s+Message Size\s+Count\s+Total Latency\(ms\)\s+Avg Latency")
_NAME = re.compile(r"^(?P<name>[a-z_]+)(?: \| \[Caller Func: .*)?$")
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "inference_all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""Ours, by DeepSpeed's; what is not here (barriers, messages) is no table."""
_POWERS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
_ROUNDED = 0.005
"""ms, of a printed time."""
_TRIMMED = 0.05
"""A mean of bandwidths is off that of times; no two of the factors are as near."""
_NOTE = "of a running job: a call's time includes waiting for the slowest rank"
_Call = tuple[float, float, float, float]


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return _HEAD.search(text) is not None or _CALL.search(text) is not None


def read(text: str, source: str) -> list[Table]:
    """Return the tables of a log.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no call of a collective with a time.
    """
    calls: dict[str, list[_Call]] = {}
    name, listed = None, False
    for line in text.splitlines():
        words = plain(line)
        if each := _CALL.search(words):
            time, size, unit, alg, bus = each.groups()[1:]
            _take(calls, each["name"], size, unit, float(time), float(alg), float(bus))
        elif _HEAD.search(words):
            name, listed = None, True
        elif listed and (head := _NAME.match(words)):
            name = head["name"]
        elif listed and name and (row := _SUMMARY.match(words)):
            size, unit, _, mean, alg, bus = row.groups()
            _take(calls, name, size, unit, float(mean), float(alg), float(bus))
        elif words.startswith("Breakdown with straggler effect"):
            listed = False
    if not calls:
        raise InputError(
            "it has no call of a collective with a time",
            source=source,
            hint="call `deepspeed.comm.log_summary()` in the job, and give what it prints",
        )
    ranks = _ranks(calls)
    return [_table(name, found, ranks, source) for name, found in calls.items()]


def _take(
    calls: dict[str, list[_Call]],
    name: str,
    number: str,
    unit: str,
    time: float,
    alg: float,
    bus: float,
) -> None:
    size = float(number) * 1024.0 ** _POWERS[unit]
    if name in _COLLECTIVES and size >= 1 and (time > 0 or alg > 0):
        calls.setdefault(name, []).append((size, time, alg, bus))


def _table(name: str, calls: list[_Call], ranks: int | None, source: str) -> Table:
    collective = _COLLECTIVES[name]
    times: dict[int, list[float]] = {}
    for size, time, alg, _ in calls:
        times.setdefault(round(size), []).append(_time_us(size, time, alg, ranks))
    rows = tuple(Row(size, median(found)) for size, found in sorted(times.items()))
    return Table(
        collective, ranks, None, "", rows, source, (_NOTE,), per_rank=collective == "all_gather"
    ).counted()


def _ranks(calls: Mapping[str, Sequence[_Call]]) -> int | None:
    """From the bandwidths of the fastest call, which have the most digits: bus / alg is 1 - 1/n."""
    found = [(alg, bus) for each in calls.values() for *_, alg, bus in each if 0 < bus < alg]
    if not found:
        return None
    alg, bus = max(found)
    return max(2, round(1 / (1 - bus / alg)))


def _time_us(size: float, time_ms: float, alg: float, ranks: int | None) -> float:
    """The printed time, or the one of the bandwidth where that has more digits."""
    if alg > time_ms:
        times = [factor * size * 8 / (alg * 1e6) for factor in (1, 2, ranks or 1)]
        near = min(times, key=lambda one: abs(one - time_ms))
        if abs(near - time_ms) <= _ROUNDED + _TRIMMED * time_ms:
            return 1e3 * near
    return 1e3 * max(time_ms, _ROUNDED)
