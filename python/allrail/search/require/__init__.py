"""The inverse of a prediction: how much bandwidth reaches a throughput, and which fabric does.

`target.py` reads what is wanted, `bandwidth.py` finds the least that reaches it, `fabrics.py` the
cheapest of a list.
"""

from __future__ import annotations

from allrail.search.require.bandwidth import Curve, Least, Required, least_bandwidth
from allrail.search.require.candidate import Candidate
from allrail.search.require.fabrics import cheapest
from allrail.search.require.target import Target, read_target

__all__ = [
    "Candidate",
    "Curve",
    "Least",
    "Required",
    "Target",
    "cheapest",
    "least_bandwidth",
    "read_target",
]
