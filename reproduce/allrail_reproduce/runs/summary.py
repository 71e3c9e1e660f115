"""What a table of runs shows as a whole: errors by source, the order of layouts, memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from allrail_reproduce.runs.predict import Outcome

APART = 0.08
"""By how much two layouts must differ for their order to be judged."""

ALIKE = ("model", "gpu", "gpus", "sequence_length", "global_batch", "precision")
"""What is alike of two layouts that are compared, beside the source."""


@dataclass(frozen=True)
class Group:
    """The rows of a source.

    Attributes:
        name: Of the source.
        rows: How many, repeats as one.
        refused: How many of them are refused: these count as outside.
        mean: Of the errors' sizes.
        median: Of them.
        within: The parts of all rows that are within 20 % and 30 %.
    """

    name: str
    rows: int
    refused: int
    mean: float | None
    median: float | None
    within: tuple[float, float]


def averaged(outcomes: Iterable[Outcome]) -> list[tuple[Outcome, float | None]]:
    """Return one outcome a configuration of a source, and its ratio to the measured average."""
    found: dict[object, list[Outcome]] = {}
    for one in outcomes:
        found.setdefault((one.run.comments.get("source", ""), one.run.key), []).append(one)
    rows = []
    for same in found.values():
        values = [one.measured.value for one in same if one.measured is not None]
        predicted = same[0].predicted
        if not values:
            continue
        ratio = None if predicted is None else predicted.value / statistics.fmean(values)
        rows.append((same[0], ratio))
    return rows


def group(name: str, outcomes: Iterable[Outcome]) -> Group:
    """Return what the rows of a source show.

    Args:
        name: Of the source.
        outcomes: Its rows.
    """
    ratios = [ratio for _, ratio in averaged(outcomes)]
    errors = [abs(ratio - 1) for ratio in ratios if ratio is not None]

    def within(limit: float) -> float:
        return sum(error <= limit for error in errors) / len(ratios) if ratios else 0.0

    return Group(
        name=name,
        rows=len(ratios),
        refused=len(ratios) - len(errors),
        mean=statistics.fmean(errors) if errors else None,
        median=statistics.median(errors) if errors else None,
        within=(within(0.2), within(0.3)),
    )


def groups(outcomes: list[Outcome]) -> list[Group]:
    """Return what each source shows, and all together."""
    by: dict[str, list[Outcome]] = {}
    for one in outcomes:
        by.setdefault(source_of(one), []).append(one)
    found = [group(name, some) for name, some in by.items()]
    return [*found, group("all", outcomes)]


def source_of(outcome: Outcome) -> str:
    """Return the short name of a row's source."""
    name = outcome.run.comments.get("source", "").split(" ")[0].rstrip(",")
    return name.split("/")[0] or "no source"


def ordered(outcomes: list[Outcome]) -> tuple[int, int]:
    """Return how many pairs of layouts are predicted in the measured order, and of how many."""
    right = total = 0
    by: dict[object, list[tuple[Outcome, float]]] = {}
    for one, ratio in averaged(outcomes):
        if one.measured is None:
            continue
        key = (one.run.comments.get("source", ""), *(one.run.text(name) for name in ALIKE))
        value = one.predicted.value / ratio if one.predicted and ratio else one.measured.value
        by.setdefault((key, one.measured.unit), []).append((one, value))
    for some in by.values():
        for (one, a), (other, b) in combinations(some, 2):
            if abs(a - b) <= APART * min(a, b):
                continue
            total += 1
            if one.predicted is not None and other.predicted is not None:
                right += (one.predicted.value > other.predicted.value) == (a > b)
    return right, total


def memory_errors(outcomes: list[Outcome]) -> list[float]:
    """Return how far memory is off in each row that states it, as parts of what is stated."""
    ratios = [one.memory_ratio for one in outcomes]
    return [ratio - 1 for ratio in ratios if ratio is not None]


def do_not_fit(outcomes: list[Outcome]) -> list[Outcome]:
    """Return the rows that ran and are predicted not to fit their memory."""
    return [one for one in outcomes if one.predicted is not None and one.predicted.fits is False]
