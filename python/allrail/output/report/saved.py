"""The report of results that were written before: what `allrail report` writes.

All is read from the folder that `--out` made: `result.json`, the timeline's table, and the pictures
as they are. So the page is the same, byte for byte, as the one that was written with the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.base.arguments import PathLike, checked
from allrail.base.errors import InputError
from allrail.base.files import write_text
from allrail.output.report import collectives_page, placement_page, traffic_page, training_page
from allrail.output.report.answer import KINDS, html
from allrail.output.report.placement import PICTURES as OF_PLACEMENT
from allrail.output.report.training import PICTURES as OF_TRAINING
from allrail.output.training import describe
from allrail.output.write import MADE_BY, PICTURES, RESULT_FILE
from allrail.results.result import CollectivesResult
from allrail.results.traffic_result import TrafficResult
from allrail.results.training_result import TrainingResult
from allrail.scenario.text import read_bytes, read_json

_LARGEST = 1 << 30
_MOST_ROWS = 50_000_000
ELSEWHERE = {
    "sweep.jsonl": "`allrail sweep` with the same study and `--out` writes its report again, and "
    "simulates nothing that it knows",
    "reproduction.json": "`allrail reproduce` with `--out` writes its report; it needs more than "
    "the folder holds",
}
"""Files of other verbs, and what writes their reports."""


PAGE = "report.html"


@checked
def report(path: PathLike, *, out: PathLike | None = None) -> Path:
    """Write the report of results that were written before: one page, which opens offline.

    Nothing is simulated; pictures are taken as they are.

    Args:
        path: The folder that `out` or `report` of another function wrote, or its `result.json`.
        out: File for the page; `report.html` beside the results if None.

    Returns:
        The page's file.

    Raises:
        InputError: There are no such results, or the page cannot be written.

    Example:
        `allrail.report("out")`
    """
    folder = Path(path)
    html = saved_page(folder)
    file = (folder if folder.is_dir() else folder.parent) / PAGE if out is None else Path(out)
    write_text(file, html)
    return file


def saved_page(path: Path) -> str:
    """The report of a folder that `--out` has written.

    Args:
        path: The folder, or its `result.json`.

    Raises:
        InputError: It is not there, or not what `--out` writes.
    """
    file = path / RESULT_FILE if path.is_dir() else path
    tree = _read(path, file)
    try:
        if "placement" in tree:
            return _placement(file.parent, tree["placement"])
        for kind in KINDS:
            if kind in tree:
                return html(kind, tree[kind])
        if not tree["results"]:
            raise _refused(path, "it holds no results", "simulate it again")
        first = tree["results"][0]["result"]
        for key, make in _KINDS.items():
            if key in first:
                return make(file.parent, tree)
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise _refused(path, f"it is not whole: {_lacks(error)}", "simulate it again") from None
    raise _refused(path, "it holds results of no kind that has a report", "simulate it again")


def _read(path: Path, file: Path) -> dict[str, Any]:
    if not file.exists():
        for name, hint in ELSEWHERE.items():
            if (file.parent / name).exists():
                raise _refused(path, f"it has no `{RESULT_FILE}`", hint)
        raise _refused(
            path,
            f"there is no `{RESULT_FILE}`" if path.is_dir() else "there is no such file",
            "name a folder that `--out` of simulate, compare or place, or `--report` has written",
        )
    try:
        tree = read_json(read_bytes(file, most=_LARGEST), str(file), finite=True)
    except InputError as error:
        raise _refused(path, error.why, "simulate it again") from None
    if not isinstance(tree, dict) or tree.get("made_by") != MADE_BY:
        raise _refused(
            path, "it was not written by allrail", "name a folder that `--out` has written"
        )
    return tree


def _lacks(error: Exception) -> str:
    """What is wrong with it, in words that are not Python's."""
    if isinstance(error, KeyError):
        return f"there is no `{error.args[0]}`"
    if isinstance(error, IndexError):
        return "a list is shorter than it was written"
    if isinstance(error, (TypeError, AttributeError)):
        return "a value is of another kind than was written"
    return str(error)


def _refused(path: Path, why: str, hint: str) -> InputError:
    return InputError(why, hint=hint, source="allrail report", value=str(path))


def _pictures(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    files = {name: folder / f"{name}.svg" for name in names}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.exists()}


def _rows(folder: Path, table: str) -> list[dict[str, Any]]:
    import polars as pl

    file = folder / f"{table}.parquet"
    if not file.exists():
        return []
    try:
        # A packed table may have any number of rows: the file says how many before they are read.
        rows = int(pl.scan_parquet(file).select(pl.len()).collect().item())
        if rows > _MOST_ROWS:
            raise ValueError(f"{file.name} has {rows:,} rows, and {_MOST_ROWS:,} are read")
        return pl.read_parquet(file).to_dicts()
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{file.name}: {error}") from None


def _trees(folder: Path, tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each result as `--json` prints it, with its timeline."""
    trees = {one["name"]: dict(one["result"]) for one in tree["results"]}
    for row in _rows(folder, "timeline"):
        row["pass"] = row.get("work_pass")
        trees[row["result"]].setdefault("timeline", []).append(row)
    return trees


def _inputs(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["scenario"] for one in tree["results"]}


def _collectives(folder: Path, tree: Mapping[str, Any]) -> str:
    return collectives_page.page(
        {name: CollectivesResult.from_dict(one) for name, one in _trees(folder, tree).items()},
        inputs=_inputs(tree),
        pictures=_pictures(folder, PICTURES),
        version=_core.version(),
    )


def _training(folder: Path, tree: Mapping[str, Any]) -> str:
    return training_page.page(
        {name: TrainingResult.from_dict(one) for name, one in _trees(folder, tree).items()},
        inputs={name: describe(one) for name, one in _inputs(tree).items()},
        pictures=_pictures(folder, OF_TRAINING),
        what_ifs=tree.get("what_ifs", ()),
        version=_core.version(),
    )


def _traffic(folder: Path, tree: Mapping[str, Any]) -> str:
    return traffic_page.page(
        {one["name"]: TrafficResult.from_dict(one["result"]) for one in tree["results"]},
        inputs=_inputs(tree),
        pictures=_pictures(folder, tuple(traffic_page.TITLES)),
        version=_core.version(),
    )


def _placement(folder: Path, told: Mapping[str, Any]) -> str:
    mixes = [
        {
            **row,
            "upper": {
                "all_to_all": row["all_to_all_above_leaves"],
                "rings": row["rings_above_leaves"],
            },
        }
        for row in _rows(folder, "mixes")
    ]
    jobs = _rows(folder, "jobs")
    return placement_page.page(
        {**told, **({"ran": jobs} if "makespan_s" in told else {"mixes": mixes})},
        pictures=_pictures(folder, OF_PLACEMENT),
        version=_core.version(),
    )


_KINDS: dict[str, Callable[[Path, Mapping[str, Any]], str]] = {
    "step_time_us": _training,
    "share_of_injection": _traffic,
    "bound_time_us": _collectives,
}
"""What only one kind of result has, and how its page is made."""
