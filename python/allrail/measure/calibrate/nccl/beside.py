"""What NCCL takes for the collective of a scenario: the row `nccl` of `allrail compare`.

By the figures of NCCL's own tuner; on a fabric that was calibrated from tables of its collectives
as these tables say (`predict.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from allrail.base.errors import InputError
from allrail.measure.calibrate.nccl.cluster import cluster_of
from allrail.measure.calibrate.nccl.model import COLLECTIVES, fastest, ways
from allrail.measure.calibrate.predict import predict_us, tree_of
from allrail.scenario import Scenario
from allrail.scenario.dimensions import aggregate, dimensions_of
from allrail.scenario.fields import parse_quantity

_NVLINK = (150.0, 300.0, 450.0, 900.0)
"""GB/s a GPU and direction: Volta to Blackwell (datasheets)."""


@dataclass(frozen=True, slots=True)
class Nccl:
    """What NCCL runs, and how long that takes.

    Attributes:
        time_us: Time without what the host takes, µs; with it where it was measured.
        algorithm: `ring`, `tree`, `nvls`, `nvls_tree` or `direct`; `measured` where tables say it.
        protocol: `LL`, `LL128` or `Simple`; empty where tables say it.
        error: What nine of ten measured rows are within; None by the tuner's figures.
    """

    time_us: float
    algorithm: str
    protocol: str
    error: float | None = None

    @property
    def name(self) -> str:
        """Algorithm and protocol, as a table shows them."""
        return f"{self.algorithm}_{self.protocol}" if self.protocol else self.algorithm


def is_nvlink(scenario: Scenario) -> bool:
    """Whether the first dimension of a scenario's fabric is a machine with NVLink switches.

    Args:
        scenario: With dimensions or without.
    """
    try:
        first = dimensions_of(scenario.fabric).dimensions[0].model_dump(exclude_defaults=True)
    except InputError:
        return False
    rate = aggregate(first) / 1e9
    return first["kind"] == "switch" and any(abs(rate / one - 1) < 1e-3 for one in _NVLINK)


def nccl_of(scenario: Scenario) -> Nccl:
    """Return what NCCL takes for the collective of a scenario, by its own tuner's figures.

    Args:
        scenario: With one collective over all NPUs of a fabric of dimensions.

    Raises:
        InputError: It has no such collective, or its fabric no dimensions.
    """
    if len(scenario.collective) != 1:
        raise InputError(
            "NCCL's row is of one collective", hint="leave `nccl` out of `--policy`", field="policy"
        )
    [one] = scenario.collective
    if one.kind not in COLLECTIVES:
        raise InputError(
            f"nccl-tests have no `{one.kind}`",
            hint="leave `nccl` out of `--policy`",
            field="policy",
        )
    fabric = dimensions_of(scenario.fabric)
    size = parse_quantity("size", str(one.size))
    if fabric.library is not None:
        used = range(len(fabric.dimensions)) if one.dimensions is None else one.dimensions
        part = [each.size if place in used else 1 for place, each in enumerate(fabric.dimensions)]
        time = predict_us(tree_of(fabric), one.kind, part, size)
        return Nccl(time, "measured", "", fabric.library.error_of(one.kind, part))
    dimensions = [each.model_dump(exclude_defaults=True) for each in fabric.dimensions]
    spanned = dimensions
    if one.dimensions is not None:
        spanned = [dimensions[place] for place in sorted(one.dimensions)]
    ranks = math.prod(int(each["size"]) for each in spanned)
    # Without the first dimension each rank is on a machine of its own.
    apart = one.dimensions is not None and 0 not in one.dimensions
    cluster = cluster_of(
        [dimensions[0], *spanned] if apart else spanned,
        ranks,
        hosts=ranks if apart else None,
        calibrated=fabric.calibrated,
    )
    time, way = fastest(ways(cluster, one.kind), size)
    return Nccl(time, way.algorithm, way.protocol)
