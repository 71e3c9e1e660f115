"""The parts of a training step's result, by the names of `result.json`; times are µs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from allrail.results.record import _Parts, _Record

PURPOSES = ("data", "tensor", "pipeline", "expert", "operator", "other")
"""What communication is for, in the order of tables and pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed(_Parts):
    """Communication during which nothing is computed, by what it is for, µs; a mapping, too.

    Attributes:
        data: Gradients, parameters and optimizer shards over replicas.
        tensor: Activations within a layer.
        pipeline: Activations between pipeline stages.
        expert: Tokens to and from experts, or embeddings to and from their tables.
        operator: Halos and shards of one operator.
        other: Of a trace that does not say.
    """

    data: float = 0.0
    tensor: float = 0.0
    pipeline: float = 0.0
    expert: float = 0.0
    operator: float = 0.0
    other: float = 0.0

    PARTS: ClassVar[tuple[str, ...]] = PURPOSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(_Parts):
    """What one NPU holds at its fullest, bytes: the fullest one; of its parts a mapping, too.

    Attributes:
        parameters: Of the model.
        gradients: Of the same.
        optimizer: Its state.
        gathered: Parameters of ZeRO 3 that are whole at one time.
        activations: Kept for the backward passes in flight.
        working: What a pass over one block holds besides.
        loss: The head's words, and what the loss makes of them.
        fragmentation: What an allocator holds in vain.
        context: Of the driver, libraries and communicators.
        needed: What there has to be at least: all but fragmentation.
        capacity: What the device has; None if it is not said.
        fits: Whether that is enough.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    gathered: int = 0
    activations: int = 0
    working: int = 0
    loss: int = 0
    fragmentation: int = 0
    context: int = 0
    needed: int = 0
    capacity: int | None = None
    fits: bool | None = None

    PARTS: ClassVar[tuple[str, ...]] = (
        "parameters",
        "gradients",
        "optimizer",
        "gathered",
        "activations",
        "working",
        "loss",
        "fragmentation",
        "context",
    )

    @property
    def total(self) -> int:
        """All of its parts: what `nvidia-smi` shows."""
        return sum(self.values())

    @property
    def reserved(self) -> int:
        """All but the context: PyTorch's `max_memory_reserved`."""
        return self.total - self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClass(_Record):
    """Directed links that are alike; of a topology, those of one plane.

    Attributes:
        name: Their dimension, or what their ends are, such as `NPU to switch`.
        links: How many there are.
        bandwidth_gbps: Of each, Gb/s.
        mean: How much of what they could carry they did, 0 to 1, on average.
        max: The same of the busiest.
        busiest: Its ends, such as `NPU 3 to switch 1`; empty if none carried anything.
    """

    name: str
    links: int
    bandwidth_gbps: float
    mean: float
    max: float
    busiest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyLink(_Record):
    """One directed link.

    Attributes:
        name: Its ends.
        bandwidth_gbps: What it could carry, Gb/s.
        utilisation: How much of it it did, 0 to 1.
    """

    name: str
    bandwidth_gbps: float
    utilisation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPart(_Record):
    """One part of the longest chain of work and waiting.

    Attributes:
        what: `compute`, `communication` or `waiting`; `rest` is all that is too short to be listed.
        name: Of the work, such as `layer 41`.
        actor: Whose it is.
        purpose: What the communication is for; None otherwise.
        dimension: On which dimension it was sent; None otherwise.
        time_us: How long, µs.
        share: Of the step, 0 to 1.
    """

    what: str
    name: str
    actor: str
    purpose: str | None
    dimension: str | None
    time_us: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorResult(_Record):
    """One class of alike ranks; the three times add up to the step.

    Attributes:
        name: Such as `stage 3`.
        ranks: How many there are.
        compute_us: It computes, µs.
        exposed_communication_us: It waits for communication of its own, µs.
        exposed_us: The same by what the communication is for.
        waiting_us: It waits for others: pipeline bubbles, stragglers, µs.
        first_rank: The lowest of its ranks, if it is said.
    """

    name: str
    ranks: int
    compute_us: float
    exposed_communication_us: float
    waiting_us: float
    exposed_us: Exposed = Exposed()
    first_rank: int | None = None

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the core's JSON object.

        Args:
            tree: Its keys and values.
        """
        exposed = Exposed.from_dict(tree.get("exposed_us", {}))
        values = {name: tree[name] for name in cls.__dataclass_fields__ if name in tree}
        return cls(**{**values, "exposed_us": exposed})


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(_Record):
    """Something that an actor does without a break.

    Attributes:
        actor: Whose, by name.
        track: `compute`, or the dimension such as `dim1`; in network models of messages the
            dimensions that a group spans, such as `dim1+dim2`, or `network`.
        name: Of the work.
        iteration: In which one, from 0.
        start_us: From the start of the simulation, µs.
        end_us: Until when, µs.
        purpose: What a communication is for.
        work_pass: Of a computation: `forward`, `backward` or `update`; None if it is not said.
        operation: Of a communication, such as `all_reduce` or `send`.
        bytes: Of a communication: its whole buffer, of which this slice may send a part.
        group: Of a communication: among whom.
        group_size: How many ranks that is.
        communication: Which communication; its slices are its stages.
    """

    actor: str
    track: str
    name: str
    iteration: int = 0
    start_us: float
    end_us: float
    purpose: str | None = None
    work_pass: str | None = None
    operation: str | None = None
    bytes: int | None = None
    group: str | None = None
    group_size: int | None = None
    communication: int | None = None

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the core's JSON object, where `pass` is no word of Python.

        Args:
            tree: Its keys and values.
        """
        values = {name: tree[name] for name in _SLICE if name in tree}
        return cls(**values, work_pass=tree.get("pass"))


