"""Tuning: the knobs of a training step's schedule, by few simulations; `allrail tune`, `tune()`.

`space.py` says which knobs a scenario has and what they may be, `run.py` searches.
"""

from allrail.tuning.run import Trial, Tuned, tune

__all__ = ["Trial", "Tuned", "tune"]
