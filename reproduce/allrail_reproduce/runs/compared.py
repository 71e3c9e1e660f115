"""How far off each compared run is: what the error line of a prediction is made of.

A line a configuration (repeats are averaged): device, precision, how kernels are launched, the
software, and the ratio of the measured step's time to the predicted one.
`allrail.results.accuracy` reads the packaged table; `allrail reproduce runs --table FILE --ratios
OUT` writes one.
"""

from __future__ import annotations

from collections.abc import Sequence

from allrail.results.accuracy import bits_of
from allrail_reproduce.runs.machine import device_of
from allrail_reproduce.runs.predict import Outcome
from allrail_reproduce.runs.software import software_of
from allrail_reproduce.runs.summary import averaged
from allrail_reproduce.runs.table import Run

HEADER = ("id", "device", "precision", "launch", "software", "ratio")


def ratios(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str, str, str]]:
    """Return a row for each configuration that was predicted, in the order of the table.

    Args:
        outcomes: Runs beside their predictions.
    """
    rows = []
    for one, ratio in averaged(outcomes):
        device = device_of(one.run)
        if ratio is None or device is None:
            continue
        software = software_of(one.run, device)
        precision = bits_of(software.precision, software.compute["recipe"])
        launch = str(software.compute["launch"])
        # A rate is predicted: its ratio is the inverse of the times'.
        rows.append((one.run.id, device, precision, launch, _named(one.run), f"{ratio:.4f}"))
    return rows


def as_csv(outcomes: Sequence[Outcome]) -> str:
    """Return the table as CSV.

    Args:
        outcomes: Runs beside their predictions.
    """
    return "\n".join(",".join(row) for row in (HEADER, *ratios(outcomes))) + "\n"


def _named(run: Run) -> str:
    """The software, as people call it."""
    if run.is_torch:
        return "torchtitan"
    if "fsdp" in run.text("sharding"):
        return "PyTorch's FSDP"
    return "Megatron-LM"