_SLICE = [name for name in Slice.__dataclass_fields__ if name != "work_pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(_Record):
    """What a step does a second.

    Attributes:
        global_batch: Samples of a step of the whole job.
        samples_per_s: Of the whole job.
        tokens_per_s_per_npu: None where samples have no tokens.
        tflops_per_npu: FLOPs of one forward and one backward pass of the model, TFLOP/s of an NPU;
            None where its shapes are not known.
        mfu: Those over the device's peak, 0 to 1 (PaLM, appendix B).
        hfu: The same with what is recomputed (Korthikanti et al.).
    """

    global_batch: int
    samples_per_s: float
    tokens_per_s_per_npu: float | None = None
    tflops_per_npu: float | None = None
    mfu: float | None = None
    hfu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToTrain(_Record):
    """What all of the training takes: steps times a steady step, and nothing between steps.

    Attributes:
        steps: How many.
        samples: That they go through, the last step whole; None where a step's are not known.
        tokens: The same; None where samples have no tokens.
        time_s: All steps, s.
        npu_hours: NPUs of the job times hours.
        cost: In the currency of `workload.target.price_per_npu_hour`; None without.
        energy_kwh: kWh, by `workload.target.watts_per_npu`; None without.
    """

    steps: int
    samples: int | None = None
    tokens: int | None = None
    time_s: float
    npu_hours: float
    cost: float | None = None
    energy_kwh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes(_Record):
    """What of a step belongs to a pass, µs: means over all ranks; the parts add up to the time.

    Attributes:
        time_us: All of it.
        compute_us: Computing.
        exposed_us: Waiting for communication that is of the pass.
        waiting_us: Waiting for others, who do something of the pass.
    """

    time_us: float = 0.0
    compute_us: float = 0.0
    exposed_us: float = 0.0
    waiting_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes(_Parts):
    """A step by pass; a mapping, too. The times of all four add up to the step.

    Attributes:
        forward: The forward pass.
        backward: The backward pass: what it computes again, and the exchange of gradients.
        update: The optimizer's step, and the gathering of updated parameters.
        other: Of a trace that does not say, and waiting that nothing explains.
    """

    forward: PassTimes = PassTimes()
    backward: PassTimes = PassTimes()
    update: PassTimes = PassTimes()
    other: PassTimes = PassTimes()

    PARTS: ClassVar[tuple[str, ...]] = ("forward", "backward", "update", "other")

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from the core's JSON object.

        Args:
            tree: Its keys and values.
        """
        return cls(**{name: PassTimes.from_dict(tree[name]) for name in cls.PARTS if name in tree})


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators(_Record):
    """What coordinators did.

    Attributes:
        operations_per_step: Of gradients; what was launched together is one.
        messages: That were simulated, in all.
        bytes: Of these messages; None in a result that an older version saved.
        cycles_left_out: Of ranks, because they change nothing.
    """

    operations_per_step: float
    messages: int
    cycles_left_out: int
    bytes: int | None = None
