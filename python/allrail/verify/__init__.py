"""Predicted against measured: a recorded run beside the simulation of the same job.

    allrail.verify.verify(records)

`fit.py` says what each dimension carried, `collectives.py` how long each exchange took, and
`verdict.py` what the simulator says with one assumption at a time replaced by what was measured.
"""

from __future__ import annotations

from allrail.verify.verdict import Verdict, verify

__all__ = ["Verdict", "verify"]
