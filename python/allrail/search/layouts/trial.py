"""One layout as the core sees it: its scenario's text, its bound, its simulation, its step.

A scenario is read once for a job; of it, a layout changes its own keys alone. Where there are many
microbatches two smaller numbers are simulated, from which the step follows: a pipeline repeats
itself once it is full. What follows so is never less than the bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.scenario import Fabric, GraphFabric, Scenario, load_scenario
from allrail.scenario.dimensions import dimensions_of
from allrail.search.layouts.layout import Cut, Job
from allrail.search.layouts.space import tools_of
from allrail.simulation.kinds import needs
from allrail.simulation.many import of_core
from allrail.simulation.steady import of_all, simulated_counts

RECOMPUTED = ("none", "selective", "alternate", "full")
"""From the least to the most."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A layout that fits, before it is simulated.

    Attributes:
        layout: Which.
        recompute: The least that fits.
        bound_s: No simulated step is shorter; 0 where nothing is known.
        memory_gb: Of the fullest NPU.
        capacity_gb: What an NPU has; None where nobody says it.
    """

    layout: Cut
    recompute: str
    bound_s: float
    memory_gb: float
    capacity_gb: float | None = None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A layout that does not fit.

    Attributes:
        layout: Which.
        needed: Bytes that its fullest NPU holds, as `memory_gb` of others.
        capacity: Bytes that an NPU has.
    """

    layout: Cut
    needed: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """A layout that fits, simulated.

    Attributes:
        layout: Which.
        recompute: The least that fits.
        step_s: Seconds of a step.
        tokens_per_s_per_npu: What is compared.
        memory_gb: Of the fullest NPU.
        lost: Shares of the step by what is not computing, the largest first.
        binding: The dimension that works most of the time, and how much of it.
        capacity_gb: What an NPU has; None where nobody says it.
        train_s: Seconds of all steps of `workload.target`; None without.
        tools: Tools that can do it.
    """

    layout: Cut
    recompute: str
    step_s: float
    tokens_per_s_per_npu: float
    memory_gb: float
    lost: tuple[tuple[str, float], ...]
    binding: tuple[str, float]
    capacity_gb: float | None = None
    train_s: float | None = None
    tools: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """What it loses most by, in words."""
        words = [f"{what} {100 * share:.0f} %" for what, share in self.lost[:2] if share >= 0.01]
        exposed = sum(share for what, share in self.lost if what != "bubble")
        if exposed >= 0.01:
            words.append(f"{self.binding[0]} busy {100 * self.binding[1]:.0f} %")
        if self.recompute != RECOMPUTED[0]:
            words.append(f"recomputes {self.recompute}")
        return ", ".join(words) or "computing"


