"""The loop: plan by the shapers' rates, run, verify by the run's own records.

Three profiles at two rates. Predicted before the run is a step with the nominal rate of the cable;
predicted afterwards is one with what the run's records say that it carried. The run is then made
again, and that prediction is held against a step that it has not seen.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

from figures import Figure, Interval
from job import GIGABIT, Worker, run_on
from steps import CASES, Case
from ways import Scheduled, model_of

from allrail.measure.verify import verify
from allrail.runtime.record import Record, read
from allrail.runtime.steps import steps_of
from testbed import Network

_RATES = {"1000": GIGABIT, "500": GIGABIT // 2}
"""By how rows say it, in Mb/s."""
_PROFILES = ("vgg16", "resnet50", "bert")


def run(*, steps: int) -> list[Figure]:
    """Run every profile at every rate.

    Args:
        steps: How many each time; the first two set things up.
    """
    found, ratios, covered, bars = [], [], [], []
    for name in _PROFILES:
        for rate, bits in _RATES.items():
            case = CASES[name]
            first, again = (_records(case, bits, steps) for _ in range(2))
            verdict = verify(first)
            seen = [(each.end - each.start) / 1e6 for one in again for each in steps_of(one)]
            measured = Interval.of(seen)
            ratio = verdict.refitted_ms / measured.median
            ratios.append(max(ratio, 1 / ratio))
            bars.append(verdict.bar)
            covered.append(abs(1 / ratio - 1) <= verdict.bar)
            found.append(
                Figure(
                    f"loop {name}, {rate} Mb/s",
                    "after calibration: p/m or m/p",
                    Interval(ratios[-1], ratios[-1], ratios[-1]),
                    most=1.1,
                    predicted=verdict.refitted_ms,
                    measured=measured.median,
                    note=f"as planned {verdict.planned_ms:.1f}, bar {100 * verdict.bar:.1f} %",
                )
            )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    mean_bar = sum(bars) / len(bars)
    share = sum(covered) / len(covered)
    return [
        *found,
        Figure("loop", "geometric mean", Interval(mean, mean, mean), most=1.05),
        Figure("loop", "error bars, mean", Interval(mean_bar, mean_bar, mean_bar), most=0.15),
        Figure("loop", "error bars that cover", Interval(share, share, share), least=0.9),
    ]


def _records(case: Case, rate: int, steps: int) -> list[Record]:
    with tempfile.TemporaryDirectory(prefix="allrail-loop-") as folder:

        def work(worker: Worker) -> None:
            os.environ["ALLRAIL_TRACE"] = folder
            model = model_of(case.model, case.scale, case.compute, worker.rank)
            way = Scheduled(model, worker, partition=f"{case.partition} KiB", records=1 << 18)
            way.run(steps + 3)
            way.close()

        run_on([Network(rate)], work)
        return read(Path(folder))
