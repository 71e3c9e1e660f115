"""The numbers of the Themis paper (ISCA'22), and what the scheduler `search` makes of its grid.

Utilisation is the bytes of all dimensions over what their bandwidths carry in the time. The paper's
means are over six platforms and sizes from 100 MB to 1 GB at 64 chunks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

from allrail.base.units import show_count
from allrail.results.plans import plan_for
from allrail.results.result import CollectivesResult, Host
from allrail.scenario import Scenario, fields, load_scenario
from allrail.simulation import api
from allrail.simulation.networks import advise
from allrail_reproduce import themis_cells as cells
from allrail_reproduce.grid import (
    BASELINE,
    CELLS,
    FIFO,
    SCF,
    SEARCH,
    Cell,
    mean,
    nominal_plan,
    perturbed,
    run_plan,
)
from allrail_reproduce.published import chosen, less_than, number
from allrail_reproduce.rows import Cells, Detail, Progress, Reproduction, Row
from allrail_reproduce.themis_cells import Results

SEEDS = 20
SWEEP = (4, 8, 16, 32, 64, 128, 256, 512)
SWEEP_PLATFORMS = ("3D-SW_SW_SW_hetero", "4D-Ring_FC_Ring_SW")
SWEEP_SIZE = "1000 MB"
SWEEP_LIMITS = (None, "fill", 4, 16)
"""How many stages a dimension runs at once; None for no limit."""
SWEEP_JUDGED = (None, "fill")
"""Under which of them a row stands beside the published one: what `dims` does if not told
otherwise, and what sections 4.3 and 4.4 say, as we read them."""
SWEEP_OUT = ((SCF, None), (FIFO, None), (FIFO, "fill"))
"""Which of these are out at most chunks."""
SWEPT = (*((name, limit) for name in (SCF, FIFO) for limit in SWEEP_LIMITS), (BASELINE, None))
"""The lines of the sweep: both queues under each limit, and the baseline."""
LOST = 1.0
"""By how many points a utilisation may fall and still counts as stable, which the paper does not
define."""
SWEEP_PUBLISHED = ((SCF, 4, 48.58), (SCF, 512, 91.18), (FIFO, 4, 43.13), (FIFO, 512, 87.81))

SINGLE = "ISCA'22, evaluation section, single all-reduces"
CHUNKS_PLACE = "ISCA'22, evaluation section, number of chunks"
MOTIVATION = "ISCA'22, motivation section"
ABSTRACT = "ISCA'22, abstract, p. 581"
SWEEP_GAP = (
    "512 chunks: without a limit, a dimension begins a stage whenever it has nothing to send, and "
    "loses nothing to latency. With `fill` small stages wait for the latency of a large one, "
    "which smallest-first does often and FIFO seldom. Missing: what the paper's simulator loses "
    "within a stage, step by step"
)

SIZE_CHOSEN = chosen("size of the all-reduce in the sweep of chunks", by="the values at 4 chunks")

Plans = dict[str, dict[Cell, str]]
"""Plan files by schedule and cell."""


class _Work:
    """Counts what is done of everything, for the progress line."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done = 0.0
        self._total = total
        self._progress = progress

    def step(self, count: float = 1) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    def simulate(self, scenarios: list[Scenario]) -> list[CollectivesResult]:
        """Simulate them all, counting."""
        base = self._done

        def tell(done: float, _: int) -> None:
            self._done = base
            self.step(done)

        results = api.simulate_many(scenarios, progress=tell)
        tell(len(scenarios), 0)
        return cast("list[CollectivesResult]", results)


def run(
    *,
    seeds: int = SEEDS,
    links: Sequence[Cell] = CELLS,
    cache: bool = True,
    progress: Progress | None = None,
) -> Reproduction:
    """Compute the paper's numbers and those of `search`.

    Args:
        seeds: How many perturbed fabrics each plan runs on.
        links: Where plans run in `links` too, which takes most of the time.
        cache: whether plans of `search` may be kept on disk; planning times are measured anew.
        progress: Told how many simulations are done.
    """
    count = len(CELLS)
    sweep = len(SWEEP) * len(SWEEP_PLATFORMS) * len(SWEPT)
    work = _Work(4 * count + sweep + 2 * count * seeds + 4 * len(links), progress)
    results, searched = _grid(work)
    rows = _paper(results) + cells.starving(results)
    sweep_rows, sweep_detail = _chunk_sweep(work)
    rows += _advice() + sweep_rows + _search(results)
    known: Plans = {SCF: {}, SEARCH: searched}
    plans = {
        name: {
            cell: made.get(cell) or nominal_plan(cell.scenario(name), cache=cache)
            for cell in dict.fromkeys((*CELLS, *links))
        }
        for name, made in known.items()
    }
    grid = cells.table(results)
    details = [grid, sweep_detail]
    perturbed_rows, perturbed_detail = _perturbed(plans, seeds, work)
    rows += perturbed_rows
    details.append(perturbed_detail)
    if links:
        links_rows, links_detail = _links(plans, links, work, cache=cache)
        rows += links_rows
        details.append(links_detail)
    pictures = cells.pictures(results, grid, sweep_detail, SWEEP_PUBLISHED)
    return Reproduction("Themis, ISCA'22", rows, _notes(results), details, pictures)


