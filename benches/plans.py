"""Plans of models that people train: what is recommended, whether it fits, which tool runs it.

    python benches/plans.py [NAME ...] [--top 1] [--budget SECONDS]

A line a plan, as it comes: the recommended layout of `allrail plan --model`, its step, the memory
of the fullest NPU with what it has and how much of that stays free, the tools that can run it, how
many of the layouts were simulated, and the seconds of computing (of all threads; without imports).
Checked is what the guide promises: the memory leaves the headroom free, some tool runs the
recommended layout, and no layout of the table that some tool runs is more than 1 % faster.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from allrail.search.layouts import search, space
from allrail.search.layouts.answer import no_tool
from allrail.search.layouts.asked import OfModel, job_of
from allrail.search.layouts.budget import Budget
from allrail.search.layouts.choice import WITHIN


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for.

    Attributes:
        model: A preset.
        fabric: A preset, which names the device.
        npus: How many of it.
        batch: Samples of a step.
        sequence: Tokens of a sample; None: the model's own.
    """

    model: str
    fabric: str
    npus: int
    batch: int
    sequence: int | None = None


PLANS = {
    "gpt3-a100": Plan("gpt3_175b", "dgx-a100", 1024, 2048),
    "mixtral": Plan("mixtral_8x7b", "dgx-h100", 64, 256),
    "deepseek-v3": Plan("deepseek_v3", "dgx-h100", 1024, 4096),
    "qwen3-30b": Plan("qwen3_30b_a3b", "dgx-h100", 64, 256),
    "llama3-8b": Plan("llama3_8b", "dgx-h100", 64, 256),
    "llama3-8b-8": Plan("llama3_8b", "dgx-h100", 8, 64, 8192),
    "llama3-405b-131k": Plan("llama3_405b", "dgx-h100", 1024, 128, 131_072),
}
HEADER = (
    f"{'plan':17} {'NPUs':>5} {'recommended':42} {'step_s':>8} {'GB':>6} {'of_GB':>6}"
    f" {'free_%':>6} {'simulated':>12} {'cpu_s':>7}  tools"
)


def line_of(name: str, plan: Plan, *, top: int, budget: float | None) -> str:
    """Return the line of a plan, having checked it.

    Args:
        name: Of the plan.
        plan: What is asked for.
        top: How many rows are wanted.
        budget: Seconds that it may take; None: when it is done.
    """
    started = time.process_time()
    asked = OfModel(plan.model, plan.fabric, plan.npus, plan.batch, plan.sequence, None)
    job = job_of(None, asked, example="")
    found = search(job, space(job, job.sizes).layouts, top=top, budget=Budget(budget))
    spent = time.process_time() - started
    best = found.recommended
    has = best.capacity_gb or float("inf")
    assert best.memory_gb <= (1 - job.headroom) * has, f"{name}: it leaves too little free"
    assert best.tools or no_tool(job, found), f"{name}: nothing runs it, and nothing says so"
    faster = [one for one in found.ranked if one.tools and one.step_s * (1 + WITHIN) < best.step_s]
    assert not faster, f"{name}: {faster[0].layout.name} is faster"
    count = f"{len(found.ranked):,}/{len(found.ranked) + len(found.pruned) + len(found.left):,}"
    layout = best.layout.name + ("" if best.recompute == "none" else f" ({best.recompute})")
    return (
        f"{name:17} {plan.npus:5} {layout:42} {best.step_s:8.4g} {best.memory_gb:6.1f} {has:6.1f}"
        f" {100 * (1 - best.memory_gb / has):6.1f} {count:>12} {spent:7.1f}"
        f"  {','.join(best.tools) or '-'}{f'; {found.stopped}' if found.stopped else ''}"
    )


def main() -> None:
    """Print the plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PLANS)}")
    parser.add_argument("--top", type=int, default=1)
    parser.add_argument("--budget", type=float, help="seconds a plan")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in PLANS]:
        sys.exit(f"no such plan: {', '.join(unknown)}; there are {', '.join(PLANS)}")
    print(HEADER, flush=True)
    for name, plan in PLANS.items():
        if not asked.names or name in asked.names:
            print(line_of(name, plan, top=asked.top, budget=asked.budget), flush=True)


if __name__ == "__main__":
    main()
