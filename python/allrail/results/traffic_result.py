"""What traffic gives, by the names of `result.json` and the command line.

One plane of the fabric is simulated; sizes and bandwidths are over all planes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from allrail.results.record import _names, _Record
from allrail.results.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution(_Record):
    """A distribution by nearest rank."""

    min: float
    p1: float
    median: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficResult(Result):
    """What traffic came to; the names are those of `--json`.

    Attributes:
        pattern: Who sent to whom.
        network_model: Which network model predicted it.
        npus: NPUs that took part.
        planes: Of the fabric; one is simulated.
        size_bytes: From one NPU to another over all planes, or an NPU's buffer; None in a trace.
        seed: Of everything random.
        time_us: Until the last byte has arrived, µs.
        lower_bound_time_us: No time is below it, µs.
        share_of_injection: Bytes that an NPU sends (incast: that the destination receives) over
            what its cables carry in that time.
        share_of_optimum: Of collectives: what an NPU must send, or receive, over the same; None
            otherwise.
        bytes_per_npu: Sent by an NPU over all planes, on average.
        injection_gbps: What an NPU's cables carry over all planes, Gb/s.
        messages: In one plane.
        phases: all_to_all: how many shift phases there are.
        phases_simulated: all_to_all: how many of them were simulated.
        sample_error: all_to_all in flows, where phases were drawn: the standard error of time and
            share, as a part of them.
        phase_barrier: all_to_all: whether a phase waited for the one before.
        window: Messages of an NPU that may leave at once.
        paths: flows: over which paths.
        algorithm: Of collectives: which one.
        shape: Of collectives: rows and columns of ranks.
        steps: Of collectives but broadcast: how many steps there are.
        steps_simulated: How many of them were simulated.
        segments: broadcast: how many segments go down each tree.
        segments_simulated: broadcast: how many of them were simulated.
        npu_bandwidth_gbps: What each NPU that sends got, over all planes, Gb/s.
        message_latency_us: trace: from leaving to arriving, µs.
        packets: packets: how many, in one plane.
        packet_hops: packets: links that they crossed.
        built: What was built: NPUs, switches, links, routing, channels, buffers, packets.
        simulated_as: Where the simulated graph is not the costed one.
        notes: What was left out, sampled or scaled.
        calibrated: Whether the fabric's numbers were measured.
        host: Measured on this machine; the only part that differs between runs.
        scenario: What was simulated.
        astra_sim: ASTRA-sim's columns, of a case of its files.
        raw: The JSON object that it was made from.
    """

    kind: ClassVar[str] = "traffic"
    pattern: str
    network_model: str
    npus: int
    planes: int
    size_bytes: int | None
    seed: int
    time_us: float
    lower_bound_time_us: float
    share_of_injection: float
    share_of_optimum: float | None = None
    bytes_per_npu: float
    injection_gbps: float
    messages: int
    phases: int | None = None
    phases_simulated: int | None = None
    sample_error: float | None = None
    phase_barrier: bool | None = None
    window: int | None = None
    paths: str | None = None
    algorithm: str | None = None
    shape: tuple[int, int] | None = None
    steps: int | None = None
    steps_simulated: int | None = None
    segments: int | None = None
    segments_simulated: int | None = None
    npu_bandwidth_gbps: Distribution | None = None
    message_latency_us: Distribution | None = None
    packets: int | None = None
    packet_hops: int | None = None
    built: Mapping[str, Any]
    simulated_as: str | None = None
    notes: tuple[str, ...]
    calibrated: bool
    host: Mapping[str, float]
    raw: Mapping[str, Any]
    scenario: Any = field(default=None, compare=False, repr=False)
    astra_sim: Mapping[str, str] | None = field(default=None, compare=False, repr=False)

    @property
    def work(self) -> float:
        """Its size in bytes, 1 of a trace: by it over the time, results are compared."""
        return float(self.size_bytes or 1)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the JSON object of `--json`.

        Args:
            tree: Its keys and values.
        """
        values = {name: tree[name] for name in _names(cls) if name in tree}
        for name in ("npu_bandwidth_gbps", "message_latency_us"):
            if name in values:
                values[name] = Distribution.from_dict(values[name])
        for name in ("notes", "shape"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values, raw=tree)
