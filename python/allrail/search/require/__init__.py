"""The inverse of a prediction: how much bandwidth reaches a throughput, and which fabric does.

`target.py` reads what is wanted, `bandwidth.py` finds the least that reaches it, `fabrics.py` the
cheapest of a list.
"""

from __future__ import annotations

from allrail.search.require.bandwidth import Curve, Least, Required, require
from allrail.search.require.fabrics import Candidate, cheapest
from allrail.search.require.target import Target, read_target

__all__ = [
    "Candidate",
    "Curve",
    "Least",
    "Required",
    "Target",
    "cheapest",
    "read_target",
    "require",
]
