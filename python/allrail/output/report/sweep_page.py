"""The report of a sweep: its pictures, cost against throughput, and every point in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allrail.base.units import show_count, show_number
from allrail.output.report.document import (
    MICROSECONDS,
    MOST_ROWS,
    Cell,
    Cells,
    Page,
    Picture,
    Section,
    Table,
    badges,
    network_model_words,
    sentence,
    trust_words,
)
from allrail.output.report.fabric import fabric_section
from allrail.output.report.front import front_section
from allrail.output.report.rendering import render
from allrail.output.report.sweep import more_is_better, rates, with_unit
from allrail.output.write import input_tree
from allrail.results.compared import SAME
from allrail.search.sweeps.known import known_line
from allrail.search.sweeps.table import ERROR

if TYPE_CHECKING:
    import polars as pl

    from allrail.search.sweeps.run import Swept

CAPTIONS = {
    "sweep": "One axis: a line. Two: a heat map; of more, one for each combination of the rest. "
    "Points that were drawn: the result over each axis.",
}


def page(swept: Swept, *, pictures: Mapping[str, str], version: str) -> str:
    """The report as HTML.

    Args:
        swept: What came of the sweep.
        pictures: SVG by name.
        version: Of allrail.
    """
    table, shown, name = swept.table, swept.shown, swept.study.name
    good = table.filter(table[ERROR].is_null())
    changed = table.columns[1 : 1 + len(swept.fields)]
    lower = not more_is_better(shown)
    network_models = (
        good["network_model"].unique(maintain_order=True).to_list() if len(good) else []
    )
    calibrated = bool(len(good)) and bool(good["calibrated"].all())
    word, trust = trust_words(calibrated=calibrated)
    failed = len(table) - len(good)
    scenario, known = input_tree(swept.study.base), known_line(swept.study)
    drawn = [
        Picture(one, _title(shown), CAPTIONS[one], svg, "The table has every number.")
        for one, svg in pictures.items()
        if one in CAPTIONS
    ]
    return render(
        Page(
            title=f"Sweep of {name}",
            subtitle=f"{show_count(len(table), 'point')} over {', '.join(swept.fields)}",
            badges=badges(network_models, calibrated=calibrated) if network_models else [],
            headline=_headline(good, shown, changed, lower=lower),
            summary=[
                *_summary(good, shown, changed, lower=lower),
                *([f"{show_count(failed, 'point')} failed; the table says why."] if failed else []),
                *([f"The numbers are {word}. {trust}"] if network_models else []),
                *([sentence(known)] if network_models and known else []),
            ],
            sections=[
                Section("pictures", "Over what was changed", drawn),
                _front(good, changed),
                Section("results", "Points", [_points(table, changed, shown, lower=lower)]),
                fabric_section({name: scenario}),
            ],
            meanings={"network_model": network_model_words(network_models), word: trust}
            if network_models
            else {},
            inputs={name: scenario},
            beside="sweep.parquet and sweep.csv beside it have every column.",
        ),
        version=version,
    )


def _headline(good: pl.DataFrame, shown: str, changed: Sequence[str], *, lower: bool) -> str:
    known = good.filter(good[shown].is_not_null()) if len(good) else good
    if not len(known):
        return "No point has a result."
    best = known.sort(shown, descending=not lower, maintain_order=True).row(0, named=True)
    where = f"point {best['point']} ({_where(best, changed)})"
    same = known.filter((known[shown] - best[shown]).abs() <= SAME * abs(best[shown]))
    others = f" and {len(same) - 1:,} more that are as good" if len(same) > 1 else ""
    return f"Best by {_title(shown)}: {_value(shown, best[shown])}, at {where}{others}."


def _summary(good: pl.DataFrame, shown: str, changed: Sequence[str], *, lower: bool) -> list[str]:
    """How much is between points, and which axis makes most of it."""
    known = good.filter(good[shown].is_not_null()) if len(good) else good
    if len(known) < 2:
        return []
    values = sorted(map(float, known[shown].to_list()), reverse=not lower)
    ends = f"{_value(shown, values[0])} to {_value(shown, values[-1])}"
    said = [f"Simulated: {len(good):,} points; {_title(shown)} from {ends}."]
    spread = {}
    for key in changed:
        groups: dict[Any, list[float]] = {}
        for where, value in zip(known[key].to_list(), known[shown].to_list(), strict=True):
            groups.setdefault(where, []).append(float(value))
        averages = [sum(mine) / len(mine) for mine in groups.values()]
        if len(groups) > 1 and len(groups) < len(known):
            spread[key] = (min(averages), max(averages))
    if len(spread) > 1:
        most = max(spread, key=lambda key: spread[key][1] - spread[key][0])
        low, high = spread[most]
        said.append(
            f"What dominates: {_title(most)}; the mean {_title(shown)} of its values goes from "
            f"{_value(shown, low)} to {_value(shown, high)}, more than over any other axis."
        )
    return said


def _front(good: pl.DataFrame, changed: Sequence[str]) -> Section:
    if not len(good) or good["cost_usd"].n_unique() < 2:
        return front_section([], rate="")
    rate, name = rates(good)
    rows = good.select(["point", *changed]).iter_rows(named=True)
    points = [
        (cost, one, f"point {row['point']}: " + _where(row, changed))
        for cost, one, row in zip(good["cost_usd"], rate, rows, strict=True)
        if cost is not None and one is not None
    ]
    return front_section(points, rate=name.replace("_", " "))


def _where(row: Mapping[str, Any], changed: Sequence[str]) -> str:
    return ", ".join(f"{_title(key)} {_value(key, row[key])}" for key in changed)


def _title(name: str) -> str:
    """A column's name without the unit that its values are shown with."""
    for ending in ("_us", "_bytes", "_gbps"):
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ")
    return name.replace("_", " ")


def _value(name: str, value: Any) -> str:
    return _short(value) if isinstance(value, (bool, type(None))) else with_unit(name, value)


def _points(table: pl.DataFrame, changed: Sequence[str], shown: str, *, lower: bool) -> Table:
    """Columns that say something: what was changed, the shown result, then all that differ."""
    first = list(dict.fromkeys(("point", *changed, shown)))
    rest = [
        name
        for name in table.columns
        if name not in first and table[name].null_count() < len(table)
        if table[name].n_unique() > 1 or name == ERROR
    ]
    names, note = [*first, *rest], ""
    some = table.select(names)
    if len(table) > MOST_ROWS:
        some = some.sort(shown, descending=not lower, nulls_last=True, maintain_order=True)
        some = some.head(MOST_ROWS)
        note = f"The best {MOST_ROWS:,} of {len(table):,} points by {_title(shown)}."
    texts = [index for index, name in enumerate(names) if not some[name].dtype.is_numeric()]
    rows: list[Cells] = [
        [_cell(name, value) for name, value in zip(names, row, strict=True)]
        for row in some.iter_rows()
    ]
    titles = [
        f"{_title(name)} {MICROSECONDS}" if name.endswith("_us") else _title(name) for name in names
    ]
    return Table("points", titles, rows, [0, *texts], note=note)


def _cell(name: str, value: Any) -> Cell:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return Cell(_value(name, value), value if number else None)


def _short(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return show_number(value, 6)
    return f"{value:,}" if isinstance(value, int) else str(value)