def _grid(work: _Work) -> tuple[Results, dict[Cell, str]]:
    """All results, and the plans of `search`."""
    results: Results = {}
    for name in (BASELINE, FIFO, SCF):
        results[name] = []
        for cell in CELLS:  # with timelines, which `simulate_many` has none of
            told = api.simulate(cell.scenario(name), timeline=True)
            results[name].append(cast("CollectivesResult", told))
            work.step()
    results[SEARCH], plans = [], {}
    for cell in CELLS:  # one by one and not from the cache: planning is timed
        scenario = cell.scenario(SEARCH)
        started = time.perf_counter()
        plan = plan_for(scenario, cache=False)
        host = Host(planning_ms=1e3 * (time.perf_counter() - started), wall_ms=0.0)
        simulated = api.simulate(scenario, plan=plan, timeline=True)
        told = cast("CollectivesResult", simulated)
        results[SEARCH].append(replace(told, host=host))
        plans[cell] = plan.text
        work.step()
    return results, plans


def _uses(results: list[CollectivesResult]) -> list[float]:
    """Utilisations in per cent."""
    return [100 * (result.utilisation or 0.0) for result in results]


def _paper(results: Results) -> list[Row]:
    published = ((BASELINE, 56.31, 1.0), (FIFO, 87.67, 4.0), (SCF, 95.14, 2.0))
    rows = [
        Row(
            f"mean utilisation, {name}",
            mean(_uses(results[name])),
            number(value, SINGLE),
            "%",
            within=points,
            absolute=True,
        )
        for name, value, points in published
    ]
    gains = {
        name: [
            base.time_us / one.time_us
            for base, one in zip(results[BASELINE], results[name], strict=True)
        ]
        for name in (FIFO, SCF)
    }
    return rows + [
        Row(case, ours, number(value, place), "x", digits=3)
        for case, ours, value, place in (
            (f"mean speed-up, {FIFO}", mean(gains[FIFO]), 1.58, SINGLE),
            (f"mean speed-up, {SCF}", mean(gains[SCF]), 1.72, ABSTRACT),
            (f"largest speed-up, {SCF}", max(gains[SCF]), 2.70, ABSTRACT),
        )
    ]


def _advice() -> list[Row]:
    homo = advise("3D-SW_SW_SW_homo")["baseline"]["idle_gbps"]
    today = advise("today")["baseline"]
    return [
        Row(case, ours, number(value, MOTIVATION), unit, within=0.01)
        for case, ours, value, unit in (
            ("3D-SW_SW_SW_homo, baseline, idle in dim2", homo[1], 750.0, "Gb/s"),
            ("3D-SW_SW_SW_homo, baseline, idle in dim3", homo[2], 793.75, "Gb/s"),
            ("today, baseline, used of 1200 Gb/s in dim1", today["used_gbps"][0], 1200.0, "Gb/s"),
            ("today, baseline, used of 100 Gb/s in dim2", today["used_gbps"][1], 75.0, "Gb/s"),
            ("today, baseline, utilisation", 100 * today["utilisation"], 97.7, "%"),
        )
    ]


def _chunk_sweep(work: _Work) -> tuple[list[Row], Detail]:
    """The mean of two platforms for each number of chunks; ends and a table."""
    keys = [(name, at_once, n) for name, at_once in SWEPT for n in SWEEP]
    scenarios = [
        Cell(platform, SWEEP_SIZE).scenario(name, chunks=chunks, active_chunks=at_once)
        for name, at_once, chunks in keys
        for platform in SWEEP_PLATFORMS
    ]
    uses = _uses(work.simulate(scenarios))
    width = len(SWEEP_PLATFORMS)
    means = {key: mean(uses[i * width : (i + 1) * width]) for i, key in enumerate(keys)}

    def label(name: str, at_once: int | str | None) -> str:
        if at_once is None:
            return name
        return f"{name}, `{at_once}`" if at_once == "fill" else f"{name}, {at_once} stages at once"

    rows = [
        Row(
            f"utilisation at {chunks} chunks, {SWEEP_SIZE}, {label(name, at_once)}",
            means[name, at_once, chunks],
            number(value, CHUNKS_PLACE) if at_once in SWEEP_JUDGED else None,
            "%",
            why=SWEEP_GAP if chunks == SWEEP[-1] and (name, at_once) in SWEEP_OUT else "",
            made=SIZE_CHOSEN,
        )
        for name, chunks, value in SWEEP_PUBLISHED
        for at_once in SWEEP_LIMITS[: None if chunks == SWEEP[-1] else 1]
    ]
    rows.append(
        Row(
            f"chunks from which more are never worse, {SCF}",
            float(_stable([means[SCF, None, chunks] for chunks in SWEEP])),
            less_than(8.0, CHUNKS_PLACE),
            "chunks",
            within=0.0,
            digits=0,
            how=f"twice as many never lose {LOST} points",
            made=SIZE_CHOSEN,
        )
    )
    columns = SWEPT
    table: list[Cells] = [
        (chunks, *(means[name, at_once, chunks] for name, at_once in columns)) for chunks in SWEEP
    ]
    header = ("chunks", *(f"{label(name, at_once)}_%" for name, at_once in columns))
    return rows, Detail("chunks", header, table)


