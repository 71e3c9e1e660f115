"""A fabric's typed tree."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from allrail.scenario.fields import Count, Flag, OneOf, Quantity, Text, refuse

SCHEMA_VERSION = 1


def _version(value: Any) -> int:
    if isinstance(value, bool) or value != SCHEMA_VERSION or not isinstance(value, int):
        refuse("this version reads schema 1 only", hint=f"write `schema_version: {SCHEMA_VERSION}`")
    return SCHEMA_VERSION


SchemaVersion = Annotated[Literal[1], BeforeValidator(_version)]


class Node(BaseModel):
    """Base of the tree: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Dimension(Node):
    """One dimension of a fabric: a network that joins `size` NPUs."""

    kind: Annotated[str, OneOf("ring", "fully_connected", "switch", what="a kind of dimension")] = (
        Field(description="How its NPUs are joined.")
    )
    size: Annotated[int, Count(2, hint="a dimension joins 2 NPUs or more")] = Field(
        description="How many NPUs it joins."
    )
    links: Annotated[int, Count(1, 1 << 16, hint="links of one NPU on this dimension")] = Field(
        default=1, description="Links of one NPU."
    )
    bandwidth: Annotated[str, Quantity("bandwidth")] = Field(
        description="Bandwidth of one link, per direction."
    )
    latency: Annotated[str, Quantity("time")] = Field(
        description="Latency of one step of an algorithm: from sending a message to its arrival, "
        "without its serialisation. On a switch that is two links."
    )
    in_network_reduction: Annotated[bool, Flag()] = Field(
        default=False, description="Whether the switch reduces; `kind: switch` only."
    )
    contention: Annotated[str, OneOf("shared", "none", what="a contention")] = Field(
        default="shared",
        description="`none`: messages of a step do not share links, as ASTRA-sim's "
        "congestion-unaware backend counts; below what the links can carry.",
    )


class Fabric(Node):
    """The network of a cluster: a list of dimensions, innermost first."""

    schema_version: SchemaVersion = Field(default=1, exclude=True, description="Always 1.")
    name: Annotated[str, Text()] = Field(default="inline", description="What people call it.")
    about: Annotated[str, Text()] = Field(default="", exclude=True, description="What it is.")
    calibrated: Annotated[bool, Flag()] = Field(
        default=False,
        exclude=True,
        description="Whether its numbers were measured on the hardware that it names.",
    )
    sources: dict[str, Annotated[str, Text()]] = Field(
        default={}, exclude=True, description="Where its numbers come from, by key."
    )
    dimensions: tuple[Dimension, ...] = Field(
        min_length=1, max_length=6, description="Innermost (package, node) first."
    )

    @property
    def npus(self) -> int:
        """How many NPUs it joins."""
        product = 1
        for dimension in self.dimensions:
            product *= dimension.size
        return product
