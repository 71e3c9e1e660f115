"""Traffic of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.fields import (
    Count,
    Flag,
    OneOf,
    Quantity,
    Text,
)
from allrail.scenario.node import Node
from allrail.scenario.sugar import ByGroup, Message, Phases, Rows


class Algorithms(Node):
    """Which algorithms collectives take on graph fabrics."""

    all_reduce: Annotated[str, OneOf(table="grid_algorithms")] = Field(
        default="ring",
        description="Of all-reduces: over a group's ranks in a grid, or `in_network` where "
        "switches reduce.",
    )
    all_to_all: Annotated[str, OneOf("direct", "pairwise", what="an all-to-all")] = Field(
        default="direct",
        description="`direct`: to everyone at once; `pairwise`: to one after the other, each "
        "when the last one's message has come.",
    )
    groups: Annotated[dict[str, str], ByGroup(pairs=False)] = Field(
        default={}, description="Groups whose all-reduces take another algorithm, by name."
    )
    shapes: Annotated[dict[str, Any], ByGroup(pairs=True)] = Field(
        default={},
        description="Rows and columns of a group's ranks, by name; its first part along rows, "
        "or as square as it goes, if left out.",
    )


class Messages(Node):
    """How communication becomes messages."""

    paths: Annotated[str, Text()] | None = Field(
        default=None,
        description="`flows`: over which paths a message is split: `ecmp` (if left out; of a "
        "collective `minimal`), `single`, `minimal`, `ideal`. All that a collective"
        " without a workload has of these keys.",
    )
    overhead: Annotated[str, Quantity("time")] = Field(
        default="0 ps",
        description="What every message waits for at its ends: processors, network interfaces.",
    )
    acknowledged: Annotated[bool, Flag()] = Field(
        default=False,
        description="Whether a send is over when its message has arrived; if not, when it has "
        "left.",
    )
    steady: Annotated[bool, Flag()] = Field(
        default=False,
        description="`flows`: one message for alike steps of an algorithm, exact while nothing "
        "disturbs them.",
    )
    algorithms: Algorithms | None = Field(
        default=None,
        description="What collectives are made of on graphs, instead of the chunks of a plan on"
        " the topology's dimensions.",
    )


class Traffic(Node):
    """What is sent."""

    pattern: Annotated[
        str,
        OneOf(
            "all_to_all",
            "uniform",
            "permutation",
            "incast",
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "broadcast",
            "trace",
            what="a pattern",
        ),
    ] = Field(
        description="all_to_all: every NPU to every other, in shift phases; uniform: to all at "
        "once (`flows`) or to NPUs drawn one by one (`packets`); permutation: every"
        " NPU to one other, drawn; incast: many to one; all_reduce, reduce_scatter,"
        " all_gather, broadcast: by an algorithm; trace: messages with times."
    )
    size: Annotated[str, Quantity("size", positive=True)] | None = Field(
        default=None,
        description="From one NPU to another, over all planes, split evenly; of a collective: "
        "the buffer (before a reduce_scatter, after an all_gather). A trace has "
        "none.",
    )
    phases: Annotated[int | None, Phases()] = Field(
        default=None,
        description="all_to_all: `all`, or how many shift phases are drawn and simulated; the "
        "time is scaled.",
    )
    phase_barrier: Annotated[bool, Flag()] | None = Field(
        default=None,
        description="all_to_all: whether a phase begins when the one before is over everywhere."
        " If left out: so in `flows`, not in `packets`.",
    )
    window: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="`all_to_all` without a barrier: how many phases an NPU has begun and not "
        "done (sent in and received in). `uniform` in `packets`: how many messages "
        "of an NPU may be leaving it at once. 8 if left out.",
    )
    paths: (
        Annotated[str, OneOf("ideal", "minimal", "ecmp", "single", what="a choice of paths")] | None
    ) = Field(
        default=None,
        description="In `flows`: best splitting (`ideal`; on a dragonfly over detours too), "
        "best splitting over minimal paths, equal splitting, one path. `ideal` if "
        "left out.",
    )
    count: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="uniform, in `packets`: how many messages each NPU sends; 16 if left out.",
    )
    fan_in: Annotated[int, Count(1)] | None = Field(
        default=None, description="incast: how many NPUs send, drawn; all others if left out."
    )
    destination: Annotated[int, Count(0)] | None = Field(
        default=None, description="incast: to which NPU; 0 if left out."
    )
    algorithm: Annotated[str, OneOf(table="grid_algorithms")] | None = Field(
        default=None,
        description="Collectives: by which algorithm; `in_network` and `tree` do not do all of "
        "them.",
    )
    shape: tuple[Annotated[int, Count(1)], Annotated[int, Count(1)]] | None = Field(
        default=None,
        description="Collectives: rows and columns of the ranks; the fabric's own if left out.",
    )
    root: Annotated[int, Count(0)] | None = Field(
        default=None, description="broadcast: which NPU has the buffer; 0 if left out."
    )
    segments: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="broadcast: into how many segments each tree's part of the buffer is cut; "
        "if left out, as many as the tree is deep, and 16 at least.",
    )
    skip: Annotated[bool, Flag()] | None = Field(
        default=None,
        description="Collectives: whether steps, or segments, that repeat are skipped once they"
        " are steady; so if left out.",
    )
    messages: Annotated[tuple[Message, ...], Rows()] | None = Field(
        default=None,
        description="trace: rows of time, source, destination and size, in the order of time.",
    )
