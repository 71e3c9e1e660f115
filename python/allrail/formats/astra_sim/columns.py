"""The result columns that ASTRA-sim prints, filled from a result of ours.

The first five are those of the tutorial's result file. The total is when everything is over, all
passes and updates included; exposed communication is the total without the computing. `MICRO`
computes nothing. MB are MiB, as there. Then the utilisation of each dimension, as a percentage.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from allrail.base.foreign import cell
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
        # Of a trace the files do not say what it computes; its result does.
        pass_us = case.compute_ns / 1e3 or float(result["compute_us"])
        compute = pass_us * case.passes
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


def columns_csv(*rows: dict[str, str]) -> str:
    """Rows as a CSV file with their header.

    Args:
        rows: From `columns`, with the same names; one at least.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(name) for name in rows[0]])
    for row in rows:
        writer.writerow([cell(value) for value in row.values()])
    return text.getvalue()
