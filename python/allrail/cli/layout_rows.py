"""How `allrail plan --model` shows layouts: the table, and what stands below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.base.errors import InputError
from allrail.base.units import plain_number, show_count
from allrail.cli import output
from allrail.search.layouts import why_it_loses
from allrail.search.layouts.answer import gap, no_tool
from allrail.search.layouts.choice import WITHIN
from allrail.search.layouts.pessimistic import BUSY

if TYPE_CHECKING:
    from allrail.search.layouts import Job, Ranked
    from allrail.search.layouts.answer import Layouts
    from allrail.search.layouts.search import Found

DAY = 86_400.0
"""Seconds."""


def show(answer: Layouts) -> None:
    """Print the table.

    Args:
        answer: What was found.
    """
    fastest = answer.found.ranked[0].step_s
    slow = answer.network.steps_s if answer.network is not None else {}
    rows = []
    ranked = [row.ranked for row in answer.shown]
    mine = answer.mine
    for one in [*ranked, *([] if mine is None or isinstance(mine, InputError) else [mine])]:
        name = one.layout.name
        cells = [
            f"{name}*" if one is answer.best else name,
            one.recompute,
            plain_number(one.step_s),
            plain_number(slow[name]) if name in slow else "-",
            f"{one.tokens_per_s_per_npu:,.4g}"
            if one.tokens_per_s_per_npu < 1000
            else f"{one.tokens_per_s_per_npu:,.0f}",
            *([plain_number(one.train_s / DAY)] if one.train_s is not None else []),
            f"{100 * (1 - fastest / one.step_s):.1f}",
            f"{one.memory_gb:.1f}{_mark(answer.job, one)}",
            "-" if one.capacity_gb is None else f"{one.capacity_gb:.1f}",
            ",".join(one.tools) or "-",
            one.why,
        ]
        rows.append(cells)
    header = ["layout", "recompute", "step_s", "slow_network_s", "tokens_per_s_per_npu"]
    header += ["train_days"] if ranked[0].train_s is not None else []
    header += ["below_best_%", "memory_GB", "capacity_GB", "tools", "loses_by"]
    output.table(header, rows)


def _mark(job: Job, one: Ranked) -> str:
    """Beside the memory: `!!` above what there is, `!` above what may be filled."""
    if one.capacity_gb is None or one.memory_gb <= (1 - job.headroom) * one.capacity_gb:
        return ""
    return "!!" if one.memory_gb > one.capacity_gb else "!"


def tell(answer: Layouts) -> None:
    """Print what stands below the table.

    Args:
        answer: What was found.
    """
    job, found, best = answer.job, answer.found, answer.best
    output.note(
        f"recommended (*): {best.layout.name}, of those within {100 * WITHIN:g} % of the fastest"
        f"{' that a tool can run' if best.tools else ''} with the fewest kinds of parallelism, then"
        " the least memory"
    )
    for words in no_tool(job, found):
        output.note(words)
    if best.capacity_gb is not None:
        output.note(
            "memory_GB: of the fullest NPU, capacity_GB: what it has;"
            f" {100 * job.headroom:g} % stay free (--headroom)"
        )
    if len(answer.folded) > 1:
        output.note(gap(*(row.ranked for row in answer.folded[:2])))
    for row in answer.shown:
        if row.others:
            names = ", ".join(one.layout.name for one in row.others[:3])
            more = len(row.others) - 3
            names += f" and {more} more" if more > 0 else ""
            output.note(f"{row.ranked.layout.name} stands for {names}: the same step and memory")
    _tell_network(answer)
    _tell_mine(answer)
    for one in answer.better:
        output.note(f"{one.ranked.layout.name}: {one.words}")
    space = answer.space
    output.note(
        f"{show_count(len(space.layouts), 'layout')}: {len(found.ranked)} simulated,"
        f" {len(found.pruned)} provably no better, {len(found.too_large)} too large even with full"
        f" recomputation, {len(found.refused)} impossible; "
        f"{show_count(job.global_batch, 'sample')} a step"
    )
    _tell_rest(found)
    for why, count in space.refused.most_common():
        output.note(f"not tried, {show_count(count, 'time')}: {why}")
    for note in answer.notes:
        output.note(note)


def _tell_rest(found: Found) -> None:
    """What was not simulated, and what of it may be better."""
    if found.stopped:
        open_ = [one for one in found.left if one.bound_s < found.ranked[0].step_s]
        words = (
            f"{found.stopped}: {show_count(len(found.left), 'layout')} bounded and not simulated"
        )
        if found.unseen:
            words += f", {found.unseen:,} not looked at"
        if open_:
            least = open_[0]
            words += (
                f"; {len(open_):,} may be faster than the first row, by"
                f" {100 * (1 - least.bound_s / found.ranked[0].step_s):.1f} % at most"
                f" ({least.layout.name})"
            )
        output.note(words)
    elif found.pruned:
        bound = min(found.pruned, key=lambda one: one.bound_s)
        output.note(
            f"of those not simulated the least step is {plain_number(bound.bound_s)} s or more:"
            f" {bound.layout.name}"
        )


def _tell_network(answer: Layouts) -> None:
    """What the recommended layout loses on a slower network; what is better there."""
    best = answer.best
    name, busy = best.binding
    if busy > BUSY:
        output.note(
            f"{name} is busy for {100 * busy:.0f} % of the step of {best.layout.name}: with less"
            " bandwidth than the fabric says, the step is longer"
        )
    network = answer.network
    if network is None or best.layout.name not in network.steps_s:
        return
    here = network.steps_s[best.layout.name]
    words = (
        f"slow_network_s: {network.words}; {best.layout.name} loses"
        f" {100 * (1 - best.step_s / here):.1f} % there"
    )
    steps = {row.ranked.layout.name: row.ranked.step_s for row in answer.shown}
    other = min(steps, key=lambda one: network.steps_s.get(one, float("inf")))
    there = network.steps_s[other]
    if there < here * (1 - 1e-3):
        words += f"; {other} is {100 * (1 - there / here):.1f} % shorter there"
        words += f" (it loses {100 * (1 - steps[other] / there):.1f} %)"
    output.note(words)


def _tell_mine(answer: Layouts) -> None:
    """What the layout of `--score` loses by."""
    mine = answer.mine
    if mine is None:
        return
    if isinstance(mine, InputError):
        output.note(f"the layout of --score cannot be: {mine.message}")
        return
    best, name = answer.found.ranked[0], mine.layout.name
    gap = 100 * (mine.step_s / best.step_s - 1)
    if gap > 0:
        words = f"{name} takes {gap:.1f} % longer than {best.layout.name}"
        words += f" ({why_it_loses(mine, best)})"
    else:
        words = f"{name} is {-gap:.1f} % shorter than {best.layout.name}"
    if _mark(answer.job, mine) == "!!" and mine.capacity_gb is not None:
        words += f"; it does not fit: {mine.memory_gb:.1f} GB of {mine.capacity_gb:.1f}"
    output.note(words)
