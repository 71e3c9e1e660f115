"""Fabric of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated

from pydantic import Field

from allrail.scenario.algorithms import FastestBySize
from allrail.scenario.fields import Count, Flag, OneOf, Quantity, Text
from allrail.scenario.node import Described, Node


class Dimension(Node):
    """A dimension. Its NPUs are alike, and so are its links."""

    kind: Annotated[str, OneOf("ring", "fully_connected", "switch", what="a kind of dimension")] = (
        Field(description="How its NPUs are joined.")
    )
    size: Annotated[int, Count(2, hint="a dimension joins 2 NPUs or more")] = Field(
        description="How many NPUs it joins."
    )
    links: Annotated[int, Count(1, 65536, hint="links of one NPU on this dimension")] = Field(
        default=1, description="Links of one NPU."
    )
    bandwidth: Annotated[str, Quantity("bandwidth")] = Field(
        description="Bandwidth of one link, per direction."
    )
    latency: Annotated[str, Quantity("time")] = Field(
        description="Latency of one step of an algorithm: from sending a message to its "
        "arrival, without its serialisation. On a switch that is two links."
    )
    message_latency: Annotated[str, Quantity("time")] = Field(
        default="0 ps",
        description="What a message waits for beside, once, however many links it crosses: its "
        "network interfaces.",
    )
    packet: Annotated[str, OneOf(table="packets")] | None = Field(
        default=None,
        description="Packets of a known network, in place of `payload` and `header`, each of "
        "which may still be another: `infiniband`, `nvlink`. Their headers take "
        "their part of the bandwidth.",
    )
    payload: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="Of a packet's bytes, those that are carried; with `header`, the bandwidth "
        "is that of both.",
    )
    header: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="Of a packet's bytes, those beside its `payload`: they take their part of "
        "the bandwidth.",
    )
    in_network_reduction: Annotated[bool, Flag()] = Field(
        default=False, description="Whether the switch reduces; `kind: switch` only."
    )
    reduction_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None,
        description="With `in_network_reduction`: the bandwidth at which an NPU's data passes "
        "through sums, as published for the switch (the `algbw` of nccl-tests). "
        "That of its links if left out, which no switch reaches.",
    )
    contention: Annotated[str, OneOf("shared", "none", what="a contention")] = Field(
        default="shared",
        description="`none`: messages of a step do not share links, as ASTRA-sim's "
        "congestion-unaware backend counts; below what the links can carry.",
    )
    fastest: Annotated[dict[str, tuple[dict[str, str], ...]], FastestBySize()] = Field(
        default={},
        description="Of `schedule.algorithms: auto`: which algorithm was measured to be the "
        "fastest, by kind of collective, from which size on: `{all_reduce: [{from: "
        "1 B, algorithm: direct}, {from: 4 MiB, algorithm: ring}]}`. Sizes are of "
        "the buffer that reaches this dimension, which dimensions before it have "
        "divided. `allrail calibrate network` writes it. If left out, the model of "
        "the dimension decides.",
    )


class Fabric(Described):
    """The network of a training cluster as a product of dimensions (Themis, ISCA'22, §2)."""

    name: Annotated[str, Text()] = Field(default="inline", description="What people call it.")
    dimensions: tuple[Dimension, ...] = Field(
        min_length=1, max_length=6, description="Innermost (package, node) first."
    )
    memory_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None,
        description="Of an NPU's memory. A step that reduces waits for what it has received to "
        "be read, with what it is added to, and for the sum to be written: three "
        "times its bytes; messages of one step side by side. If left out, reducing "
        "takes no time.",
    )
    window: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Of an NPU's messages in a `direct` algorithm, how many are under way: each"
        " that has come and is reduced lets it send one more, of an all-reduce's "
        "second half once the first has come. If left out, all of a step leave at "
        "once, when all of the step before are reduced.",
    )
