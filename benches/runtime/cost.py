"""Where the CPU of a step goes: by thread of a worker, its time and how often it gave up the core.

The kernel counts both for every thread (`/proc/self/task/*/schedstat` and `status`), so that other
work on the machine lengthens a step and hardly changes the table. A thread that is woken more often
than there is something to do shows in its switches; what work it does, in `perf record -g`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import steps as training
from figures import Figure, Interval
from job import Worker, run_on
from ways import Alone, Ddp, Scheduled, Way, model_of, take_turns

CASES = {"vgg16": 1.6, "resnet50": 6.0, "bert": 1.6}
"""Rows of `steps.py` by name, each with DDP's best bucket in MB, or one near it."""
_LEFT = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)$", re.MULTILINE)


@dataclass
class Spent:
    """What threads have spent, by their names.

    Attributes:
        seconds: On a core.
        switches: How often they left it, by themselves or not.
    """

    seconds: Counter[str] = field(default_factory=Counter)
    switches: Counter[str] = field(default_factory=Counter)


class _Threads:
    """What the threads of this process spend while it is watched."""

    def __init__(self) -> None:
        self.spent = Spent()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count what is spent within it."""
        before = _threads()
        yield
        for thread, (name, seconds, switches) in _threads().items():
            _, earlier, left = before.get(thread, (name, 0.0, 0))
            self.spent.seconds[name] += seconds - earlier
            self.spent.switches[name] += switches - left


def run(name: str, *, blocks: int, steps: int) -> list[Figure]:
    """Run a case without others, with ours and with DDP.

    Args:
        name: Which.
        blocks: How many count.
        steps: Of each way in a block.
    """
    case = training.CASES[name]

    def work(worker: Worker) -> dict[str, Spent]:
        def model() -> Any:
            return model_of(case.model, case.scale, case.compute, worker.rank)

        ways: list[Way] = [
            Alone(model()),
            Scheduled(model(), worker, partition=f"{case.partition} KiB"),
            Ddp(model(), CASES[name]),
        ]
        threads = {way.name: _Threads() for way in ways}
        take_turns(
            ways,
            blocks=blocks,
            steps=steps,
            ranks=worker.ranks,
            around=lambda way: threads[way.name].watched(),
        )
        for way in ways:
            way.close()
        return {way: one.spent for way, one in threads.items()}

    results = run_on([case.network], work)
    count = blocks * steps
    found, totals = [], {}
    for way in results[0]:
        spent = [one[way] for one in results]
        names = sorted({thread for one in spent for thread in one.seconds})
        whole = [sum(one.seconds.values()) for one in spent]
        totals[way] = whole
        for thread, values in [("all", whole)] + [
            (each, [one.seconds[each] for one in spent]) for each in names
        ]:
            switches = [
                sum(one.switches.values()) if thread == "all" else one.switches[thread]
                for one in spent
            ]
            note = f"{sum(switches) / len(switches) / count:.0f} switches"
            what = f"{way}: {thread}, ms a step"
            found.append(Figure(case.name, what, Interval.of(values).times(1e3 / count), note=note))
    ddp = next(way for way in totals if way.startswith("DDP"))
    ratios = [one / ours for one, ours in zip(totals[ddp], totals["allrail"], strict=True)]
    found.append(Figure(case.name, f"CPU of {ddp} over ours", Interval.of(ratios)))
    return found


def _threads() -> dict[str, tuple[str, float, int]]:
    """By thread: its kind, seconds on a core, and how often it has left it."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            ns = int((task / "schedstat").read_text().split()[0])
            left = sum(map(int, _LEFT.findall((task / "status").read_text())))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        found[task.name] = (re.sub(r"\d+$", "", name).strip(), ns / 1e9, left)
    return found
