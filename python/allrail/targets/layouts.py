"""Plans of collectives, and layouts of a model that tools can run: `allrail.plan`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from allrail.base.arguments import Names, PathLike, checked, several
from allrail.base.errors import InputError, did_you_mean
from allrail.base.files import write_yaml
from allrail.base.progress import Progress
from allrail.results.answer import renderers
from allrail.results.plans import Plan
from allrail.scenario import ScenarioLike, load_scenario
from allrail.scenario.models import load_model
from allrail.scenario.overrides import Sets
from allrail.search.layouts import (
    ANY,
    Job,
    Ranked,
    Trials,
    folded,
    pessimistic,
    read_given,
    recommended,
    search,
    space,
    tuned,
)
from allrail.search.layouts import score as score_of
from allrail.search.layouts.answer import ENDED, Layouts, shown_of
from allrail.search.layouts.asked import Asked, OfModel, job_of, texts_of
from allrail.search.layouts.budget import Budget, Stopped
from allrail.search.layouts.written import nothing_left, scenario_of_layout, tree_of_layout
from allrail.simulation import api
from allrail.simulation.one import simulate_one
from allrail.simulation.steady import simulated_counts
from allrail.targets import offers
from allrail.targets.decision import Decision, Inapplicable
from allrail.targets.keys import keep_to

_EXAMPLE = "allrail plan --model llama3_8b --fabric dgx-h100 --npus 64"
_SEARCHED = 0.85
"""Of a time budget: the rest is for the pessimistic network, and other schedules."""
_TRIED = 8
"""Layouts that are looked at for one that can be."""
_KEPT = 2.0
"""Seconds between two writings of the best so far."""
TOOLS_ASKED = ("megatron", "torchtitan", "fsdp", "ddp", "allrail", "any")
PRECISIONS = ("fp32", "fp16", "bf16")


@checked
def plan(
    scenario: ScenarioLike | None = None,
    *,
    sets: Sets = (),
    out: PathLike | None = None,
    cache: bool = True,
    model: str | None = None,
    fabric: str | None = None,
    npus: int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    recipe: str | None = None,
    launch: str | None = None,
    top: int = 10,
    exhaustive: bool = False,
    schedules: int = 1,
    for_: str = "any",
    fix: Names = (),
    score: PathLike | None = None,
    headroom: float | None = None,
    budget: float | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Plan | Layouts:
    """Plan a scenario's collectives, or rank the layouts of a model by its throughput.

    With `model`, `fabric` and `npus` the layouts of a transformer are ranked: tensor, context,
    expert, pipeline and data parallelism, mapping, ZeRO, schedules and stages of a pipeline,
    microbatch, and the least recomputation that fits the memory.

    Args:
        scenario: Collectives to plan: a file, a mapping or a `Scenario`.
        sets: Overrides.
        out: File for the plan; with `model`, for the recommended layout's scenario.
        cache: Whether plans that are expensive to make are kept on disk.
        model: A preset, a `config.json` or a file.
        fabric: With `model`: a preset or a file.
        npus: With `model`: number of NPUs.
        global_batch: Samples per step; the number of NPUs if None.
        sequence: Tokens per sample; the model's own if None.
        device: What computes; that of the fabric, else an H100, if None.
        precision: Of parameters and activations; bf16, on devices without it fp16, if None.
        recipe: Format of matrix products with weights; that of `precision` if None.
        launch: How kernels are launched; as the tool of `for_` does it, else compiled, if None.
        top: Number of rows.
        exhaustive: Whether layouts are simulated that cannot be among these rows.
        schedules: Also try communication schedules for the N best layouts.
        for_: Only layouts that this tool can run: `megatron`, `torchtitan`, `fsdp`, `ddp`,
            `allrail` or `any`.
        fix: Only layouts with these values, such as `tp=8,pp=4`.
        score: A layout (a scenario's file, or keys of `parallelism`) that is judged beside them.
        headroom: Part of an NPU's memory that stays free, per cent; 5 if None.
        budget: Time budget in seconds; then the best so far is returned, as after Ctrl-C.
        report: With `model`: folder for result, table and report.
        progress: Called with what is done and the total.

    Returns:
        A `Plan`, one `CollectivePlan` per collective; with `model` a `Layouts`, a row each, whose
        `scenario` is the recommended one's.

    Raises:
        InputError: Something is wrong, no layout can be, or none fits.

    Example:
        `allrail.plan(model="llama3_8b", fabric="dgx-h100", npus=64).to_polars()`
    """
    asked = Asked(
        top,
        exhaustive,
        schedules,
        for_,
        several(fix),
        headroom,
        None if score is None else Path(score),
        budget,
        texts_of(sets) if model is not None else (),
    )
    of_model = OfModel(
        model, fabric, npus, global_batch, sequence, device, precision, recipe, launch
    )
    _check(asked, of_model)
    job = job_of(scenario, of_model, example=_EXAMPLE, more=asked)
    if isinstance(job, Job):
        if not cache:
            raise InputError(
                "a model that is laid out has no scenario yet",
                field="cache",
                hint="`--out best.yaml` writes the best one's, which `allrail simulate` takes",
            )
        layouts = rank(job, asked, out=None if out is None else Path(out), progress=progress)
        if report is not None:
            renderers().write(layouts, Path(report))
        return layouts
    _refuse_of_layouts(asked, report)
    made = api.plan(job, sets=sets, cache=cache, progress=progress)
    if out is not None:
        made.save(out)
    return made


def _check(asked: Asked, of_model: OfModel) -> None:
    """What options check as they are typed."""
    for name, count in (("top", asked.top), *((one, getattr(of_model, one)) for one in _COUNTS)):
        if count is not None and count < 1:
            raise InputError("it is below 1", field=name, value=str(count))
    for name, word, known in (
        ("for_", asked.tool, TOOLS_ASKED),
        ("precision", of_model.precision, PRECISIONS),
    ):
        if word is not None and word not in known:
            raise InputError(
                "it is not known", field=name, value=word, hint=did_you_mean(word, known)
            )
    if asked.headroom is not None and not 0 <= asked.headroom <= 90:
        raise InputError(
            "it is not from 0 to 90 per cent", field="headroom", value=str(asked.headroom)
        )
    if asked.budget is not None and asked.budget <= 0:
        raise InputError("it is not above 0 s", field="budget", value=str(asked.budget))


_COUNTS = ("npus", "global_batch", "sequence")


def _refuse_of_layouts(asked: Asked, report: PathLike | None) -> None:
    """Refuse what is of layouts where a scenario is planned."""
    usual = Asked()
    given: dict[str, object] = {
        ("for_" if name == "tool" else name): getattr(asked, name) != getattr(usual, name)
        for name in _OF_LAYOUTS
    }
    for name, is_given in {**given, "report": report is not None}.items():
        if is_given:
            raise InputError(
                "it is of layouts, which --model, --fabric and --npus ask for",
                field=name,
                hint="leave it out; `allrail simulate --out DIR` writes a report of what a plan"
                " does",
            )


_OF_LAYOUTS = ("top", "exhaustive", "schedules", "tool", "fix", "score", "headroom", "budget")


def rank(
    job: Job, asked: Asked, *, out: Path | None = None, progress: Progress | None = None
) -> Layouts:
    """Rank the layouts of a model, and write the recommended one's scenario.

    Where it is interrupted or its time is over, it returns what it has; with `out` the best so far
    is there at any time.

    Args:
        job: What is cut.
        asked: How far it goes.
        out: Where the recommended scenario goes.
        progress: Told how many layouts were looked at.

    Raises:
        InputError: No layout can be, or none fits.
    """
    answer = _answer(job, asked, out, progress)
    if out is not None:
        write_yaml(out, answer.scenario_for(out.parent))
    return answer


def _answer(job: Job, asked: Asked, out: Path | None, progress: Any) -> Layouts:
    given = read_given(asked.score, job) if asked.score is not None else None
    budget = Budget(asked.budget)
    all_of_them = space(job, job.model["transformer"])
    unsaid = _check_schedule(job, all_of_them.layouts)
    found = search(
        job,
        all_of_them.layouts,
        top=asked.top,
        exhaustive=asked.exhaustive,
        progress=progress,
        budget=budget.first(_SEARCHED),
        watch=None if out is None else _Kept(job, out),
    )
    if not found.ranked:
        raise nothing_left(job, found)
    rows = folded(found.ranked)
    shown = shown_of(rows, found.recommended, asked.top)
    answer = Layouts(
        job,
        all_of_them,
        found,
        rows,
        shown,
        notes=list(job.assumed),
        unsaid=unsaid,
        whole=asked.exhaustive,
    )
    if given is not None:
        answer.mine = score_of(job, given)
    if found.stopped not in ENDED:
        _beside(job, answer, Trials(job, found.ranked[0].layout), asked, budget)
        answer.notes += _of_config(job, found.recommended)
    return answer


def _decision(job: Job, layout: Any, recompute: str) -> Any:
    """What a layout decides; in as few microbatches as a trial has, whether it fits or not."""
    count = simulated_counts(layout.pp, layout.microbatches(job))[0]
    tree = tree_of_layout(job, layout, recompute, count)
    tree["workload"]["compute"].pop("must_fit", None)
    return Decision.of(tree)


def _check_schedule(job: Job, layouts: Sequence[Any]) -> list[str]:
    """Refuse a schedule of `--set` that the tool of `--for` cannot do; say what it leaves open."""
    if job.tool == ANY or not any(one.lstrip().startswith("schedule.") for one in job.sets):
        return []
    for layout in layouts[:_TRIED]:
        try:
            decision = _decision(job, layout, "none")
        except InputError:
            continue  # the search says why
        try:
            left = keep_to(job.tool, decision)
        except Inapplicable as why:
            raise InputError(str(why), source="--for", value=job.tool, hint=why.hint) from None
        return [f"not in the files for `{job.tool}`: {', '.join(left)}"] if left else []
    return []


def _offers(job: Job, one: Ranked) -> Callable[[Mapping[str, Any]], bool] | None:
    """What the tool of `--for` says in its files; None where no tool is named."""
    if job.tool == ANY:
        return None
    return partial(offers, job.tool, _decision(job, one.layout, one.recompute))


def _unsaid(job: Job, one: Ranked, schedule: Mapping[str, Any]) -> list[str]:
    """What to say of a schedule that no tool of a layout has in its files; nothing else."""
    if job.tool != ANY or not schedule or not one.tools:
        return []
    decision = _decision(job, one.layout, one.recompute)
    if any(offers(tool, decision, schedule) for tool in one.tools):
        return []
    words = f"{one.layout.name}: no files for {' or '.join(one.tools)} say that schedule;"
    return [f"{words} `--for {one.tools[0]}` tries what they say"]


def _beside(job: Job, answer: Layouts, trials: Any, asked: Asked, budget: Any) -> None:
    """What is looked at once the rows are known, as far as the time goes."""
    best = answer.best
    first = [best, *(row.ranked for row in answer.shown if row.ranked is not best)]
    try:
        others = first[1:]
        if answer.mine is not None and not isinstance(answer.mine, InputError):
            others.append(answer.mine)
        # What is recommended first: the time may end with it.
        for some in ([best], others):
            network = pessimistic(trials, some, progress=budget.look)
            if network is not None and answer.network is not None:
                network = replace(network, steps_s=answer.network.steps_s | network.steps_s)
            answer.network = network
        for one in first[: asked.schedules]:
            offers = _offers(job, one)
            better = tuned(trials, one, offers=offers, progress=budget.look)
            answer.better.append(better)
            answer.notes += _unsaid(job, one, better.schedule)
    except Stopped as why:
        answer.found = replace(answer.found, stopped=answer.found.stopped or str(why))
    except KeyboardInterrupt as why:
        answer.found = replace(answer.found, stopped=str(why) or "interrupted")


class _Kept:
    """Writes the best so far, so that a search that is killed leaves it."""

    def __init__(self, job: Job, out: Path) -> None:
        self._job, self._out = job, out
        self._last, self._name = float("-inf"), ""

    def __call__(self, ranked: Sequence[Ranked]) -> None:
        """Write it, now and then."""
        best, now = recommended(ranked), time.monotonic()
        if best.layout.name != self._name and now - self._last > _KEPT:
            write_yaml(self._out, scenario_of_layout(self._job, best, folder=self._out.parent))
            self._last, self._name = now, best.layout.name


def _of_config(job: Job, best: Ranked) -> list[str]:
    """What was assumed for a Hugging Face model, and what of its file is not read."""
    if "hugging_face" not in load_model(job.model["name"], folder=Path()):
        return []
    # As many microbatches as a trial has: notes are the same, and large steps take minutes.
    count = simulated_counts(best.layout.pp, best.layout.microbatches(job))[0]
    notes = simulate_one(load_scenario(scenario_of_layout(job, best, count=count))).notes
    return [note for note in notes if "config.json" in note]
