"""The picture of Themis' training steps: what a step is made of, on every platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allrail.output.report.style import HUES, INK, WIDTH, bare, style
from allrail.results.training_result import TrainingResult
from allrail_reproduce.grid import PLATFORMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _two_lines(name: str) -> str:
    parts = name.split("_")
    half = (len(parts) + 1) // 2
    return "_".join(parts[:half]) + "\n" + "_".join(parts[half:])


def steps(everything: Mapping[str, Mapping[str, Sequence[TrainingResult]]]) -> Figure:
    """One panel a workload, a bar a platform and schedule, as parts of the baseline's step.

    Args:
        everything: By workload, then by schedule: results in the order of the platforms.
    """
    from matplotlib.figure import Figure as New
    from matplotlib.patches import Patch

    with style("steps"):
        figure = New(figsize=(WIDTH, 6.4), layout="constrained")
        panels = figure.subplots(2, 2, sharey=True)
        for axes, (name, made) in zip(panels.flat, everything.items(), strict=True):
            for k, schedule in enumerate(made):
                base = [result.step_time_us for result in made["baseline"]]
                at = [4 * i + k for i in range(len(base))]
                pairs = list(zip(made[schedule], base, strict=True))
                compute = [(one.compute_us + one.waiting_us) / whole for one, whole in pairs]
                exposed = [one.exposed_communication_us / whole for one, whole in pairs]
                axes.bar(at, compute, width=0.85, color=INK)
                axes.bar(at, exposed, bottom=compute, width=0.85, color=HUES[k], label=schedule)
            axes.set_title(name, loc="left")
            axes.set_xticks([4 * i + 1 for i in range(len(PLATFORMS))])
            axes.set_xticklabels([_two_lines(name) for name in PLATFORMS])
            axes.tick_params(axis="x", labelsize=7)
            axes.set_ylim(0, 1.02)
            bare(axes)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(
            [Patch(color=INK), *handles],
            ["compute", *(f"exposed, {label}" for label in labels)],
            loc="outside upper right",
            ncols=4,
        )
    return figure
