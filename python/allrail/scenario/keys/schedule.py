"""Schedule of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.algorithms import ByOperation, PerDimension
from allrail.scenario.fields import (
    Count,
    CountOrWord,
    OneOf,
    Quantity,
    Text,
)
from allrail.scenario.node import Node
from allrail.scenario.policies import Policy, order_of
from allrail.scenario.programs import Programs


class Collective(Node):
    """One collective."""

    name: Annotated[str, Text()] = Field(
        default="", description="Its name in results; its kind if left out."
    )
    kind: Annotated[
        str,
        OneOf(
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "all_to_all",
            "broadcast",
            what="a collective",
        ),
    ] = Field(description="What it does.")
    size: Annotated[str, Quantity("size", positive=True)] = Field(
        description="all_reduce, broadcast: each NPU's buffer; reduce_scatter: each NPU's "
        "input; all_gather: each NPU's output; all_to_all: what each NPU sends, to "
        "itself included."
    )
    start: Annotated[str, Quantity("time")] = Field(default="0 ps", description="When it starts.")
    dimensions: tuple[Annotated[int, Count(0)], ...] | None = Field(
        default=None,
        min_length=1,
        description="The dimensions that it spans, from 0; all if left out.",
    )


class Schedule(Node):
    """How collectives are scheduled."""

    policy: Annotated[str, OneOf(table="policies")] = Field(
        default="baseline", description="Which dimension a chunk visits next."
    )
    order: Annotated[str, OneOf(table="orders")] = Field(
        default_factory=lambda data: order_of(data.get("policy", "")),
        description="Which waiting stage a dimension serves next. If left out: `fifo` for "
        "`baseline`, `smallest_first` for `themis`, `planned` for `search`.",
    )
    chunks: Annotated[int, Count(1, hint="64 is a good start")] | None = Field(
        default=None,
        description="How many parts each collective is cut into. If left out: 64; as many as "
        "suit them for `trees`.",
    )
    smallest_chunk: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="A chunk has so many bytes at least, and the collective then as many as its"
        " chunks; an all-gather's do not count.",
    )
    threshold: Annotated[int, Count(1, hint="Themis uses 16")] = Field(
        default=16,
        description="Themis keeps the baseline's order while loads differ by less than the time"
        " of a chunk's 1/threshold.",
    )
    active_chunks: Annotated[int | str, CountOrWord(1, "fill")] | None = Field(
        default=None,
        description="How many stages a dimension runs at once; no limit if left out. `fill`: as"
        " many as fill it, if each has the part of the time in which it sends.",
    )
    send_ahead: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="How many bytes of what an NPU has handed to its links on a dimension may "
        "be unsent when it chooses the next stage there; what is handed over is "
        "sent in that order. Without it the links have sent all. `dims` and "
        "`links`.",
    )
    endpoint_delay: Annotated[str, Quantity("time")] = Field(
        default="0 ps", description="Added to every message at its ends."
    )
    programs: Annotated[dict[str, Any], Programs()] | None = Field(
        default={},
        description="Programs that `algorithms` name, by name: those of XML files stand here "
        "when these were read.",
    )
    algorithms: Annotated[str | tuple[str, ...], PerDimension("schedule.algorithms")] | None = (
        Field(
            default=None,
            description="One per dimension; if left out: `ring` on rings, `direct` on fully "
            "connected dimensions, `halving_doubling` on switches; `auto` on networks "
            "without dimensions, and on a fabric whose dimensions all say `fastest`. "
            "`auto`, for all or in the list: for each collective the fastest of its "
            "size, as the dimension's `fastest` says or else its model. An XML file is "
            "a program of MSCCL, for an operation and a number of ranks.",
        )
    )
    algorithms_by_operation: Annotated[dict[str, str | tuple[str, ...]], ByOperation()] = Field(
        default={},
        description="Of a workload: the algorithms of a kind of collective, where they differ "
        "from `algorithms`: `{all_gather: [direct, ring]}`, `{broadcast: auto}`.",
    )
    collective_order: Annotated[
        str, OneOf("fifo", "lifo", "explicit", what="a collective order")
    ] = Field(
        default="fifo", description="Which of several waiting collectives a dimension serves first."
    )
    composition: Annotated[str, OneOf("stages", "merged", "sequential", what="a composition")] = (
        Field(
            default="stages",
            description="How an all-reduce is composed over dimensions. `stages`: reduce-scatters, "
            "then all-gathers; `merged`: the last dimension all-reduces in one stage; "
            "`sequential`: a whole all-reduce per dimension.",
        )
    )
    accept_plan: Annotated[str, OneOf("same_fabric", "same_shape", what="a rule for plans")] = (
        Field(
            default="same_fabric",
            description="Which plans a simulation takes: made for this very fabric, or for one of "
            "the same kinds and sizes.",
        )
    )
    tensor: Annotated[dict[str, Any], Policy("tensor_policies", "schedule.tensor")] | None = Field(
        default=None,
        description="Of a workload: which part of which gradient goes next; a policy's name, or"
        " `policy` and its keys. `fifo` if left out.",
    )
    coordination: (
        Annotated[dict[str, Any], Policy("coordinations", "schedule.coordination")] | None
    ) = Field(
        default=None,
        description="How ranks agree which gradients of a workload are ready everywhere, and on"
        " a scenario's collectives before each starts; a policy's name, or `policy`"
        " and its keys. `none` if left out.",
    )
