"""What `--out DIR` writes of traffic on graph fabrics.

`result.json`, the tables `traffic` (one row a result) and `npus` (bandwidth of each NPU, where it
was measured) as CSV and Parquet, `report.html`, and a picture as SVG and PNG: the distribution of
the NPUs' bandwidths, or else the shares of injection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allrail import _core
from allrail.base.files import staged_folder
from allrail.output.frames import write_frame
from allrail.output.report import style, traffic
from allrail.output.report.traffic_page import page
from allrail.output.write import (
    OUTPUT,
    REPORT_FILE,
    RESULT_FILE,
    check_folder,
    input_tree,
    result_tree,
    write_json,
)
from allrail.results.columns import TRAFFIC

if TYPE_CHECKING:
    import polars as pl

    from allrail.results.traffic_result import TrafficResult
    from allrail.scenario import Scenario


def write_traffic(
    folder: Path, *, results: Mapping[str, TrafficResult], scenarios: Mapping[str, Scenario]
) -> None:
    """Write the folder of one or several results.

    Args:
        folder: Where; it and its parents are made.
        results: By name.
        scenarios: What was simulated, by the same names.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    check_folder(folder)
    inputs = {name: input_tree(scenario) for name, scenario in scenarios.items()}
    each = {name: list(one.raw.get("npu_bandwidths_gbps", ())) for name, one in results.items()}
    each = {name: values for name, values in each.items() if values}
    if each:
        drawn = {traffic.DISTRIBUTION: traffic.distribution(each)}
    else:
        drawn = {traffic.SHARES: traffic.shares(results)}
    with staged_folder(folder, OUTPUT) as staged:
        pictures = style.write(staged, drawn)
        write_frame(traffic_frame(results), folder=staged, name="traffic")
        if each:
            write_frame(npus_frame(each), folder=staged, name="npus")
        html = page(results, inputs=inputs, pictures=pictures, version=_core.version())
        (staged / REPORT_FILE).write_text(html, encoding="utf-8")
        write_json(staged / RESULT_FILE, result_tree(results, inputs=inputs))


def traffic_frame(results: Mapping[str, TrafficResult]) -> pl.DataFrame:
    """One row a result.

    Args:
        results: By name.
    """
    import polars as pl

    rows = [
        {"result": name, **{key: one.raw.get(key) for key in TRAFFIC}}
        for name, one in results.items()
    ]
    schema = {"result": pl.String, **{name: getattr(pl, kind) for name, kind in TRAFFIC.items()}}
    return pl.DataFrame(rows, schema=schema)


def npus_frame(each: Mapping[str, list[float]]) -> pl.DataFrame:
    """One row a result and NPU that sends.

    Args:
        each: Bandwidths of the NPUs in their order, Gb/s, by result.
    """
    import polars as pl

    rows = [(name, i, value) for name, values in each.items() for i, value in enumerate(values)]
    schema = {"result": pl.String, "sender": pl.Int64, "bandwidth_gbps": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
