"""What a simulated training step gives, by the names of `result.json` and the command line.

All times are of one steady iteration (the mean of all but the first where there are several). Those
of the step are means over all ranks; each actor has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from allrail.results.accuracy import Known
from allrail.results.record import _names, _Record
from allrail.results.result import DimensionResult, Result
from allrail.results.timeline import Timeline
from allrail.results.training_parts import (
    ActorResult,
    BusyLink,
    Coordinators,
    CriticalPart,
    Exposed,
    LinkClass,
    Memory,
    Passes,
    Slice,
    Throughput,
    TimeToTrain,
)

ROUNDED = 1.001
"""Times are rounded to picoseconds, so that the peak may be passed by as little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult(Result):
    """What a training step came to; the names are those of `--json`.

    Attributes:
        step_time_us: Of a steady iteration, µs.
        first_step_time_us: Of the first, which waits for no gradients of one before, µs.
        steps_us: Of every iteration, µs.
        compute_us: A rank computes, µs: the mean over all of them.
        exposed_communication_us: It waits for communication of its own, µs: the same mean.
        exposed_us: The same by what the communication is for.
        waiting_us: It waits for others: pipeline bubbles, stragglers, µs: the same mean.
        bound_step_time_us: No schedule of the same communication is faster, µs.
        dimensions: Innermost first.
        utilisation: Bytes that an NPU sends in a step, over what all its dimensions could have
            sent, 0 to 1.
        utilisation_while_communicating: The same over the time in which any dimension sends, or
            compute waits for communication; None if it is not known.
        links: In network models of messages, how busy the classes of links are; empty in `dims`.
        busiest_links: The same of single links, the busiest first.
        critical_path: What the step's time was spent on, in the order of time.
        critical_path_in_words: Its largest part, as a sentence.
        memory_per_npu_bytes: What the fullest NPU keeps; None where the workload does not say.
        memory: The same by kind.
        actors: The classes of alike ranks.
        network_model: Which network model predicted it.
        seed: Of everything random.
        calibrated: Whether the fabric's numbers were measured.
        error_low_us: With collectives as fast as the fabric's `error` lets them be, µs; None where
            it has none.
        error_high_us: The same as slow.
        known_error: What is known of this prediction's error: of `computing` (from compared runs),
            of the `network` and of both `together`, each `low` and `high` as parts of the time.
        npus: In the fabric.
        policy: Which chunk scheduler.
        order: Of the stages that wait for a dimension.
        chunks: Of each collective.
        tensor_policy: Which tensor scheduler.
        coordination: How ranks agree which tensors are ready.
        coordinators: What they did; None without any.
        iterations: How many were simulated.
        throughput: What a step does a second; None where the workload does not say how much it is.
        time_to_train: What all of the training takes; None without `workload.target`.
        passes: The step by pass: forward, backward, update.
        what_if: An assumption that is not so, as the core writes it.
        notes: What was left out, assumed or scaled.
        timeline: What every actor does when, if asked for.
        timeline_left_out: How many slices that has, if it was asked for and is too long.
        host: Measured on this machine; the only part that differs between runs.
        scenario: What was simulated.
        astra_sim: ASTRA-sim's columns, of a case of its files.
        what_ifs: The step under assumptions that are not so, if asked for.
        raw: The JSON object that it was made from.
    """

    kind: ClassVar[str] = "workload"
    step_time_us: float
    first_step_time_us: float
    steps_us: tuple[float, ...]
    compute_us: float
    exposed_communication_us: float
    exposed_us: Exposed
    waiting_us: float
    bound_step_time_us: float
    dimensions: tuple[DimensionResult, ...]
    utilisation: float | None = None
    utilisation_while_communicating: float | None = None
    links: tuple[LinkClass, ...] = ()
    busiest_links: tuple[BusyLink, ...] = ()
    critical_path: tuple[CriticalPart, ...]
    critical_path_in_words: str
    memory_per_npu_bytes: int | None = None
    memory: Memory | None = None
    actors: tuple[ActorResult, ...]
    network_model: str
    seed: int
    calibrated: bool
    npus: int
    policy: str
    order: str
    chunks: int
    tensor_policy: str
    coordination: str
    coordinators: Coordinators | None = None
    iterations: int
    throughput: Throughput | None = None
    time_to_train: TimeToTrain | None = None
    passes: Passes = field(default_factory=Passes)
    error_low_us: float | None = None
    error_high_us: float | None = None
    known_error: Mapping[str, Any] | None = None
    what_if: Any = None
    notes: tuple[str, ...] = ()
    timeline: Timeline[Slice] | None = None
    timeline_left_out: int | None = None
    host: Mapping[str, Any]
    raw: Mapping[str, Any]
    scenario: Any = field(default=None, compare=False, repr=False)
    astra_sim: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    what_ifs: tuple[Any, ...] = field(default=(), compare=False)

    @property
    def work(self) -> float:
        """Samples of a step, 1 where it does not say: by these over it, results are compared."""
        return 1.0 if self.throughput is None else float(self.throughput.global_batch)

    @property
    def beyond_peak(self) -> bool:
        """Whether computing is faster than the device's peak, so that there is no such device."""
        if self.throughput is None or self.throughput.hfu is None or not self.compute_us:
            return False
        return self.throughput.hfu * self.step_time_us / self.compute_us > ROUNDED

    @property
    def known(self) -> Known | None:
        """What is known of its error; None of results that were written before it was told."""
        return None if self.known_error is None else Known.from_tree(self.known_error)

    @property
    def time_us(self) -> float:
        """The step, µs: `step_time_us` by the name that every kind of result has."""
        return self.step_time_us

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the JSON object of `--json`.

        Args:
            tree: Its keys and values.
        """
        values = {name: tree[name] for name in _names(cls) if name in tree}
        values["exposed_us"] = Exposed.from_dict(tree["exposed_us"])
        if tree.get("memory") is not None:
            values["memory"] = Memory.from_dict(tree["memory"])
        if tree.get("coordinators") is not None:
            values["coordinators"] = Coordinators.from_dict(tree["coordinators"])
        if tree.get("throughput") is not None:
            values["throughput"] = Throughput.from_dict(tree["throughput"])
        if tree.get("time_to_train") is not None:
            values["time_to_train"] = TimeToTrain.from_dict(tree["time_to_train"])
        values["passes"] = Passes.from_dict(tree.get("passes", {}))
        for name, record in _LISTS.items():
            if tree.get(name) is not None:
                values[name] = tuple(map(record.from_dict, tree[name]))
        if tree.get("timeline") is not None:
            values["timeline"] = Timeline(Slice.from_dict, tree["timeline"])
        for name in ("steps_us", "notes"):
            values[name] = tuple(tree.get(name, ()))
        return cls(**values, raw=tree)

    @property
    def worst_actor(self) -> ActorResult:
        """The actor that computes for the smallest part of the step; the first of several."""
        return min(self.actors, key=lambda actor: actor.compute_us)

    def path_by_kind(self) -> list[tuple[CriticalPart, int]]:
        """Return the critical path with its parts of one kind added up, the longest kind first.

        Returns:
            What, purpose, dimension and actor of each kind with its time and share, under the name
            of its longest part; and how many parts it has.
        """
        kinds: dict[tuple[str, str | None, str | None, str], list[CriticalPart]] = {}
        for one in self.critical_path:
            kinds.setdefault((one.what, one.purpose, one.dimension, one.actor), []).append(one)
        found = []
        for mine in kinds.values():
            longest = max(mine, key=lambda one: one.time_us)
            time, share = sum(one.time_us for one in mine), sum(one.share for one in mine)
            found.append((replace(longest, time_us=time, share=share), len(mine)))
        return sorted(found, key=lambda kind: -kind[0].time_us)


_LISTS: dict[str, type[_Record]] = {
    "dimensions": DimensionResult,
    "links": LinkClass,
    "busiest_links": BusyLink,
    "critical_path": CriticalPart,
    "actors": ActorResult,
}
