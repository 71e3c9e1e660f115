"""Forward and backward pass of Themis' training steps apart, as Fig. 12 draws them.

A step goes forward until its first backward computation starts, and backward from there to its end.
What of a pass is not computing is communication that nothing hides. The figure prints no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from allrail.reproduce.grid import BASELINE, PLATFORMS, SCF
from allrail.reproduce.rows import Cells, Detail
from allrail.reproduce.themis_workloads.cases import CASES, Case, Compute, scenario
from allrail.training import simulate_training
from allrail.training_result import TrainingResult

BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Pass:
    """A part of a step, ms.

    Attributes:
        compute: Of it, computing.
        exposed: The rest.
    """

    compute: float
    exposed: float


def passes(result: TrainingResult) -> tuple[Pass, Pass]:
    """Return the forward pass, and the backward pass with the update.

    Args:
        result: Of one iteration, with its timeline.
    """
    computed = [one for one in result.timeline or () if one.track == "compute"]
    lasted = {
        word: sum(one.end_us - one.start_us for one in computed if one.work_pass == word) / 1e3
        for word in ("forward", BACKWARD, "update")
    }
    turn = min(one.start_us for one in computed if one.work_pass == BACKWARD) / 1e3
    back = lasted[BACKWARD] + lasted["update"]
    return (
        Pass(lasted["forward"], turn - lasted["forward"]),
        Pass(back, result.step_time_us / 1e3 - turn - back),
    )


def measured(case: Case, platform: str, *, schedule: str, compute: Compute) -> tuple[Pass, Pass]:
    """Simulate one iteration, and take it apart.

    Args:
        case: The workload.
        platform: One of the six.
        schedule: As in `scenario`.
        compute: As in `scenario`.
    """
    tree = scenario(case, platform, schedule=schedule, compute=compute)
    tree["workload"]["iterations"] = 1
    return passes(simulate_training(tree, timeline=True))


def detail(computes: dict[str, Compute]) -> Detail:
    """One row a workload, platform and schedule.

    Args:
        computes: How long each workload computes, by its name.
    """
    header = ("workload", "platform", "schedule", "forward_compute_ms", "forward_exposed_ms")
    rows: list[Cells] = []
    for case in CASES:
        for platform in PLATFORMS:
            for schedule in (BASELINE, SCF):
                found = measured(case, platform, schedule=schedule, compute=computes[case.name])
                parts = (part for one in found for part in (one.compute, one.exposed))
                rows.append((case.name, platform, schedule, *(round(part, 3) for part in parts)))
    return Detail("passes", (*header, "backward_compute_ms", "backward_exposed_ms"), rows)
