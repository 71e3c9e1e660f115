"""What is known of the error of a sweep's predictions: one line, where all points share one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.results.accuracy import line_of
from allrail.results.network_accuracy import network_error

if TYPE_CHECKING:
    from allrail.search.sweeps.study import Study

COMPUTING = ("workload.compute", "workload.precision", "workload.model")
"""Fields that change by which runs a step is compared."""
NETWORK = ("fabric", "collective")
"""Fields that change by which tables a collective is compared."""


def known_line(study: Study) -> str | None:
    """Return the error line of a sweep; None where every point has an error bar of its own.

    Args:
        study: What was swept.
    """
    base = study.base
    if base.collective and getattr(base.fabric, "error", None) is not None:
        return None
    varied = COMPUTING if base.workload is not None else NETWORK if base.collective else ()
    if any(field.startswith(varied) for axis in study.axes for field in axis.fields):
        return "error: it differs by point; `allrail simulate` says it of one"
    network = network_error(base)
    return line_of(base) or (None if network is None else network.told)
