"""A fabric's typed tree; its keys are the core's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from allrail.scenario import keys
from allrail.scenario.fields import Number, QuantityKind, parse_quantity


class Fabric(keys.Fabric):
    """The network of a cluster: a list of dimensions, innermost first."""

    error: Annotated[float, Number(above=0, example="0.07")] | None = Field(
        default=None,
        exclude=True,
        description="By how much of themselves the times of collectives on it may be off, as "
        "`allrail calibrate` and `allrail verify` have measured; results carry an error bar with "
        "it.",
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
