"""Tuning: the knobs of a training step's schedule, by few simulations or on the running job.

`space.py` says which knobs there are and what they may be. What is tried next: `searcher.py`
(Bayesian optimisation), `turns.py` (one knob after the other), `each.py` (all values of one knob).
`run.py` searches in simulation (`allrail tune`, `tune()`), `live.py` decides for a running job:
`torch/tune.py` makes the trials of both `tune=True` and `exchange: auto`. docs/concepts/tuning.md
has the words, and what else is chosen automatically.
"""

from allrail.search.tuning.run import Tuned, tune
from allrail.search.tuning.searcher import Trial

__all__ = ["Trial", "Tuned", "tune"]
