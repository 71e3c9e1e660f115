"""How long whole commands and many simulations take; nothing fails on a time.

`python benches/commands.py` prints the median of 15 runs (process start included) and the time of
10,000 simulations of a parameter grid through the Python API.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "01-simulate-themis" / "scenario.yaml"
COMMANDS = {
    "allrail --help": ["--help"],
    "allrail simulate": ["simulate", str(EXAMPLE)],
    "allrail simulate --json": ["simulate", str(EXAMPLE), "--json"],
    "allrail compare": ["compare", str(EXAMPLE)],
}


def command(arguments: list[str]) -> float:
    """Seconds that one command takes."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "allrail", *arguments], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def grid(count: int = 10_000) -> float:
    """Seconds that `count` different simulations take: 1,024 NPUs, 64 chunks."""
    import allrail

    scenarios = [
        {
            "schema_version": 1,
            "fabric": "3D-SW_SW_SW_homo",
            "collective": {"kind": "all_reduce", "size": f"{100 + index // 2} MB"},
            "schedule": {"policy": ("baseline", "themis")[index % 2], "chunks": 64},
        }
        for index in range(count)
    ]
    started = time.perf_counter()
    results = allrail.simulate_many(scenarios)
    assert len(results) == count
    return time.perf_counter() - started


def main() -> None:
    """Print them."""
    for name, arguments in COMMANDS.items():
        seconds = statistics.median(command(arguments) for _ in range(15))
        print(f"{name:<28} {1e3 * seconds:8.0f} ms")
    print(f"{'10,000 simulations':<28} {grid():8.2f} s")


if __name__ == "__main__":
    main()
