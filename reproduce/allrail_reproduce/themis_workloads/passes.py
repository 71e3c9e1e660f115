"""Forward and backward pass of Themis' training steps apart, as Fig. 12 draws them, and what hides.

The backward pass has the update with it. What of a pass is not computing is communication that
nothing hides. The figure prints no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from allrail.results.result import Result
from allrail.results.starvation import length, without
from allrail.simulation.api import simulate
from allrail_reproduce.grid import BASELINE, PLATFORMS, SCF, mean
from allrail_reproduce.published import Made
from allrail_reproduce.rows import Cells, Detail, Row
from allrail_reproduce.themis_workloads.cases import CASES, Case, Compute, scenario

ALL_TO_ALL = "all_to_all"
HIDDEN = "all_to_alls_hidden_%"


@dataclass(frozen=True, slots=True)
class Pass:
    """A part of a step, ms.

    Attributes:
        compute: Of it, computing.
        exposed: The rest.
    """

    compute: float
    exposed: float


def passes(result: Result) -> tuple[Pass, Pass]:
    """Return the forward pass, and the backward pass with the update.

    Args:
        result: Of a step.
    """
    parts = result.passes
    computed = parts.backward.compute_us + parts.update.compute_us
    lasted = result.step_time_us - parts.forward.time_us
    return (
        Pass(
            parts.forward.compute_us / 1e3, (parts.forward.time_us - parts.forward.compute_us) / 1e3
        ),
        Pass(computed / 1e3, (lasted - computed) / 1e3),
    )


def hidden(result: Result) -> float | None:
    """Return the part of the time of all-to-alls in which something is computed; None without any.

    Args:
        result: Of one iteration, with its timeline.
    """
    timeline = result.timeline or ()
    exchanged = [(one.start_us, one.end_us) for one in timeline if one.operation == ALL_TO_ALL]
    computed = [(one.start_us, one.end_us) for one in timeline if one.track == "compute"]
    whole = length(without(exchanged, ()))
    return 1 - length(without(exchanged, computed)) / whole if whole else None


def measured(case: Case, platform: str, *, schedule: str, compute: Compute) -> Result:
    """Simulate one iteration, with its timeline.

    Args:
        case: The workload.
        platform: One of the six.
        schedule: As in `scenario`.
        compute: As in `scenario`.
    """
    tree = scenario(case, platform, schedule=schedule, compute=compute)
    tree["workload"]["iterations"] = 1
    return simulate(tree, timeline=True)


def detail(computes: dict[str, Compute]) -> Detail:
    """Return one row a workload, platform and schedule.

    Args:
        computes: How long each workload computes, by its name.
    """
    header = ("workload", "platform", "schedule", "forward_compute_ms", "forward_exposed_ms")
    rows: list[Cells] = []
    for case in CASES:
        for platform in PLATFORMS:
            for schedule in (BASELINE, SCF):
                found = measured(case, platform, schedule=schedule, compute=computes[case.name])
                parts = (part for one in passes(found) for part in (one.compute, one.exposed))
                share = hidden(found)
                rows.append(
                    (
                        case.name,
                        platform,
                        schedule,
                        *(round(part, 3) for part in parts),
                        None if share is None else round(100 * share, 3),
                    )
                )
    back = ("backward_compute_ms", "backward_exposed_ms", HIDDEN)
    return Detail("passes", (*header, *back), rows)


def rows(detail: Detail, made: Mapping[str, Made]) -> list[Row]:
    """Return how much of each workload's all-to-alls is hidden, where it has some.

    Args:
        detail: What `detail` gave.
        made: How each workload's compute came about, by its name.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for cells in detail.rows:
        one = dict(zip(detail.header, cells, strict=True))
        share = one[HIDDEN]
        if share is not None:
            place = (str(one["workload"]), str(one["schedule"]))
            found.setdefault(place, []).append(float(share))
    return [
        Row(
            f"{workload}, all-to-alls hidden behind computing, {schedule}",
            mean(shares),
            None,
            "%",
            how="of the time in which one is under way, mean over the platforms",
            made=made[workload],
        )
        for (workload, schedule), shares in found.items()
    ]
