"""What `allrail calibrate device` does and shows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from allrail.cli import output
from allrail.measure.calibrations import kind_of_row

if TYPE_CHECKING:
    from allrail.measure.calibrate.device.fit import Fitted


def show(fitted: Fitted) -> None:
    """Print every point beside its prediction, and how far each kind of work is off.

    Args:
        fitted: The file and its rows.
    """
    cells = []
    off: dict[str, list[float]] = {}
    for row in fitted.rows:
        point, seconds = row.measured.point, row.measured.seconds
        what = type(point).__name__.lower()
        flops, moved = getattr(point, "flops", 0.0), getattr(point, "bytes", 0)
        rate = f"{flops / seconds / 1e12:.4g}_TFLOP/s" if flops else "-"
        if what == "stream":
            rate = f"{moved / seconds / 1e9:.4g}_GB/s"
        if what != "start" and not row.cached:
            off.setdefault(what, []).append(abs(row.off))
        cells.append(
            [
                what,
                kind_of_row(row),
                str(point),
                f"{1e6 * seconds:.2f}",
                f"{1e6 * row.predicted:.2f}",
                f"{100 * row.off:+.1f}",
                f"{100 * row.measured.spread:.1f}",
                rate,
            ]
        )
    output.table(
        [
            *("what", "kind", "of", "measured_us", "predicted_us", "predicted_off_%"),
            *("measured_spread_%", "measured"),
        ],
        cells,
    )
    for what, each in off.items():
        output.note(
            f"{what}: half of {len(each)} are within {100 * median(each):.0f} %, the farthest is"
            f" {100 * max(each):.0f} % off"
        )