class Trials:
    """Bounds and simulations of a job's layouts."""

    def __init__(self, job: Job, first: Cut) -> None:
        """Read the job's scenario once.

        Args:
            job: What is cut.
            first: Any of its layouts.

        Raises:
            InputError: Something in the job is wrong.
        """
        self.job = job
        count = first.microbatches(job)
        tree = first.scenario(job, recompute=RECOMPUTED[0], microbatches=count)
        self._scenario: Scenario = needs("workload", load_scenario(tree, sets=job.sets))
        self._base = json.loads(self._scenario.to_json())
        self._target: Mapping[str, int | None] | None = self._base["workload"].get("target")
        # What `--set` says of `parallelism` beside the layout.
        before = set(first.workload(job, recompute="none", microbatches=count)["parallelism"])
        said = (self._base["workload"].get("parallelism") or {}).items()
        self._kept = {key: value for key, value in said if key not in before and job.sets}

    @property
    def fabric(self) -> Fabric | GraphFabric:
        """The network, with what `--set` changes of it."""
        return self._scenario.fabric

    def on(self, fabric: Fabric) -> Trials:
        """Return the same on another network of the same sizes.

        Args:
            fabric: The network.
        """
        other = copy(self)
        other._scenario = self._scenario.model_copy(update={"fabric": fabric})
        other._base = {
            **self._base,
            "fabric": json.loads(other._scenario.to_json())["fabric"],
        }
        return other

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Sizes of the fabric's dimensions, innermost first."""
        sizes = dimensions_of(self._scenario.fabric, counted=True).dimensions
        return tuple(one.size for one in sizes)

    def bounds(
        self, layouts: Sequence[Cut], recompute: str, *, progress: Progress | None = None
    ) -> list[Bounded | TooLarge | InputError]:
        """Return what is known of layouts without a simulation.

        Args:
            layouts: Which.
            recompute: What the backward pass computes again.
            progress: Told how many are done.
        """
        texts = [self._text(one, recompute, one.microbatches(self.job)) for one in layouts]
        found: list[Bounded | TooLarge | InputError] = []
        for layout, text in zip(layouts, _core.bound_many(texts, None, progress), strict=True):
            tree = of_core(text, self._scenario)
            if isinstance(tree, InputError):
                found.append(tree)
                continue
            held, capacity = tree["memory_per_npu_bytes"], tree["memory"]["capacity"]
            if capacity is not None and held > (1 - self.job.headroom) * capacity:
                found.append(TooLarge(layout, held, capacity))
                continue
            bound_s = (tree["bound_step_time_us"] or 0.0) / 1e6
            has = None if capacity is None else capacity / 1e9
            found.append(Bounded(layout, recompute, bound_s, held / 1e9, has))
        return found

    def simulate(
        self,
        some: Sequence[Bounded],
        *,
        schedules: Sequence[dict[str, Any]] | None = None,
        progress: Progress | None = None,
    ) -> list[Ranked | InputError]:
        """Simulate layouts.

        Args:
            some: Which.
            schedules: For each what differs from the scenario's schedule; nothing if None.
            progress: Told how many are done.
        """
        own = schedules or [{}] * len(some)
        counts = [
            simulated_counts(one.layout.pp, one.layout.microbatches(self.job)) for one in some
        ]
        texts = [
            self._text(one.layout, one.recompute, count, schedule)
            for one, both, schedule in zip(some, counts, own, strict=True)
            for count in both
        ]
        told = _core.simulate_many(texts, None, progress)
        results = [of_core(text, self._scenario) for text in told]
        outcomes: list[Ranked | InputError] = []
        at = 0
        for one, both in zip(some, counts, strict=True):
            mine = results[at : at + len(both)]
            at += len(both)
            wrong = next((tree for tree in mine if isinstance(tree, InputError)), None)
            outcomes.append(wrong or _ranked(self.job, one, mine, both, self._target))
        return outcomes

    def _text(
        self, layout: Cut, recompute: str, count: int, schedule: dict[str, Any] | None = None
    ) -> str:
        own = layout.workload(self.job, recompute=recompute, microbatches=count)
        if self._kept:
            own["parallelism"] = self._kept | own["parallelism"]
        tree = {**self._base, "workload": {**self._base["workload"], **own}}
        if schedule:
            tree["schedule"] = {**tree["schedule"], **schedule}
        return json.dumps(tree)


def _ranked(
    job: Job,
    one: Bounded,
    results: list[Any],
    counts: tuple[int, ...],
    target: Mapping[str, int | None] | None,
) -> Ranked:
    last, all_of_them = results[-1], one.layout.microbatches(job)

    def whole(value: Any) -> float:
        """Of all microbatches."""
        return of_all([float(value(tree)) for tree in results], counts, all_of_them)

    step = max(whole(lambda tree: tree["step_time_us"]) / 1e6, one.bound_s)
    kinds = {
        f"{kind} exposed": whole(lambda tree, kind=kind: tree["exposed_us"][kind])
        for kind in last["exposed_us"]
    }
    kinds["bubble"] = whole(lambda tree: tree["waiting_us"])
    lost = sorted(
        ((what, time / step / 1e6) for what, time in kinds.items()), key=lambda one: -one[1]
    )
    busiest = max(last["dimensions"], key=lambda dimension: dimension["busy_fraction"])
    rates = last["throughput"]
    samples = rates["global_batch"] * all_of_them // counts[-1]
    tokens = rates["tokens_per_s_per_npu"] / rates["samples_per_s"]
    return Ranked(
        one.layout,
        one.recompute,
        step,
        tokens * samples / step,
        one.memory_gb,
        tuple(lost),
        (busiest["name"], busiest["busy_fraction"]),
        one.capacity_gb,
        _train_s(target, step, samples, round(tokens * int(last["npus"]))),
        tools_of(job, one.layout, one.recompute),
    )


def _train_s(
    target: Mapping[str, int | None] | None, step_s: float, samples: int, tokens: int
) -> float | None:
    """Seconds of all steps of a target, of so many samples of so many tokens each."""
    if target is None:
        return None
    each = {"samples": samples, "tokens": samples * tokens, "steps": 1}
    [(count, of)] = [(count, of) for key, of in each.items() if (count := target.get(key))]
    return -(-count // of) * step_s
