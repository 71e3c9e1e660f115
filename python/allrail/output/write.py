"""Everything that `--out DIR` writes.

`result.json` (inputs, seed, versions, results), the tables `results`, `dimensions` and `timeline`
as CSV and Parquet, `trace.json.gz`, the pictures as SVG and PNG, and `report.html`. All files are
made in a folder of their own first. An earlier run's files are replaced, or removed where this run
does not make them; files of others stay, and one in the way is refused (`allrail.base.manifest`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.base.files import check_target, staged_folder
from allrail.output.frames import dimensions_frame, results_frame, timeline_frame, write_frame
from allrail.output.report import activity, comparison, gantt, style
from allrail.output.report.collectives_page import page
from allrail.output.trace import trace_gzip

if TYPE_CHECKING:
    from allrail.results.result import CollectivesResult
    from allrail.results.traffic_result import TrafficResult
    from allrail.results.training_result import TrainingResult
    from allrail.scenario import Scenario

RESULT_FILE = "result.json"
REPORT_FILE = "report.html"
MADE_BY = "allrail"
PICTURES = ("comparison", "gantt", "activity")
TABLES = ("results", "dimensions", "timeline")
FILES = (
    *(f"{name}.{ending}" for name in PICTURES for ending in ("svg", "png")),
    *(f"{name}.{ending}" for name in TABLES for ending in ("csv", "parquet")),
    "trace.json.gz",
    REPORT_FILE,
    RESULT_FILE,
)
"""All that may be written of collectives."""
OUTPUT = "results"
"""What the files of all commands that write a `result.json` are together."""
_TABLED = ("timeline", "npu_bandwidths_gbps")


def write_results(
    folder: Path, *, results: Mapping[str, CollectivesResult], scenarios: Mapping[str, Scenario]
) -> None:
    """Write the folder of one or several results.

    Args:
        folder: Where; it and its parents are made.
        results: By name; pictures need their timelines. The first is what others are compared with.
        scenarios: What was simulated, by the same names.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    check_folder(folder)
    inputs = {name: input_tree(scenario) for name, scenario in scenarios.items()}
    drawn: dict[str, Any] = {}
    if len(results) > 1:
        drawn[comparison.NAME] = comparison.comparison(results)
    if any(result.timeline for result in results.values()):
        drawn[gantt.NAME] = gantt.gantt(results)
        drawn[activity.NAME] = activity.activity(results)
    with staged_folder(folder, OUTPUT) as staged:
        pictures = style.write(staged, drawn)
        write_frame(results_frame(results), folder=staged, name="results")
        write_frame(dimensions_frame(results), folder=staged, name="dimensions")
        if any(result.timeline for result in results.values()):
            write_frame(timeline_frame(results), folder=staged, name="timeline")
            (staged / "trace.json.gz").write_bytes(trace_gzip(results))
        html = page(results, inputs=inputs, pictures=pictures, version=_core.version())
        (staged / REPORT_FILE).write_text(html, encoding="utf-8")
        write_json(staged / RESULT_FILE, result_tree(results, inputs=inputs))


def input_tree(scenario: Scenario) -> dict[str, Any]:
    """A scenario as plain values; the core needs no name of a topology, people do.

    Args:
        scenario: What was simulated.
    """
    tree: dict[str, Any] = json.loads(scenario.to_json())
    tree["fabric"] = {"name": scenario.fabric.name, **tree["fabric"]}
    return tree


def result_tree(
    results: Mapping[str, CollectivesResult | TrainingResult | TrafficResult],
    *,
    inputs: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What `result.json` holds; timelines and the bandwidths of NPUs have tables of their own.

    Args:
        results: By name.
        inputs: Their scenarios as plain values, by the same names.
    """
    return {
        "schema_version": 1,
        "made_by": MADE_BY,
        "versions": {"allrail": _core.version()},
        "results": [
            {
                "name": name,
                "seed": result.seed,
                "scenario": inputs[name],
                "result": {
                    key: value for key, value in result.to_dict().items() if key not in _TABLED
                },
            }
            for name, result in results.items()
        ],
    }


def check_folder(folder: Path, *, option: str = "--out") -> None:
    """Refuse a folder whose result or report is not ours, before anything is computed.

    Args:
        folder: Where results shall be written.
        option: Which option named it.

    Raises:
        InputError: Another program's `result.json` or `report.html` is in it.
    """
    for name in (RESULT_FILE, REPORT_FILE):
        check_target(folder / name, option=option)


def write_json(path: Path, tree: object) -> None:
    """Write a JSON file with one key a line.

    Args:
        path: The file.
        tree: What it holds.
    """
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
