"""How close `allrail tune` comes to the best of the whole grid: ten seeds, beside random search.

    python benches/tune.py

The grid is every combination of the knobs' ladders. Random search draws as many combinations; a
coarse grid takes evenly spread ones. Printed is how much slower the best found is than the grid's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from allrail.scenario import load_scenario
from allrail.search.tuning.run import TRIALS, search
from allrail.search.tuning.space import knobs
from allrail.simulation.api import simulate_many

ROOT = Path(__file__).parents[1]
SEEDS = 10
EXAMPLE = ROOT / "examples/07-compare-tensor-schedulers/scenario.yaml"
CASES = {
    "vgg16 bytescheduler 12.5G": {"schedule.tensor": "bytescheduler"},
    "vgg16 bytescheduler 3G": {
        "schedule.tensor": "bytescheduler",
        "fabric.dimensions[1].bandwidth": "3 Gb/s",
    },
    "transformer fusion": {"schedule.tensor": "fusion", "workload.model": "transformer_big"},
    "transformer ddp": {"schedule.tensor": "ddp", "workload.model": "transformer_big"},
    "resnet50 priority 3G": {
        "schedule.tensor": "priority",
        "workload.model": "resnet50",
        "fabric.dimensions[1].bandwidth": "3 Gb/s",
    },
}


def looked_up(
    values: Mapping[str, Any], *, times: Mapping[Any, float], paths: list[str], start: float
) -> float:
    """Return the step's time of a combination, which was simulated before."""
    return times[tuple(values[path] for path in paths)] if values else start


def over(found: list[float], best: float) -> str:
    """Return how much slower than the best, %: the median, and the worst."""
    share = [100 * (one / best - 1) for one in found]
    return f"{median(share):6.2f} ({max(share):5.2f})"


def main() -> None:
    """Print the table."""
    print(f"{TRIALS} trials, {SEEDS} seeds: above the whole grid's best, %, median (worst)")
    print(
        f"{'case':<28} {'grid':>6} {'tune':>14} {'random':>14} {'coarse grid':>12} {'as it is':>9}"
    )
    for name, sets in CASES.items():
        base = load_scenario(EXAMPLE, sets=sets)
        space = knobs(base)
        points = list(product(*(knob.values for knob in space)))
        paths = [knob.path for knob in space]
        scenarios = [load_scenario(base, sets=dict(zip(paths, p, strict=True))) for p in points]
        results = simulate_many([*scenarios, base])
        times = {p: r.step_time_us for p, r in zip(points, results, strict=False)}
        start = results[-1].step_time_us
        best = min(*times.values(), start)

        known = partial(looked_up, times=times, paths=paths, start=start)
        tuned = [search(space, known, seed=s).best.step_time_us for s in range(SEEDS)]
        drawn = [
            min(start, *(times[p] for p in random.Random(s).sample(points, TRIALS - 1)))
            for s in range(SEEDS)
        ]
        even = points[:: max(1, len(points) // (TRIALS - 1))][: TRIALS - 1]
        coarse = min(start, *(times[p] for p in even))

        print(
            f"{name:<28} {len(points):>6} {over(tuned, best):>14} {over(drawn, best):>14} "
            f"{100 * (coarse / best - 1):>12.2f} {100 * (start / best - 1):>9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
