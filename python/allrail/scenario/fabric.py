"""A fabric's typed tree; its keys are the core's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from allrail.scenario.fields import Number, Quantity, QuantityKind, parse_quantity
from allrail.scenario.keys import fabric as keys
from allrail.scenario.node import Node


class LibraryDimension(Node):
    """What a library's own algorithms reach on a dimension."""

    bandwidth: Annotated[str, Quantity("bandwidth")] = Field(
        description="Of one NPU in one direction, over all its links."
    )
    latency: Annotated[str, Quantity("time")] = Field(description="Of a step of its ring or tree.")


class LibraryPiece(Node):
    """Sizes whose measured times lie on one line."""

    first: Annotated[str, Quantity("size")] = Field(description="The smallest of them.")
    last: Annotated[str, Quantity("size")] = Field(description="The largest of them.")
    fixed_us: float = Field(ge=0, description="Time beside the bytes, µs.")
    us_per_byte: float = Field(ge=0, description="Time of a byte, µs.")


class LibraryTable(Node):
    """A table that was measured, fitted."""

    collective: str = Field(description="As nccl-tests name it, such as `all_reduce`.")
    part: tuple[int, ...] = Field(description="How many of its ranks differ on each dimension.")
    pieces: tuple[LibraryPiece, ...] = Field(min_length=1, description="By size.")


class Library(Node):
    """How the communication library ran that was measured: what `predict` of a fabric needs."""

    error: float = Field(
        ge=0,
        description="What nine of ten measured rows are within; where something else explains the "
        "tables nearly as well, also what nine of ten predictions without a table are apart.",
    )
    tables_error: float | None = Field(
        default=None,
        ge=0,
        description="What nine of ten measured rows are within, where `error` is of more.",
    )
    algorithms: tuple[str, ...] = Field(
        default=(),
        description="Its own algorithms that the tables show: of `ring` and `tree` over all ranks "
        "the faster counts; `turns_of_rings` and `turns_of_halving` are stages of one dimension "
        "after the other. None where they show the simulator's stages.",
    )
    between: int | None = Field(
        default=None, description="The first dimension that joins machines, from 0."
    )
    dimensions: tuple[LibraryDimension, ...] = Field(
        default=(), description="What these algorithms reach on each dimension of the fabric."
    )
    tables: tuple[LibraryTable, ...] = Field(min_length=1, description="By ranks.")

    def error_of(self, collective: str, part: Sequence[int]) -> float:
        """Return what nine of ten predictions of a collective are within.

        Args:
            collective: As of `tables`.
            part: How many of its ranks differ on each dimension.
        """
        if self.tables_error is not None and any(
            (one.collective, one.part) == (collective, tuple(part)) for one in self.tables
        ):
            return self.tables_error
        return self.error


class Fabric(keys.Fabric):
    """The network of a cluster: a list of dimensions, innermost first."""

    error: Annotated[float, Number(above=0, example="0.07")] | None = Field(
        default=None,
        exclude=True,
        description="By how much of themselves the times of collectives on it may be off, as "
        "`allrail calibrate` and `allrail verify` have measured; results carry an error bar with "
        "it.",
    )

    library: Library | None = Field(
        default=None,
        exclude=True,
        description="What was measured of a communication library, as `allrail calibrate network` "
        "writes it; the simulator does not read it.",
    )

    @property
    def npus(self) -> int:
        """How many NPUs it joins."""
        product = 1
        for dimension in self.dimensions:
            product *= dimension.size
        return product

    def slower(self, factor: float) -> Self:
        """Return it with every transfer so many times as long.

        Args:
            factor: Of latencies, and of the time that a byte takes; above 0.
        """
        return self.model_copy(
            update={"dimensions": tuple(_slower(one, factor) for one in self.dimensions)}
        )

    def carrying(self, parts: Sequence[float]) -> Self:
        """Return it with a part of each dimension's bandwidth; latencies stay.

        Args:
            parts: Above 0, the innermost dimension first.
        """
        dimensions = []
        for one, part in zip(self.dimensions, parts, strict=True):
            bandwidth = parse_quantity("bandwidth", one.bandwidth)
            update = {"bandwidth": f"{round(8 * bandwidth * part)} b/s"}
            dimensions.append(one.model_copy(update=update))
        return self.model_copy(update={"dimensions": tuple(dimensions)})


def _slower(dimension: keys.Dimension, factor: float) -> keys.Dimension:
    update = {}
    for key, kind in _CARRY.items():
        said = getattr(dimension, key)
        if said is None:
            continue
        value = parse_quantity(kind, said)
        update[key] = (
            f"{round(value * factor)} ps" if kind == "time" else f"{round(8 * value / factor)} b/s"
        )
    return dimension.model_copy(update=update)


_CARRY: dict[str, QuantityKind] = {
    "bandwidth": "bandwidth",
    "latency": "time",
    "message_latency": "time",
    "reduction_bandwidth": "bandwidth",
}
"""What of a dimension says how fast it is."""
