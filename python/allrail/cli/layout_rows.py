"""How `allrail plan --model` shows layouts: the table, what stands below it, and the JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from allrail.base.units import plain_number, show_count, show_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allrail.base.errors import InputError
    from allrail.search.layouts import Found, Job, Pessimistic, Ranked, Row, Space, Tuned


DAY = 86_400.0
"""Seconds."""


@dataclass(slots=True)
class Answer:
    """What `plan --model` found.

    Attributes:
        job: What was cut.
        space: All layouts, and why others cannot be.
        found: What came of the search.
        rows: Its layouts, those that are one but for their name in one.
        shown: Those of the table.
        better: The best with other schedules.
        network: What they take on the pessimistic network; None where it is not known.
        mine: The layout of `--score`; why it cannot be; None without.
        notes: What was assumed of the model.
    """

    job: Job
    space: Space
    found: Found
    rows: list[Row]
    shown: list[Row]
    better: list[Tuned] = field(default_factory=list)
    network: Pessimistic | None = None
    mine: Ranked | InputError | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> Ranked:
        """What is recommended."""
        return self.found.recommended


def shown_of(rows: Sequence[Row], best: Ranked, top: int) -> list[Row]:
    """Return the first rows, and the recommended one wherever it is.

    Args:
        rows: All.
        best: What is recommended.
        top: How many.
    """
    return [row for at, row in enumerate(rows) if at < top or row.ranked is best]


def show(answer: Answer) -> None:
    """Print the table.

    Args:
        answer: What was found.
    """
    from allrail.base.errors import InputError
    from allrail.cli import output

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


def tell(answer: Answer) -> None:
    """Print what stands below the table.

    Args:
        answer: What was found.
    """
    from allrail.cli import output
    from allrail.search.layouts.choice import WITHIN

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
    if len(answer.rows) > 1:
        output.note(gap(*(row.ranked for row in answer.rows[:2])))
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


def gap(first: Ranked, second: Ranked) -> str:
    """Return how far the second row is behind the first, in words.

    Args:
        first: The fastest.
        second: The next.
    """
    more = second.step_s - first.step_s
    if more < 1e-6 * first.step_s:
        return f"{second.layout.name} takes as long as {first.layout.name}"
    costs = f"{show_number(more, 3)} s" if more >= 1 else f"{show_number(1e3 * more, 3)} ms"
    return f"the second-best costs {costs} a step, {100 * more / first.step_s:.1f} %"


def no_tool(job: Job, found: Found) -> list[str]:
    """Return what is to be said of layouts that no tool can run: none, or a sentence.

    Args:
        job: What was cut.
        found: What came of the search.
    """
    best, fastest = found.recommended, found.ranked[0]
    if not best.tools:
        words = f"nothing that `apply` writes runs {best.layout.name} ({_lacks(job, best)}), nor"
        return [words + " any other layout that was simulated"]
    if fastest.tools:
        return []
    gap = 100 * (best.step_s / fastest.step_s - 1)
    words = f"{fastest.layout.name} is {gap:.1f} % faster than {best.layout.name}, but nothing"
    return [words + f" that `apply` writes runs it ({_lacks(job, fastest)})"]


def _lacks(job: Job, one: Ranked) -> str:
    """Why no tool that cuts models can do a layout."""
    from allrail.search.layouts import lacks

    reasons = (
        lacks(job, one.layout, recompute=one.recompute, tool=tool)
        for tool in ("megatron", "torchtitan")
    )
    return "; ".join(dict.fromkeys(reasons))


def _tell_rest(found: Found) -> None:
    """What was not simulated, and what of it may be better."""
    from allrail.cli import output

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


def _tell_network(answer: Answer) -> None:
    """What the recommended layout loses on a slower network; what is better there."""
    from allrail.cli import output
    from allrail.search.layouts.pessimistic import BUSY

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


def _tell_mine(answer: Answer) -> None:
    """What the layout of `--score` loses by."""
    from allrail.base.errors import InputError
    from allrail.cli import output
    from allrail.search.layouts import why_it_loses

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


def tree_of(answer: Answer) -> dict[str, Any]:
    """Return it as plain values.

    Args:
        answer: What was found.
    """
    from allrail.base.errors import InputError
    from allrail.search.layouts.search import words_of

    found, space, mine = answer.found, answer.space, answer.mine
    scored: dict[str, Any] | None = None
    if isinstance(mine, InputError):
        scored = {"error": mine.message}
    elif mine is not None:
        from allrail.search.layouts import why_it_loses

        scored = _tree(answer, mine)
        scored["loses_by"] = why_it_loses(mine, found.ranked[0])
    network = answer.network
    return {
        "recommended": answer.best.layout.name,
        "no_tool": no_tool(answer.job, found),
        "ranked": [
            _tree(answer, row.ranked) | {"same": [one.layout.name for one in row.others]}
            for row in answer.rows
        ],
        "scored": scored,
        "headroom": answer.job.headroom,
        "slow_network": None if network is None else network.words,
        "layouts": len(space.layouts),
        "simulated": len(found.ranked),
        "pruned": {one.layout.name: one.bound_s for one in found.pruned},
        "too_large": [one.layout.name for one in found.too_large],
        "refused": {layout.name: one.message for layout, one in found.refused},
        "not_tried": dict(space.refused),
        "schedules": [
            {
                "name": one.ranked.layout.name,
                "schedule": one.schedule,
                "step_s": one.ranked.step_s,
                "before_s": one.before_s,
                "tried": one.tried,
            }
            for one in answer.better
        ],
        "notes": answer.notes,
        **words_of(found),
    }


def _tree(answer: Answer, one: Ranked) -> dict[str, Any]:
    from dataclasses import asdict

    slow = answer.network.steps_s if answer.network is not None else {}
    return {
        **asdict(one),
        "name": one.layout.name,
        "lost": dict(one.lost),
        "why": one.why,
        "binding": {"dimension": one.binding[0], "busy": one.binding[1]},
        "kinds": one.layout.kinds,
        "tools": list(one.tools),
        "slow_network_s": slow.get(one.layout.name),
    }
