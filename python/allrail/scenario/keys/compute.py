"""Compute of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.fields import (
    Count,
    Flag,
    Number,
    OneOf,
    Quantity,
    Rate,
)
from allrail.scenario.node import Node
from allrail.scenario.sugar import Device


class Compute(Node):
    """How long compute takes: from a device's kernels, from a roofline, or measured."""

    device: Annotated[str | dict[str, Any], Device()] | None = Field(
        default=None, description="A preset, such as `h100`, or the path of a device's file."
    )
    peak: Annotated[str, Rate()] | None = Field(
        default=None,
        description="Such as `312 TFLOP/s`; the device's at the precision if left out.",
    )
    memory_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None, description="The device's if left out."
    )
    memory: Annotated[str, Quantity("size", positive=True)] | None = Field(
        default=None, description="How much of it there is; the device's if left out."
    )
    efficiency: Annotated[float, Number(above=0, example="0.5")] | None = Field(
        default=None,
        description="The part of the peak that is reached, one number for all: of a device "
        "whose kernels are known, in their place. Of others 0.5 if left out.",
    )
    recipe: Annotated[
        str,
        OneOf(
            "plain",
            "fp8_delayed",
            "fp8_tensorwise",
            "fp8_rowwise",
            "mxfp8",
            "nvfp4",
            what="a recipe",
        ),
    ] = Field(
        default="plain",
        description="In how many bits products with weights are computed; `plain`: in `precision`.",
    )
    attention: (
        Annotated[str, OneOf("unfused", "flash", "flash_2", "flash_3", what="a kind of attention")]
        | None
    ) = Field(
        default=None,
        description="How attention is computed; the fastest that the device is known for if "
        "left out.",
    )
    launch: Annotated[
        str,
        OneOf(
            "eager",
            "compiled",
            "graph",
            "fused",
            "graphed_attention",
            "blocking",
            what="a way to launch kernels",
        ),
    ] = Field(default="eager", description="How kernels get to the device.")
    loss: Annotated[str, OneOf("fused", "unfused", what="a way to compute the loss")] | None = (
        Field(
            default=None,
            description="How the loss treats the head's words, in memory; `fused` where `launch` "
            "fuses elementwise work, if left out.",
        )
    )
    scale: Annotated[float, Number(above=0, example="1.2")] = Field(
        default=1.0, description="Every compute time is multiplied by it."
    )
    forward: Annotated[str, Quantity("time")] | None = Field(
        default=None,
        description="Measured: the forward pass of a replica's batch on one NPU; the roofline "
        "shares it out over layers.",
    )
    backward: Annotated[str, Quantity("time")] | None = Field(
        default=None, description="Measured: its backward pass."
    )
    must_fit: Annotated[bool, Flag()] = Field(
        default=False,
        description="Refuse a layout that does not fit the memory; otherwise it is only said.",
    )


class Straggler(Node):
    """Ranks whose compute takes longer."""

    ranks: tuple[Annotated[int, Count(0)], ...] = Field(min_length=1, description="Which.")
    factor: Annotated[float, Number(above=0, example="1.5")] = Field(
        description="Their compute times are multiplied by it."
    )
    probability: Annotated[float, Number(above=0, example="0.05")] | None = Field(
        default=None,
        description="How likely each of them is slow in an iteration, drawn by the seed for "
        "every rank and iteration; in all iterations if left out.",
    )


class Jitter(Node):
    """Seeded variation of compute times."""

    deviation: Annotated[float, Number(low=0, example="0.05")] = Field(
        description="The standard deviation of the factor around 1: `0.05` is 5 %."
    )


class SlowLinks(Node):
    """Links that carry less than they should, drawn by the seed."""

    share: Annotated[float, Number(low=0, example="0.01")] = Field(
        description="The part of all links that is slow: `0.01` is one in a hundred."
    )
    factor: Annotated[float, Number(above=0, example="0.5")] = Field(
        description="A slow link has this part of its bandwidth, 0.001 to 1."
    )
    dimensions: tuple[Annotated[int, Count(0)], ...] | None = Field(
        default=None,
        description="On which dimensions, from 0; on all if left out. Not in `flows` and "
        "`packets`, where a topology's cables are slow.",
    )
