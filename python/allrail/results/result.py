"""What a simulation gives: the same names as in `result.json` and on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from allrail.results.answer import Answer, renderers
from allrail.results.frame import frame
from allrail.results.record import _names, _Record
from allrail.results.starvation import length, starved
from allrail.results.timeline import Timeline

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes


class Result(_Record, Answer):
    """A simulation's result: `CollectivesResult`, `TrainingResult` or `TrafficResult`, by its kind.

    Attributes:
        kind: The key of the scenario that it is of: `collective`, `workload` or `traffic`.
        scenario: What was simulated, a `Scenario`; None of a result that was read from a file.
        astra_sim: ASTRA-sim's columns, of a case of its files; None otherwise.
        raw: The JSON object that it was made from.
    """

    __slots__ = ()
    kind: ClassVar[str]
    scenario: Any
    astra_sim: Mapping[str, str] | None
    raw: Mapping[str, Any]
    if TYPE_CHECKING:

        @property
        def time_us(self) -> float:
            """Until all is over, or of a steady step, µs."""

        @property
        def notes(self) -> tuple[str, ...]:
            """What was assumed, left out or scaled."""

        @property
        def work(self) -> float:
            """How much it does, as results are compared: bytes, samples of a step."""

        # What its kind alone has. A type checker knows it after `isinstance`.
        def __getattr__(self, name: str) -> Any: ...

    def to_dict(self, *, timeline: bool = False) -> dict[str, Any]:
        """Return it as the JSON object of `--json`.

        Args:
            timeline: Whether its slices go with it, where it has them.
        """
        tree = dict(self.raw)
        if not timeline:
            for name in _LONG:
                tree.pop(name, None)
        elif (held := getattr(self, "timeline", None)) is not None:
            tree["timeline"] = held.objects()
        return tree

    def to_json(self, *, timeline: bool = False) -> str:
        """Return it as the JSON text of `--json`.

        Args:
            timeline: Whether its slices go with it, where it has them.
        """
        return json.dumps(self.to_dict(timeline=timeline), indent=1, ensure_ascii=False)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the folder of `--out`: result, tables, pictures, trace and report.

        Args:
            path: The folder; it is made, and an earlier run's files are replaced.

        Raises:
            InputError: The folder cannot be written, or a file of another program is in the way.
        """
        renderers().write(self, Path(path))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it: what its time is made of, or how much of each dimension is used.

        Args:
            ax: Axes of matplotlib to draw on; of a figure as wide as a column of a paper if None.

        Returns:
            The axes; `axes.figure.savefig("figure.pdf")` writes them.

        Raises:
            InputError: matplotlib is not installed.
        """
        return renderers().plot(self, ax)  # type: ignore[no-any-return]

    def to_polars(self, table: str | None = None) -> pl.DataFrame:
        """Return it as a table of polars.

        Args:
            table: Which of its lists, such as `dimensions`, a row each; the result itself, as one
                row, if None.

        Raises:
            InputError: It has no such list.
        """
        return frame(self, table)

    def _repr_html_(self) -> str:
        return str(renderers().html(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionResult(_Record):
    """One dimension's share.

    Attributes:
        name: `dim1` is the innermost.
        kind: How its NPUs are joined.
        size: How many NPUs it joins.
        bandwidth_gbps: Of one NPU over all its links here, without packets' headers, Gb/s.
        line_rate_gbps: The same with the headers; None where the fabric has none.
        algorithm: Which one ran.
        bytes_per_npu: Sent by one NPU here.
        header_bytes_per_npu: Of their packets' headers; the bandwidth is without.
        utilisation: Bytes sent over what it could have sent, 0 to 1; None below physical bounds.
        busy_fraction: Part of the time in which a stage was being sent, 0 to 1.
    """

    name: str
    kind: str
    size: int
    bandwidth_gbps: float
    algorithm: str
    bytes_per_npu: float
    utilisation: float | None
    busy_fraction: float
    header_bytes_per_npu: float = 0.0
    line_rate_gbps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveResult(_Record):
    """One collective's times, µs from the start of the simulation, and bandwidths (nccl-tests).

    Attributes:
        name: As the scenario says, or its kind.
        kind: Such as `all_reduce`.
        size_bytes: Of its buffer.
        start_us: It is asked for.
        agreed_us: Ranks have agreed on it, and it starts; None where they do not have to.
        finish_us: It is over on every NPU.
        time_us: From `start_us` to `finish_us`.
        algbw_GBps: Size over that time, GB/s.
        busbw_GBps: The same times the collective's factor.
    """

    name: str
    kind: str
    size_bytes: int
    start_us: float
    finish_us: float
    time_us: float
    algbw_GBps: float  # noqa: N815, the name that nccl-tests print
    busbw_GBps: float  # noqa: N815
    agreed_us: float | None = None

    @property
    def begins_us(self) -> float:
        """When it starts, µs."""
        return self.start_us if self.agreed_us is None else self.agreed_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed(_Record):
    """What ranks said to agree on collectives.

    Attributes:
        messages: Between all ranks.
        bytes: Of these messages.
        cycles_left_out: Of ranks, because they change nothing.
    """

    messages: int
    bytes: int
    cycles_left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(_Record):
    """Measured on this machine, outside the rule that a result repeats.

    Attributes:
        planning_ms: Time to plan.
        wall_ms: Time in the core, planning included.
        plan_cached: Whether the plan came from the cache.
    """

    planning_ms: float
    wall_ms: float
    plan_cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(_Record):
    """One stage of one chunk on one dimension.

    Attributes:
        dimension: Its index, from 0.
        collective: Its index, from 0.
        chunk: Its index, from 0.
        stage: Which of the chunk's stages, from 0.
        operation: Such as `reduce_scatter`.
        bytes: Sent by each NPU.
        start_us: Its first byte is sent.
        end_us: Its last byte is sent.
        finish_us: Its last byte has arrived.
    """

    dimension: int
    collective: int
    chunk: int
    stage: int
    operation: str
    bytes: float
    start_us: float
    end_us: float
    finish_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivesResult(Result):
    """What collectives came to; the names are those of `--json`.

    Attributes:
        time_us: Until the last byte of the last collective has arrived, µs.
        ideal_time_us: All bytes over all bandwidth, µs.
        bound_time_us: The tightest proven lower bound, µs.
        utilisation: Of all bandwidth over that time, 0 to 1; None below physical bounds.
        bytes_per_npu: Sent by one NPU.
        network_model: Which network model predicted it.
        seed: Of everything random.
        calibrated: Whether the fabric's numbers were measured.
        error_low_us: With collectives as fast as the fabric's `error` lets them be, µs; None where
            it has none.
        error_high_us: The same as slow.
        npus: In the fabric.
        algbw_GBps: Size over time, as nccl-tests count it, GB/s; None for several collectives.
        busbw_GBps: The same times the collective's factor.
        policy: Which chunk scheduler.
        order: Of the stages that wait for a dimension.
        chunks: Of each collective.
        coordinators: What they said; None where ranks do not have to agree.
        dimensions: Innermost first.
        collectives: In the scenario's order.
        host: Measured on this machine.
        messages: Simulated; in the network model `links` only.
        simulated_as: Where the simulated network is not wired as the priced one: how.
        counted: Where the network is no product of dimensions: how plans count, and why.
        behind_baseline: Where the policy is slower than the baseline in `dims`: by how much.
        below_physical_bound: Whether the time is below what the links can carry.
        timeline: Every stage, if asked for.
        timeline_left_out: How many stages there are, if they were asked for and are too many.
        scenario: What was simulated.
        astra_sim: ASTRA-sim's columns, of a case of its files.
        raw: The JSON object that it was made from.
    """

    kind: ClassVar[str] = "collective"
    time_us: float
    ideal_time_us: float
    bound_time_us: float
    utilisation: float | None
    bytes_per_npu: float
    network_model: str
    seed: int
    calibrated: bool
    npus: int
    algbw_GBps: float | None  # noqa: N815, the name that nccl-tests print
    busbw_GBps: float | None  # noqa: N815
    policy: str
    order: str
    chunks: int
    dimensions: tuple[DimensionResult, ...]
    collectives: tuple[CollectiveResult, ...]
    host: Host
    error_low_us: float | None = None
    error_high_us: float | None = None
    messages: int | None = None
    coordinators: Agreed | None = None
    simulated_as: str | None = None
    counted: str | None = None
    behind_baseline: str | None = None
    below_physical_bound: bool = False
    timeline: Timeline[Stage] | None = None
    timeline_left_out: int | None = None
    raw: Mapping[str, Any]
    scenario: Any = field(default=None, compare=False, repr=False)
    astra_sim: Mapping[str, str] | None = field(default=None, compare=False, repr=False)

    @property
    def work(self) -> float:
        """Bytes of all its collectives: by these over the time, results are compared."""
        return float(sum(one.size_bytes for one in self.collectives))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, or is otherwise than it was asked for."""
        told = (self.simulated_as, self.counted, self.behind_baseline)
        return tuple(one for one in told if one is not None)

    @property
    def starved_us(self) -> tuple[float, ...] | None:
        """How long each dimension idles while its chunks are elsewhere, µs; None without timeline.

        `allrail.results.starvation` says what counts.
        """
        if self.timeline is None:
            return None
        spans = starved(self.timeline, [one.begins_us for one in self.collectives])
        return tuple(length(spans.get(here, ())) for here in range(len(self.dimensions)))

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the core's JSON object.

        Args:
            tree: Its keys and values.
        """
        values = {name: tree[name] for name in _names(cls) if name in tree}
        values["dimensions"] = tuple(map(DimensionResult.from_dict, tree["dimensions"]))
        values["collectives"] = tuple(map(CollectiveResult.from_dict, tree["collectives"]))
        values["host"] = Host.from_dict(tree["host"])
        if tree.get("coordinators") is not None:
            values["coordinators"] = Agreed.from_dict(tree["coordinators"])
        if tree.get("timeline") is not None:
            values["timeline"] = Timeline(Stage.from_dict, tree["timeline"])
        return cls(**values, raw=tree)


_LONG = ("timeline", "npu_bandwidths_gbps")
"""What tables have, and `--json` has not."""
