"""What HammingMesh (SC'22, arXiv 2209.01346) prints, and how near ours must be.

Shares and costs are Table II. Its figures of bandwidth are pictures without numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = Literal["small", "large"]


@dataclass(frozen=True, slots=True)
class Published:
    """A row of Table II.

    Attributes:
        size: The half of the table.
        name: Of the topology.
        fabric: Our preset.
        cost: Millions of dollars, as printed.
        all_to_all: Global bandwidth, per cent of injection.
        all_to_all_saving: Global bandwidth per dollar, relative to the nonblocking fat tree.
        all_reduce: Per cent of the most that an all-reduce can reach.
        all_reduce_saving: The same saving for the all-reduce.
        diameter: As printed, in cables but for the small dragonfly.
    """

    size: Size
    name: str
    fabric: str
    cost: str
    all_to_all: float
    all_to_all_saving: float
    all_reduce: float
    all_reduce_saving: float
    diameter: int

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.size} {self.name}"


TREE = "fat tree"
TREE_50, TREE_75 = "fat tree 50%", "fat tree 75%"
DRAGONFLY, HYPERX, HX2, HX4, TORUS = "dragonfly", "HyperX", "Hx2Mesh", "Hx4Mesh", "2D torus"

TABLE_TWO = (
    Published("small", TREE, "fat-tree-1k", "25.3", 99.9, 1.0, 98.9, 1.0, 4),
    Published("small", TREE_50, "fat-tree-1k-taper50", "17.6", 51.2, 0.7, 98.9, 1.4, 4),
    Published("small", TREE_75, "fat-tree-1k-taper75", "13.2", 25.7, 0.5, 98.9, 1.9, 4),
    Published("small", DRAGONFLY, "dragonfly-1k", "27.9", 62.9, 0.6, 98.8, 0.9, 3),
    Published("small", HYPERX, "hyperx-1k", "10.8", 91.6, 2.1, 98.1, 2.3, 4),
    Published("small", HX2, "hx2mesh-1k", "5.4", 25.4, 1.2, 98.3, 4.7, 4),
    Published("small", HX4, "hx4mesh-1k", "2.7", 11.3, 1.0, 98.4, 9.3, 8),
    Published("small", TORUS, "torus-1k", "2.5", 2.0, 0.2, 98.1, 10.1, 32),
    Published("large", TREE, "fat-tree-16k", "680", 98.9, 1.0, 99.8, 1.0, 6),
    Published("large", TREE_50, "fat-tree-16k-taper50", "419", 47.6, 0.8, 99.8, 1.6, 6),
    Published("large", TREE_75, "fat-tree-16k-taper75", "271", 24.0, 0.6, 99.8, 2.5, 6),
    Published("large", DRAGONFLY, "dragonfly-16k", "429", 71.5, 1.2, 98.6, 1.6, 5),
    Published("large", HYPERX, "hyperx-16k", "448", 95.8, 1.5, 91.4, 1.4, 8),
    Published("large", HX2, "hx2mesh-16k", "224", 25.0, 0.8, 92.3, 2.8, 8),
    Published("large", HX4, "hx4mesh-16k", "43.3", 10.5, 1.7, 92.2, 14.5, 8),
    Published("large", TORUS, "torus-16k", "39.5", 1.1, 0.2, 91.4, 15.7, 128),
)
"""Table II."""

FLOWS_TOLERANCE = {
    TREE: 0.06,
    TREE_50: 0.06,
    TREE_75: 0.06,
    DRAGONFLY: 0.06,
    HYPERX: 0.12,
    HX2: 0.06,
    HX4: 0.12,
    TORUS: 0.25,
}
"""Small clusters, all-to-all in `flows`: how far from the published share, as a fraction of it."""

PACKETS_TOLERANCE = {TREE: 0.03, HX2: 0.03}
"""The same in `packets`; the others, and all that is not in these two, have 5 %."""

TABLE = "SC'22, Table II"
PLACEMENT = "SC'22, section on job allocation"
WORKLOADS = "SC'22, §V-B"
COST_FIGURE = "SC'22, Fig. 15"

SAVINGS = 32
"""Savings in the table, both kinds."""

EXPLAINED_FROM = 0.05
"""Relative differences above it need a reason."""


def half_digit(printed: str) -> float:
    """Half of the last printed digit: how far a number may be that rounds to it.

    Args:
        printed: Such as `25.3` or `680`.
    """
    _, _, decimals = printed.partition(".")
    return float(0.5 * 10.0 ** -len(decimals))
