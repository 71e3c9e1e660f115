"""Layouts of a model, ranked: `allrail plan --model`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.units import show_count

if TYPE_CHECKING:
    from allrail.base.errors import InputError
    from allrail.cli.layout_job import Asked
    from allrail.cli.layout_rows import Answer
    from allrail.search.layouts import Found, Job, Ranked

_SEARCHED = 0.85
"""Of a time budget: the rest is for the pessimistic network, and other schedules."""
_TRIED = 8
"""Layouts that are looked at for one that can be."""
_KEPT = 2.0
"""Seconds between two writings of the best so far."""


def rank(
    job: Job,
    asked: Asked,
    *,
    out: Path | None = None,
    report: Path | None = None,
    json: bool = False,
) -> None:
    """Rank the layouts of a model, print them, and write the recommended one's scenario.

    Where it is interrupted or its time is over, it shows what it has; with `out` the best so far is
    there at any time.

    Args:
        job: What is cut.
        asked: How far it goes.
        out: Where the recommended scenario goes.
        report: Which folder takes the result and its report.
        json: Whether one JSON object is printed.

    Raises:
        InputError: No layout can be, or none fits.
    """
    from allrail.base.files import write_yaml
    from allrail.cli import folders, output
    from allrail.cli.layout_rows import show, tell, tree_of
    from allrail.results.accuracy import line_of
    from allrail.scenario import load_any_fabric, load_scenario

    with output.Progress("looking at layouts") as progress, _ended_with_rows():
        answer = _answer(job, asked, out, progress)
    best = answer.best
    tree = _scenario(job, best, folder=None if out is None else out.parent)
    of_best = [one for one in answer.better if one.ranked.layout == best.layout]
    if of_best and of_best[0].schedule:
        tree["schedule"] = of_best[0].schedule
    if out is not None:
        write_yaml(out, tree)
    calibrated = load_any_fabric(job.fabric).calibrated
    told = tree_of(answer)
    if report is not None:
        more = {"job": _job(job), "calibrated": calibrated, "scenario": tree}
        more["known_error"] = line_of(load_scenario(_scenario(job, best)))
        folders.answer(report, "layouts", told | more)
    if json:
        shown = None if asked.exhaustive else len(answer.shown)
        output.print_json(told | {"ranked": told["ranked"][:shown]})
    else:
        show(answer)
        tell(answer)
        if out is not None:
            output.note(f"the recommended one is in {out}: `allrail simulate {out}`")
        output.predicted(["dims"], calibrated=calibrated)
        output.known(_scenario(job, answer.best, folder=None))
    if answer.found.stopped in _ENDED:
        output.text(answer.found.stopped, err=True)
        raise SystemExit(_ENDED[answer.found.stopped])


_ENDED = {"interrupted": 130, "terminated": 143}
"""By what ended a search, as shells count."""


def _answer(job: Job, asked: Asked, out: Path | None, progress: Any) -> Answer:
    from allrail.cli.layout_rows import Answer, shown_of
    from allrail.search.layouts import Trials, folded, read_given, score, search, space
    from allrail.search.layouts.budget import Budget

    given = read_given(asked.score, job) if asked.score is not None else None
    budget = Budget(asked.budget)
    all_of_them = space(job, job.model["transformer"])
    _check_schedule(job, all_of_them.layouts)
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
        raise _nothing(job, found)
    rows = folded(found.ranked)
    shown = shown_of(rows, found.recommended, asked.top)
    answer = Answer(job, all_of_them, found, rows, shown, notes=list(job.assumed))
    if given is not None:
        answer.mine = score(job, given)
    if found.stopped not in _ENDED:
        _beside(job, answer, Trials(job, found.ranked[0].layout), asked, budget)
        answer.notes += _of_config(job, found.recommended)
    return answer


def _decision(job: Job, layout: Any, recompute: str) -> Any:
    """What a layout decides; in as few microbatches as a trial has, whether it fits or not."""
    from allrail.simulation.steady import simulated_counts
    from allrail.targets.decision import Decision

    count = simulated_counts(layout.pp, layout.microbatches(job))[0]
    tree = _tree(job, layout, recompute, count)
    tree["workload"]["compute"].pop("must_fit", None)
    return Decision.of(tree)


def _check_schedule(job: Job, layouts: Sequence[Any]) -> None:
    """Refuse a schedule of `--set` that the tool of `--for` cannot do; note what it leaves open."""
    from allrail.base.errors import InputError
    from allrail.cli import output
    from allrail.search.layouts import ANY
    from allrail.targets.decision import Inapplicable
    from allrail.targets.keys import keep_to

    if job.tool == ANY or not any(one.lstrip().startswith("schedule.") for one in job.sets):
        return
    for layout in layouts[:_TRIED]:
        try:
            decision = _decision(job, layout, "none")
        except InputError:
            continue  # the search says why
        try:
            left = keep_to(job.tool, decision)
        except Inapplicable as why:
            raise InputError(str(why), source="--for", value=job.tool, hint=why.hint) from None
        if left:
            output.note(f"not in the files for `{job.tool}`: {', '.join(left)}")
        return


def _offers(job: Job, one: Ranked) -> Callable[[Mapping[str, Any]], bool] | None:
    """What the tool of `--for` says in its files; None where no tool is named."""
    from functools import partial

    from allrail.search.layouts import ANY
    from allrail.targets import offers

    if job.tool == ANY:
        return None
    return partial(offers, job.tool, _decision(job, one.layout, one.recompute))


def _unsaid(job: Job, one: Ranked, schedule: Mapping[str, Any]) -> list[str]:
    """What to say of a schedule that no tool of a layout has in its files; nothing else."""
    from allrail.search.layouts import ANY
    from allrail.targets import offers

    if job.tool != ANY or not schedule or not one.tools:
        return []
    decision = _decision(job, one.layout, one.recompute)
    if any(offers(tool, decision, schedule) for tool in one.tools):
        return []
    words = f"{one.layout.name}: no files for {' or '.join(one.tools)} say that schedule;"
    return [f"{words} `--for {one.tools[0]}` tries what they say"]


def _beside(job: Job, answer: Answer, trials: Any, asked: Asked, budget: Any) -> None:
    """What is looked at once the rows are known, as far as the time goes."""
    from dataclasses import replace

    from allrail.base.errors import InputError
    from allrail.search.layouts import pessimistic, tuned
    from allrail.search.layouts.budget import Stopped

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
        import time

        from allrail.base.files import write_yaml
        from allrail.search.layouts import recommended

        best, now = recommended(ranked), time.monotonic()
        if best.layout.name != self._name and now - self._last > _KEPT:
            write_yaml(self._out, _scenario(self._job, best, folder=self._out.parent))
            self._last, self._name = now, best.layout.name


@contextmanager
def _ended_with_rows() -> Iterator[None]:
    """Let SIGTERM end a search as Ctrl-C does, so that what it has is shown."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt("terminated")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def best_of(job: Job) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario of a job's recommended layout, and what is to be said of it.

    Args:
        job: What is cut.

    Raises:
        InputError: No layout can be, or none fits.
    """
    from allrail.cli import output
    from allrail.cli.layout_rows import no_tool
    from allrail.search.layouts import search, space

    with output.Progress("looking at layouts") as progress:
        found = search(job, space(job, job.model["transformer"]).layouts, top=1, progress=progress)
    if found.stopped:
        raise KeyboardInterrupt(found.stopped)
    if not found.ranked:
        raise _nothing(job, found)
    best = found.recommended
    told = [f"the recommended layout: {best.layout.name}", *no_tool(job, found), *job.assumed]
    return _scenario(job, best), told


def _of_config(job: Job, best: Ranked) -> list[str]:
    """What was assumed for a Hugging Face model, and what of its file is not read."""
    from allrail.scenario.models import load_model
    from allrail.simulation.api import simulate
    from allrail.simulation.steady import simulated_counts

    if "hugging_face" not in load_model(job.model["name"], folder=Path()):
        return []
    # As many microbatches as a trial has: notes are the same, and large steps take minutes.
    count = simulated_counts(best.layout.pp, best.layout.microbatches(job))[0]
    notes = simulate(_scenario(job, best, count=count)).to_dict()["notes"]
    return [note for note in notes if "config.json" in note]


def _scenario(
    job: Job, best: Ranked, *, folder: Path | None = None, count: int | None = None
) -> dict[str, Any]:
    """The scenario of a layout, for a file in a folder; None: for here.

    With `count` of that many microbatches, not of a whole step's.
    """
    all_of_them = best.layout.microbatches(job)
    tree = _tree(job, best.layout, best.recompute, count or all_of_them)
    if folder is not None:
        workload = tree["workload"]
        files = ((tree, "fabric"), (workload, "model"), (workload["compute"], "device"))
        for parent, key in files:
            if isinstance(parent[key], str):
                parent[key] = _seen_from(folder, parent[key])
    return tree


def _tree(job: Job, layout: Any, recompute: str, microbatches: int) -> dict[str, Any]:
    """The scenario of a layout with the model by its name, and with what `--set` says."""
    from allrail.search.layouts.layout import overridden

    tree = layout.scenario(job, recompute=recompute, microbatches=microbatches)
    tree["workload"]["model"] = job.model["name"]
    _write_out_stdin(tree)
    return overridden(tree, job.sets)


def _write_out_stdin(tree: dict[str, Any]) -> None:
    """Put what came from stdin in place of its name: nobody who reads the scenario later has it."""
    from allrail.base.stdin import STDIN
    from allrail.scenario.devices import load_device
    from allrail.scenario.models import load_model
    from allrail.scenario.presets import read_fabric

    piped = str(STDIN)
    workload = tree["workload"]
    if workload["model"] == piped:
        workload["model"] = load_model(piped)
    if tree["fabric"] == piped:
        tree["fabric"] = read_fabric(piped)[0]
    if workload["compute"]["device"] == piped:
        workload["compute"] = {**workload["compute"], "device": load_device(piped)}


def _seen_from(folder: Path, name: str) -> str:
    """A preset's name as it is; a file that is named from here as a scenario in `folder` does."""
    import os

    from allrail.scenario.models import model_names

    path = Path(name)
    is_file = path.suffix or len(path.parts) > 1 or (path.is_dir() and name not in model_names())
    return os.path.relpath(path, folder) if is_file and not path.is_absolute() else name


def _job(job: Job) -> dict[str, Any]:
    return {
        "model": job.model["name"],
        "fabric": str(job.fabric),
        "npus": job.npus,
        "global_batch": job.global_batch,
        "device": str(job.compute["device"]),
    }


def _nothing(job: Job, found: Found) -> InputError:
    """Why no layout is left, and what would fit."""
    from allrail.base.errors import InputError
    from allrail.search.layouts.nothing import nothing_fits

    if found.stopped:
        return InputError(
            f"{found.stopped}, and none of {show_count(len(found.too_large), 'layout')} fits",
            source="--budget",
            hint="allow more time: others were not looked at",
        )
    return nothing_fits(job, found) if found.too_large else found.refused[0][1]
