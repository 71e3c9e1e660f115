"""What an operation with a name of its own costs, after few names and after many: on loopback."""

from __future__ import annotations

import json
import subprocess
import sys

from figures import Figure, Interval

_NAMES = 100_000
_SOME = 1000
"""So many names are timed at either end."""
_SCRIPT = """
import json, sys, time
import numpy as np
import allrail

names, some = map(int, sys.argv[1:])
spent = []
with allrail.Communicator() as group:
    array = np.ones(1)
    for number in range(names):
        start = time.perf_counter_ns()
        group.all_reduce(array, name=f"loss/{number}").wait()
        if number < some or number >= names - some:
            spent.append(time.perf_counter_ns() - start)
        array[:] = 1
    if group.rank == 0:
        print(json.dumps(spent))
"""


def run(*, quick: bool) -> list[Figure]:
    """The first thousand names beside the last of 100,000, on two ranks.

    Args:
        quick: Whether a tenth is enough.
    """
    names = _NAMES // 10 if quick else _NAMES
    launch = [sys.executable, "-m", "allrail", "launch", "-n", "2", "--"]
    done = subprocess.run(
        [*launch, sys.executable, "-c", _SCRIPT, str(names), str(_SOME)],
        capture_output=True,
        text=True,
        check=True,
    )
    spent = json.loads(done.stdout[done.stdout.index("[", done.stdout.index("]") + 1) :])
    first, last = ([ns / 1000 for ns in part] for part in (spent[:_SOME], spent[-_SOME:]))
    ratio = Interval.of_ratio([(last, first)])
    return [
        Figure("names", f"names 1 to {_SOME:,}, us each", Interval.of(first)),
        Figure("names", f"the last {_SOME:,} of {names:,}, us each", Interval.of(last)),
        Figure("names", "last over first", ratio, most=1.5),
    ]
