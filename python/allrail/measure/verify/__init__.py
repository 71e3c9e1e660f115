"""Predicted against measured: a run, or anyone's trace, beside the simulation of the same job.

    allrail.measure.verify.verify_records(records)
    allrail.measure.verify.verify_trace([Path("rank0.json.gz")], fabric="measured.yaml")

`run.py` is a run that the runtime has recorded: `fit.py` says what each dimension carried in it,
`collectives.py` how long each exchange took. `trace.py` is a trace of PyTorch's profiler. Both ask
the simulator with one assumption at a time replaced by what was measured (`refit.py`), and say it
in one form (`verdict.py`).
"""

from __future__ import annotations

from allrail.measure.verify.run import verify_records
from allrail.measure.verify.trace import verify_trace
from allrail.measure.verify.verdict import Verdict

__all__ = ["Verdict", "verify_records", "verify_trace"]
