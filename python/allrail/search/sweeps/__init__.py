"""Sweeps: a scenario with some fields changed, over and over; `allrail sweep` and `sweep()`.

    swept = allrail.sweep("study.yaml", "out")
    swept.table.sort("step_time_us").head()

A study (`study.py`) has axes (`axes.py`), which make points (`points.py`). Each is simulated
(`evaluate.py`) by a process of this machine (`pool.py`) or of a cluster (`ray.py`), which are given
points piece by piece (`tasks.py`). What comes is kept (`journal.py`), and becomes a table
(`table.py`) and pictures (`picture.py`): the same bytes, whoever did the work.
"""

from allrail.search.sweeps.run import Swept, sweep

__all__ = ["Swept", "sweep"]
