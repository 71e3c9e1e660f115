"""Points per second of `allrail sweep` by the number of workers, beside the linear rate.

    python benches/sweep.py

Two studies: points of about two milliseconds and of about four. The first seconds, in which workers
start, are part of a sweep and not of the rate: both are printed. Every study's table must be the
same, whoever made it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import allrail

ROOT = Path(__file__).parents[1]
ROUNDS = 3


def study(example: str, points: int) -> dict:
    """Draw points around an example."""
    return {
        "schema_version": 1,
        "scenario": str(next(ROOT.glob(f"examples/{example}-*/scenario.yaml"))),
        "axes": {
            "workload.batch_per_replica": {"from": 1, "to": 64},
            "schedule.chunks": {"from": 1, "to": 64, "scale": "log"},
        },
        "sample": {"method": "random", "points": points},
    }


def measured(one: dict, workers: int) -> tuple[float, float, bytes]:
    """Return points per second of the steady part and of the whole, and the table's bytes."""
    seen: list[tuple[float, int]] = []

    def note(done: int, _: int) -> None:
        seen.append((time.perf_counter(), done))

    with tempfile.TemporaryDirectory() as folder:
        allrail.sweep(one, folder, workers=workers, progress=note)
        table = (Path(folder) / "sweep.parquet").read_bytes()
    (begun, _), (ended, total) = seen[0], seen[-1]
    after = next(i for i, (_, done) in enumerate(seen) if done >= total // 5)
    before = next(i for i, (_, done) in enumerate(seen) if done >= total * 9 // 10)
    steady = (seen[before][1] - seen[after][1]) / (seen[before][0] - seen[after][0])
    return steady, total / (ended - begun), table


def main() -> None:
    """Print the table."""
    print("points of   workers  points/s  of linear  with start")
    for name, example, points in (("2 ms", "07", 3000), ("4 ms", "06", 600)):
        one = study(example, points)
        single = 0.0
        tables = set()
        # They take turns, so that what else the machine does is shared out.
        rounds = [(measured(one, 1), measured(one, 2)) for _ in range(ROUNDS)]
        for workers, runs in zip((1, 2), zip(*rounds, strict=True), strict=True):
            steady = median(run[0] for run in runs)
            whole = median(run[1] for run in runs)
            tables |= {run[2] for run in runs}
            single = single or steady
            share = steady / (workers * single)
            print(f"{name:<10}  {workers:>7}  {steady:8.1f}  {100 * share:7.1f} %  {whole:10.1f}")
        assert len(tables) == 1


if __name__ == "__main__":
    main()
