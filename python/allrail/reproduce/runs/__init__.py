"""Published training runs beside their predictions: `allrail reproduce runs`.

- `table`: a CSV line a run. `machine`, `model`, `software`, `layout`: what its cells mean.
- `predict`: its scenario and what comes out. `units`: what was measured, in one unit.
- `summary`: errors by source, the order of layouts, memory.

Nothing is fitted to a run: devices are those of `workload.compute.device`, links reach what NCCL's
tests show of them (`machine`).
"""

from __future__ import annotations

from allrail.reproduce.runs.predict import Outcome, predict
from allrail.reproduce.runs.table import Run, read_table

__all__ = ["Outcome", "Run", "predict", "read_table"]
