"""The result columns that ASTRA-sim prints, filled from a result of ours.

The first five are those of the tutorial's result file. `MICRO` computes nothing, so all of its time
is exposed communication; the total is ASTRA-sim's, which includes the update after the collective.
MB are MiB, as there. Then the utilisation of each dimension, as a percentage.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from allrail.formats.astra_sim.case import AstraCase


def columns(case: AstraCase, *, result: dict[str, Any]) -> dict[str, str]:
    """One row, in the order that ASTRA-sim prints.

    Args:
        case: The run.
        result: The result of its scenario.
    """
    total = float(result["time_us"]) + case.update_time / 1e3
    row = {
        "Name": case.name,
        "TotalTime(us)": f"{total:.3f}",
        "ComputeTime(us)": f"{0:.3f}",
        "ExposedCommunicationTime(us)": f"{total:.3f}",
        "TotalMessageSize(MB)": f"{float(result['bytes_per_npu']) / 2**20:.2f}",
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
    writer.writerow(row)
    writer.writerow(row.values())
    return text.getvalue()
