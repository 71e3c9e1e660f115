"""What a ranking of layouts answers, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from allrail.base.arguments import PathLike
from allrail.base.errors import InputError
from allrail.base.files import write_yaml
from allrail.base.units import show_number
from allrail.results.table import Table
from allrail.search.layouts.choice import Row
from allrail.search.layouts.given import why_it_loses
from allrail.search.layouts.layout import Job
from allrail.search.layouts.pessimistic import Pessimistic
from allrail.search.layouts.schedules import TunedLayout
from allrail.search.layouts.search import Found, words_of
from allrail.search.layouts.space import Space, lacks
from allrail.search.layouts.trial import Ranked
from allrail.search.layouts.written import scenario_of_layout

ENDED = {"interrupted": 130, "terminated": 143}
"""By what ended a search, as shells count."""


@dataclass(slots=True, eq=False)
class Layouts(Table):
    """Layouts of a model, ranked: a row each, the fastest first; those of the table are shown.

    Attributes:
        job: What was cut.
        space: All layouts, and why others cannot be.
        found: What came of the search.
        folded: Its layouts, those that are one but for their name in one.
        shown: Those of the table.
        better: The best with other schedules.
        network: What they take on the pessimistic network; None where it is not known.
        mine: The layout of `--score`; why it cannot be; None without.
        notes: What was assumed of the model.
        unsaid: What of the schedule the files of a tool leave out.
        whole: Whether all rows are shown.
    """

    kind: ClassVar[str] = "layouts"
    PLOTTED: ClassVar[tuple[str, str]] = ("layout", "step_s")

    job: Job
    space: Space
    found: Found
    folded: list[Row]
    shown: list[Row]
    better: list[TunedLayout] = field(default_factory=list)
    network: Pessimistic | None = None
    mine: Ranked | InputError | None = None
    notes: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)
    whole: bool = False

    @property
    def best(self) -> Ranked:
        """What is recommended."""
        return self.found.recommended

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The layouts of the table: seconds, GB, and what each loses by."""
        trees = (_tree(self, row.ranked) for row in self.shown)
        return [
            {
                "layout": one["name"],
                "recommended": one["name"] == self.best.layout.name,
                **{name: one[name] for name in _SHOWN},
                "tools": ",".join(one["tools"]),
                "loses_by": one["why"],
            }
            for one in trees
        ]

    @property
    def scenario(self) -> dict[str, Any]:
        """The recommended layout's scenario, which `allrail.simulate` and `apply` take."""
        return self.scenario_for(None)

    @property
    def plain_scenario(self) -> dict[str, Any]:
        """The recommended layout's scenario with the schedule that all were ranked with."""
        return scenario_of_layout(self.job, self.best)

    def scenario_for(self, folder: Path | None) -> dict[str, Any]:
        """Return the recommended layout's scenario, with the best of its schedules.

        Args:
            folder: Where its file goes, which names others from there; None: for here.
        """
        tree = scenario_of_layout(self.job, self.best, folder=folder)
        mine = [one for one in self.better if one.ranked.layout == self.best.layout]
        if mine and mine[0].schedule:
            tree["schedule"] = mine[0].schedule
        return tree

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`: the rows that are shown."""
        told = tree_of(self)
        shown = None if self.whole else len(self.shown)
        return told | {"ranked": told["ranked"][:shown]}

    @property
    def stopped(self) -> str:
        """What ended the search before all was looked at; empty if nothing did."""
        return self.found.stopped

    @property
    def exit_status(self) -> int:
        """130 or 143 where the search was interrupted, else 0."""
        return ENDED.get(self.found.stopped, 0)

    def write(self, path: PathLike) -> None:
        """Write the recommended scenario as `.yaml`, the rows as a table, or a folder of results.

        Args:
            path: `NAME.yaml`; `.csv`, `.parquet` or `.json`; else a folder.

        Raises:
            InputError: It cannot be written.
        """
        path = Path(path)
        if path.suffix in (".yaml", ".yml"):
            write_yaml(path, self.scenario_for(path.parent))
        else:
            Table.write(self, path)


_SHOWN = (
    "recompute",
    "step_s",
    "slow_network_s",
    "tokens_per_s_per_npu",
    "train_s",
    "memory_gb",
    "capacity_gb",
)


def shown_of(rows: Sequence[Row], best: Ranked, top: int) -> list[Row]:
    """Return the first rows, and the recommended one wherever it is.

    Args:
        rows: All.
        best: What is recommended.
        top: How many.
    """
    return [row for at, row in enumerate(rows) if at < top or row.ranked is best]


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
    reasons = (
        lacks(job, one.layout, recompute=one.recompute, tool=tool)
        for tool in ("megatron", "torchtitan")
    )
    return "; ".join(dict.fromkeys(reasons))


def tree_of(answer: Layouts) -> dict[str, Any]:
    """Return it as plain values.

    Args:
        answer: What was found.
    """
    found, space, mine = answer.found, answer.space, answer.mine
    scored: dict[str, Any] | None = None
    if isinstance(mine, InputError):
        scored = {"error": mine.message}
    elif mine is not None:
        scored = _tree(answer, mine)
        scored["loses_by"] = why_it_loses(mine, found.ranked[0])
    network = answer.network
    return {
        "recommended": answer.best.layout.name,
        "no_tool": no_tool(answer.job, found),
        "ranked": [
            _tree(answer, row.ranked) | {"same": [one.layout.name for one in row.others]}
            for row in answer.folded
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


def _tree(answer: Layouts, one: Ranked) -> dict[str, Any]:
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
