"""NCCL's algorithms, as its own tuner counts them: which it runs at a size, in how long."""

from __future__ import annotations

from allrail.measure.calibrate.nccl.cluster import Cluster, cluster_of
from allrail.measure.calibrate.nccl.model import Way, fastest, switches, ways

__all__ = ["Cluster", "Way", "cluster_of", "fastest", "switches", "ways"]
