"""How long things take and how much memory they need; nothing fails on a time.

`python benches/speed.py` prints one line per figure: the median of several runs for whole commands
(process start included), the least of many for the core, each beside what is asked for. `peak` is
the largest resident memory of the process that ran it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "01-simulate-themis" / "scenario.yaml"
COMMANDS = {
    "allrail --help": (["--help"], "0.2 s"),
    "allrail simulate": (["simulate", str(EXAMPLE)], "0.3 s"),
    "allrail simulate --json": (["simulate", str(EXAMPLE), "--json"], "0.3 s"),
    "allrail compare": (["compare", str(EXAMPLE)], ""),
}
Scenario = Mapping[str, Any]


def row(name: str, figure: str, asked: str = "") -> None:
    """Print one figure."""
    print(f"{name:<52} {figure:>14}   {asked and 'asked: ' + asked}", flush=True)


def scenario(fabric: object, size: str = "1 GB", **schedule: object) -> Scenario:
    """An all-reduce in 64 chunks."""
    return {
        "schema_version": 1,
        "fabric": fabric,
        "collective": {"kind": "all_reduce", "size": size},
        "schedule": {"policy": "themis", "order": "smallest_first", "chunks": 64, **schedule},
    }


def switch(size: int) -> Scenario:
    """A dimension with the bandwidth of the ASTRA-sim tutorial."""
    return {"kind": "switch", "size": size, "bandwidth": "50 GiB/s", "latency": "1 us"}


def least(run: Callable[[], float], count: int = 50) -> float:
    """The least of several measurements."""
    return min(run() for _ in range(count))


def commands() -> None:
    """Whole commands, process start included."""
    for name, (arguments, asked) in COMMANDS.items():
        seconds = []
        for _ in range(15):
            started = time.perf_counter()
            command = [sys.executable, "-m", "allrail", *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
        row(name, f"{1e3 * statistics.median(seconds):.0f} ms", asked)


def core() -> None:
    """One simulation in `dims`, planning and wall time as the core measures them."""
    import allrail
    from allrail_reproduce.grid import PLATFORMS

    for name in PLATFORMS:
        tree = scenario(name)

        def simulating(tree: Scenario = tree) -> float:
            host = allrail.simulate(tree).host
            return host.wall_ms - host.planning_ms

        row(f"dims, themis, {name}: simulating", f"{1e3 * least(simulating):.0f} us", "100 us")
        planning = allrail.plan(scenario(name, policy="search"), cache=False)
        assert planning is not None
        result = allrail.simulate(scenario(name, policy="search"), cache=False)
        row(f"allrail, {name}: planning", f"{result.host.planning_ms:.0f} ms", "1 s")
    few = least(lambda: allrail.simulate(scenario({"dimensions": [switch(32)] * 2})).host.wall_ms)
    tree = scenario({"dimensions": [switch(1024)] * 2})
    many = least(lambda: allrail.simulate(tree).host.wall_ms)
    row("dims, 1,048,576 NPUs over 1,024 NPUs", f"{many / few:.2f} x", "about 1")


def grid(count: int = 10_000) -> None:
    """Different simulations on 1,024 NPUs through the Python API."""
    import allrail

    scenarios = [
        scenario(
            "3D-SW_SW_SW_homo", f"{100 + index // 2} MB", policy=("baseline", "themis")[index % 2]
        )
        for index in range(count)
    ]
    started = time.perf_counter()
    results = allrail.simulate_many(scenarios)
    assert len(results) == count
    row(f"{count:,} simulations", f"{time.perf_counter() - started:.2f} s", "4 s on two cores")


def links() -> None:
    """Direct all-reduce on one switch, message by message, each in a process of its own."""
    for size, asked in ((64, "20 ms"), (1024, "4 s, 1 GB")):
        schedule = {"policy": "baseline", "order": "fifo", "chunks": 4, "algorithms": ["direct"]}
        tree = scenario({"dimensions": [switch(size)]}, "1 GiB", **schedule, active_chunks=1)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "scenario.json"
            file.write_text(json.dumps({**tree, "network_model": "links"}), encoding="utf-8")
            command = [sys.executable, "-m", "allrail", "simulate", str(file), "--json"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                output = process.stdout.read() if process.stdout else ""
                _, _, usage = os.wait4(process.pid, 0)
                process.returncode = 0
        result = json.loads(output)
        figure = f"{result['host']['wall_ms']:.0f} ms, peak {usage.ru_maxrss // 1024} MB"
        row(f"links, direct, {size} NPUs, {result['messages']:,} messages", figure, asked)


def main() -> None:
    """Print everything."""
    # First what is measured from outside: a child's peak counts what its parent had at the fork.
    for part in (links, commands, core, grid):
        part()


if __name__ == "__main__":
    main()