def _stable(uses: Sequence[float]) -> int:
    """The least number of chunks from which no doubling loses more than `LOST` points."""
    falls = [i for i, (low, high) in enumerate(pairwise(uses)) if high < low - LOST]
    return SWEEP[falls[-1] + 1 if falls else 0]


def _search(results: Results) -> list[Row]:
    ours, theirs = _uses(results[SEARCH]), _uses(results[SCF])
    planning = [result.host.planning_ms for result in results[SEARCH]]
    above = [result.time_us / result.bound_time_us for result in results[SEARCH]]
    margin = min(a - b for a, b in zip(ours, theirs, strict=True))
    return [
        Row(f"mean utilisation, {SEARCH}", mean(ours), None, "%"),
        Row(f"least of 24, {SEARCH} - {SCF}", margin, None, "%"),
        Row(f"longest planning, {SEARCH}", max(planning), None, "ms"),
        Row(f"mean time over the proven bound, {SEARCH}", mean(above), None, "x", digits=4),
    ]


def _perturbed(plans: Plans, seeds: int, work: _Work) -> tuple[list[Row], Detail]:
    """Plans made for the nominal fabric, run on fabrics that differ from it."""
    uses: dict[str, list[list[float]]] = {name: [] for name in plans}
    for i, cell in enumerate(CELLS):
        for name, texts in plans.items():
            tree = json.loads(cell.scenario(name).to_json())
            ran = [
                run_plan(perturbed(tree, seed=1000 * i + seed), plan=texts[cell])
                for seed in range(seeds)
            ]
            uses[name].append(_uses(ran))
            work.step(seeds)
    rows = [
        Row(
            f"mean utilisation, {name}, fabric +-10 %, {show_count(seeds, 'seed')}",
            mean([mean(each) for each in uses[name]]),
            None,
            "%",
        )
        for name in (SCF, SEARCH)
    ]
    table: list[Cells] = [
        (cell.platform, cell.size, *(mean(uses[name][i]) for name in plans))
        for i, cell in enumerate(CELLS)
    ]
    return rows, Detail("perturbed", ("platform", "size", *(f"{n}_%" for n in plans)), table)


def _links(
    plans: Plans, cells: Sequence[Cell], work: _Work, *, cache: bool
) -> tuple[list[Row], Detail]:
    """The same plans where links carry whole messages, store and forward.

    With the same queue on both sides, smallest first, and with the strict order, which every rank
    can enforce. It is fixed by a run in `links`: one made for `dims` leaves gaps there.
    """
    queues = ("smallest_first", "planned")
    planned = {row["name"] for row in fields.table("orders") if row["keeps_to_plans"]}
    keys = [(name, order) for order in queues for name in plans]
    uses: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    for cell in cells:
        for name, order in keys:
            tree = json.loads(cell.scenario(name, network_model="links").to_json())
            tree["schedule"]["order"] = order
            text = plans[name][cell]
            if order in planned:
                text = nominal_plan(load_scenario(tree), cache=cache)
            uses[name, order] += _uses([run_plan(tree, plan=text)])
            work.step()
    rows = [
        Row(
            f"mean utilisation, {name}, links, {order}, {len(cells)} cases",
            mean(uses[name, order]),
            None,
            "%",
        )
        for name, order in keys
    ]
    table: list[Cells] = [
        (cell.platform, cell.size, *(uses[key][i] for key in keys)) for i, cell in enumerate(cells)
    ]
    header = ("platform", "size", *(f"{name} {order}_%" for name, order in keys))
    return rows, Detail("links", header, table)


def _notes(results: Results) -> list[str]:
    worst = min(range(len(CELLS)), key=lambda i: results[SEARCH][i].utilisation or 0.0)
    cell = CELLS[worst]
    use = 100 * (results[SEARCH][worst].utilisation or 0.0)
    return [
        (
            "all predicted in network model `dims` unless a row says `links`; the fabrics are "
            "uncalibrated"
        ),
        f"{SEARCH} is lowest on {cell.platform}, {cell.size}: {use:.2f} %",
        "perturbed and `links` rows run plans made for the nominal fabric, on both sides",
        f"the paper does not say the size behind its sweep of chunks; {SWEEP_SIZE} is near it at 4",
    ]
