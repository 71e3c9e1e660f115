"""The result columns that ASTRA-sim prints, filled from a result of ours.

The first five are those of the tutorial's result file. The total is when everything is over, all
passes and updates included; exposed communication is the total without the computing. `MICRO`
computes nothing. MB are MiB, as there. Then the utilisation of each dimension, as a percentage.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from allrail.foreign import cell
from allrail.formats.astra_sim.case import AstraCase


def columns(case: AstraCase, *, result: dict[str, Any]) -> dict[str, str]:
    """One row, in the order that ASTRA-sim prints.

    Args:
        case: The run.
        result: The result of its scenario.
    """
    if case.passes:
        total = sum(float(step) for step in result["steps_us"])
        # Passes overlap, so that a pass of the result need not hold all of its own computing.
        compute = case.compute_ns * case.passes / 1e3
        per_pass = sum(float(dimension["bytes_per_npu"]) for dimension in result["dimensions"])
        size = per_pass * case.passes
    else:
        total = float(result["time_us"]) + case.update_time / 1e3
        compute, size = 0.0, float(result["bytes_per_npu"])
    row = {
        "Name": case.name,
        "TotalTime(us)": f"{total:.3f}",
        "ComputeTime(us)": f"{compute:.3f}",
        "ExposedCommunicationTime(us)": f"{total - compute:.3f}",
        "TotalMessageSize(MB)": f"{size / 2**20:.2f}",
    }
    for dimension in result["dimensions"]:
        utilisation = dimension["utilisation"]
        text = "" if utilisation is None else f"{100 * float(utilisation):.2f}"
        row[f"{dimension['name']} util(%)"] = text
    return row


def columns_csv(row: dict[str, str]) -> str:
    """The row as a CSV file with its header.

    Args:
        row: From `columns`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(name) for name in row])
    writer.writerow([cell(value) for value in row.values()])
    return text.getvalue()
