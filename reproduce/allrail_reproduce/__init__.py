"""Published numbers computed again: one file a publication, each gives a `Reproduction`.

`themis` is the Themis paper (ISCA'22), `astra_sim` the ASTRA-sim tutorial (ASPLOS 2023) and, where
its cases are at hand, what ASTRA-sim prints for them, `hammingmesh` the HammingMesh paper (SC'22),
`bytescheduler` the ByteScheduler paper (SOSP'19), `horovod` Horovod's control plane (NSDI'22).
"""

from __future__ import annotations

from allrail_reproduce.rows import Reproduction, Row

__all__ = ["Reproduction", "Row"]
