"""What `allrail calibrate device` does and shows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from allrail.base.errors import InputError
from allrail.base.installed import install
from allrail.cli import output

if TYPE_CHECKING:
    from allrail.measure.calibrate.device.fit import Fitted, Row


def measured(which: str | None, seconds: float) -> tuple[Fitted, tuple[str, ...], tuple[str, ...]]:
    """Measure a device; return its file, what is to be warned of, and what was not measured.

    Args:
        which: As PyTorch names it; the first GPU, else the CPU, if None.
        seconds: For all of it.

    Raises:
        InputError: There is no PyTorch, no such device, or no file can be made of its times.
    """
    try:
        import torch

        from allrail.measure.calibrate.device.bench import Bench
    except ImportError:
        raise InputError(
            "torch is not installed", hint=install("torch"), source="calibrate device"
        ) from None
    from allrail.measure.calibrate.device.fit import fit
    from allrail.measure.calibrate.device.run import run

    there = torch.cuda.is_available()
    try:
        chosen = torch.device(which or ("cuda" if there else "cpu"))
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cuda", "cpu"):
        raise InputError(
            "it is no device that is measured",
            source="--device",
            value=which,
            hint="`cuda:0`, `cpu`",
        )
    if chosen.type == "cuda" and (chosen.index or 0) >= (torch.cuda.device_count() if there else 0):
        raise InputError(
            "PyTorch finds no such GPU here",
            source="--device",
            value=str(which),
            hint="`cpu` measures the processor",
        )
    with output.Progress("measuring", counts=False) as progress:
        found = run(Bench(chosen), seconds=seconds, progress=progress)
    return fit(found), found.warnings, found.notes


def tree(row: Row) -> dict[str, object]:
    """Return a point as a row of `--json`.

    Args:
        row: The point beside its prediction.
    """
    point = row.measured.point
    return {
        "what": type(point).__name__.lower(),
        "kind": _kind(row),
        "of": str(point),
        "measured_us": 1e6 * row.measured.seconds,
        "predicted_us": 1e6 * row.predicted,
        "spread": row.measured.spread,
        "times": row.measured.count,
    }


def _kind(row: Row) -> str:
    point = row.measured.point
    if type(point).__name__ == "Stream":
        return "in_a_cache" if row.cached else "memory"
    return str(getattr(point, "format", None) or getattr(point, "kind", None) or "-")


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
                _kind(row),
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
