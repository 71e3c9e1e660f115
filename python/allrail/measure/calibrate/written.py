"""What was fitted, as a fabric file has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allrail.measure.calibrate.fitting import Found
from allrail.measure.calibrate.joint import Joint
from allrail.measure.calibrate.judged import Judged
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.predict import Own
from allrail.measure.calibrate.ran import AS_RINGS, RINGS, library_of


def dimension_trees(levels: Levels, joint: Joint, ran: str) -> list[dict[str, Any]]:
    """Return the fabric's dimensions.

    Args:
        levels: Their sizes.
        joint: Their rates and latencies.
        ran: What the tables show.
    """
    return [
        {
            "kind": "switch",
            "size": size,
            "bandwidth": f"{plain(rate / 1e3, 6)} GB/s",
            "latency": f"{plain(us, 4)} us",
            **(AS_RINGS if ran == RINGS else {}),
        }
        for size, rate, us in zip(levels.sizes, joint.rates, joint.latencies, strict=True)
    ]


def plain(value: float, digits: int) -> str:
    """Return significant digits without an exponent, as quantities are written."""
    return f"{float(f'{value:.{digits}g}'):.9f}".rstrip("0").rstrip(".")


def own_of(found: Found) -> Own:
    """Return what the library's own algorithms reach, as tables show it."""
    joint, levels = found.joint, found.levels
    return Own(joint.rates, joint.latencies, levels.between, library_of(found.ran))


def library_tree(own: Own | None, judged: Sequence[Judged], error: float) -> dict[str, Any]:
    """Return the fabric's `library`.

    Args:
        own: What the library's own algorithms reach, where tables show them.
        judged: Every table beside the fabric.
        error: What nine of ten rows are within, as the tables' tool runs them.
    """
    tree: dict[str, Any] = {"error": error}
    if own is not None:
        tree |= {
            "algorithms": list(own.algorithms),
            "between": own.between,
            "dimensions": [
                {"bandwidth": f"{plain(rate / 1e3, 6)} GB/s", "latency": f"{plain(us, 4)} us"}
                for rate, us in zip(own.rates, own.latencies, strict=True)
            ],
        }
    tree["tables"] = [
        {
            "collective": each.table.collective,
            "part": list(each.part),
            "pieces": [
                {
                    "first": f"{piece.first} B",
                    "last": f"{piece.last} B",
                    "fixed_us": float(f"{piece.fixed_us:.6g}"),
                    "us_per_byte": float(f"{piece.us_per_byte:.6g}"),
                }
                for piece in each.fit.pieces
            ],
        }
        for each in judged
    ]
    return tree
