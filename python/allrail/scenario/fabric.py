"""A fabric's typed tree; its keys are the core's."""

from __future__ import annotations

from allrail.scenario import keys


class Fabric(keys.Fabric):
    """The network of a cluster: a list of dimensions, innermost first."""

    @property
    def npus(self) -> int:
        """How many NPUs it joins."""
        product = 1
        for dimension in self.dimensions:
            product *= dimension.size
        return product
