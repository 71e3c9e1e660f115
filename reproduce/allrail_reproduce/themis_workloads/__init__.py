"""Whole training steps of the Themis paper (ISCA'22, Fig. 12) on its six platforms.

The paper gives models, batches and layouts, but not how long they compute. So one number is
fitted per workload: `workload.compute.scale`, by which every compute time of the A100 roofline is
multiplied, the same on all six platforms. It is fitted to the mean speed-up over the baseline
alone; the largest speed-up, the ideal network's and the utilisations are predicted with it.

All gradients of a step are exchanged as one, when the last is there. The paper does not say so; it
was chosen because its numbers come out so and not otherwise. Layer by layer, ResNet-152 gains 1.25
at most, as its layers' all-reduces are mostly latency; in buckets of 25 MB GNMT's largest gain is
1.99.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from allrail.results.training_result import TrainingResult
from allrail.simulation.api import simulate_many
from allrail_reproduce.grid import BASELINE, PLATFORMS, SCF, mean
from allrail_reproduce.pictures import themis as pictures
from allrail_reproduce.pictures import themis_workloads as report
from allrail_reproduce.published import THIS_ROW, Made, chosen, fitted, number
from allrail_reproduce.rows import Cells, Detail, Picture, Progress, Reproduction, Row
from allrail_reproduce.themis_workloads import passes
from allrail_reproduce.themis_workloads.cases import (
    A100,
    CASES,
    H100,
    IDEAL,
    PEAK,
    RECOMPUTED,
    Case,
    Compute,
    scaled,
    scenario,
)

ABSTRACT = "ISCA'22, abstract, p. 581"
FIGURE = "ISCA'22, Fig. 12"
MAXIMA = "ISCA'22, §3.2"
TRAINING = "ISCA'22, evaluation section, training"

BUCKET = "all gradients as one bucket"
BUCKET_BY = "the speed-ups that others give"
"""The paper does not say when gradients go, nor which DLRM it trains."""

FASTER = (
    "no device is faster than its peak: with these compute times the published speed-ups cannot be "
    "those of an A100, or this model leaves out communication that the paper's has"
)
FOLLOWS = "goes with the fitted compute, and with all gradients going as one"
REAL = (
    "with a real device's compute, communication is a small part of these steps, and no scheduler "
    "can gain what is published: the paper does not print its compute times"
)

NOTES = (
    (
        "network model `dims`; two iterations, the second is measured; all gradients go as one "
        "when the last is there, which the paper does not say and its numbers need"
    ),
    (
        "per workload one number is fitted, `workload.compute.scale` of the A100 roofline, to the "
        "mean speed-up; everything else in its rows is predicted with it"
    ),
    (
        "the forward and backward parts of Fig. 12 are pictures without numbers: ours stand "
        "without, as does DLRM's ideal maximum, which the paper does not print"
    ),
    (
        "DLRM is a production model (20 layers of 3,375), chosen as MLPerf's gains 1.11 at most; "
        "Transformer-1T has 128 heads and not "
        "160, which 128 NPUs do not divide"
    ),
)

ROUNDS = 14
"""Bisections of the fitted scale: to a part in 16,000 of its range."""

LOWEST, HIGHEST = 1e-3, 1e2
"""The range of the scale, searched by its logarithm."""


Steps = dict[str, list[TrainingResult]]
"""By schedule, in the order of `PLATFORMS`."""


def _steps(case: Case, compute: Compute, schedules: Sequence[str]) -> Steps:
    trees = [
        scenario(case, platform, schedule=schedule, compute=compute)
        for schedule in schedules
        for platform in PLATFORMS
    ]
    results = cast("list[TrainingResult]", simulate_many(trees))
    count = len(PLATFORMS)
    return {schedule: results[i * count : (i + 1) * count] for i, schedule in enumerate(schedules)}


def _gains(steps: Steps, schedule: str) -> list[float]:
    return [
        base.step_time_us / one.step_time_us
        for base, one in zip(steps[BASELINE], steps[schedule], strict=True)
    ]


def fit(case: Case, *, step: Progress | None = None) -> float:
    """The scale at which Themis' mean speed-up is the published one, or nearest to it.

    The more time compute takes, the less communication is exposed and the smaller is the gain, so
    the mean falls with the scale.

    Args:
        case: The workload.
        step: Told after each round.
    """
    low: float = LOWEST
    high: float = HIGHEST
    for done in range(ROUNDS):
        middle = (low * high) ** 0.5
        gain = mean(_gains(_steps(case, scaled(middle), (BASELINE, SCF)), SCF))
        low, high = (middle, high) if gain > case.speedup[0] else (low, middle)
        if step is not None:
            step(done + 1, ROUNDS)
    return float((low * high) ** 0.5)


def run(*, progress: Progress | None = None) -> Reproduction:
    """Fit each workload and compare what follows.

    Args:
        progress: Told how many rounds are done.
    """
    rows: list[Row] = []
    cells: list[Cells] = []
    everything: dict[str, Steps] = {}
    computes: dict[str, Compute] = {}
    total = len(CASES) * (ROUNDS + 1)
    for i, case in enumerate(CASES):
        base = i * (ROUNDS + 1)

        def tell(done: float, _: int, base: int = base) -> None:
            if progress is not None:
                progress(base + done, total)

        scale = fit(case, step=tell)
        steps = _steps(case, scaled(scale), (BASELINE, SCF, IDEAL))
        everything[case.name] = steps
        computes[case.name] = scaled(scale)
        tell(ROUNDS + 1, 0)
        rows += [*_rows(case, scale, steps), *_devices(case)]
        cells += [
            (
                case.name,
                platform,
                *(round(steps[name][k].step_time_us / 1e3, 3) for name in (BASELINE, SCF, IDEAL)),
                round(steps[BASELINE][k].compute_us / 1e3, 3),
                round(steps[BASELINE][k].exposed_communication_us / 1e3, 3),
                round(_gains(steps, SCF)[k], 3),
                round(_gains(steps, IDEAL)[k], 3),
            )
            for k, platform in enumerate(PLATFORMS)
        ]
    rows += _devices(RECOMPUTED)
    rows += _over_all(everything)
    header = (
        "workload",
        "platform",
        "baseline_ms",
        "themis_ms",
        "ideal_ms",
        "compute_ms",
        "exposed_baseline_ms",
        "speedup",
        "ideal_speedup",
    )
    used, apart = _assumed(), passes.detail(computes)
    rows += passes.rows(apart, {case.name: _then(case) for case in CASES})
    return Reproduction(
        "Themis, ISCA'22: training steps",
        rows,
        list(NOTES),
        [Detail("steps", header, cells), apart, used],
        [
            Picture(
                "utilisation",
                "The step over the bandwidth that is used",
                "Of an A100's times, whatever the schedule, the mean over the platforms (Fig. 4).",
                partial(pictures.assumed, used),
            ),
            Picture(
                "steps",
                "What a step is made of",
                "Compute and exposed communication of a step, over the baseline's step.",
                partial(report.steps, everything),
            ),
        ],
    )


UTILISATIONS = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Of all dimensions of a group, as Fig. 4 assumes them."""


def _assumed() -> Detail:
    """The step over an assumed utilisation (Fig. 4), whatever the schedule, with an A100's times.

    Of every workload the mean over the platforms, as parts of the step at the lowest utilisation.
    """
    header = ("workload", *(f"at_{100 * used:g}%" for used in UTILISATIONS))
    rows: list[Cells] = []
    for case in CASES:
        trees = [
            {
                **scenario(case, platform, schedule=BASELINE, compute=A100),
                "what_if": {"utilisation": used},
            }
            for used in UTILISATIONS
            for platform in PLATFORMS
        ]
        times = [one.step_time_us for one in simulate_many(trees)]
        count = len(PLATFORMS)
        means = [mean(times[i : i + count]) for i in range(0, len(times), count)]
        rows.append((case.name, *(round(one / means[0], 4) for one in means)))
    return Detail("utilisation", header, rows)


def _key(case: Case) -> str:
    return f"workload.compute.scale of {case.name}"


def _then(case: Case) -> Made:
    """How what follows from a workload's fitted compute came about."""
    return fitted(_key(case), to=f"the mean speed-up of {case.name}")


def _rows(case: Case, scale: float, steps: Steps) -> list[Row]:
    """What is published of a workload, with its fitted compute, and how fast that would be."""
    average, largest, ideal = case.speedup
    gains, bounds = _gains(steps, SCF), _gains(steps, IDEAL)
    name, how = case.name, f"dims, compute scale {scale:.4g}"
    key = _key(case)
    then = _then(case)
    rows = [
        Row(case_, ours, number(value, place), "x", digits=3, how=how, made=made)
        for case_, ours, value, place, made in (
            (f"{name}, mean speed-up", mean(gains), average, ABSTRACT, fitted(key, to=THIS_ROW)),
            (f"{name}, largest speed-up", max(gains), largest, ABSTRACT, then),
            (f"{name}, ideal mean speed-up", mean(bounds), ideal, FIGURE, then),
        )
    ]
    most = case.ideal_largest
    stated = None if most is None else number(most, MAXIMA)
    label = f"{name}, ideal largest speed-up"
    rows.append(Row(label, max(bounds), stated, "x", digits=3, how=how, made=then))
    rows.append(_over_peak(case, steps, then))
    if case.model_parallel > 1:
        apart = max(
            abs(base.exposed_us.data - one.exposed_us.data) / max(base.step_time_us, 1.0)
            for base, one in zip(steps[BASELINE], steps[SCF], strict=True)
        )
        rows.append(
            Row(
                f"{name}, data-parallel part, Themis against baseline",
                100 * apart,
                None,
                "% of step",
                how="largest difference of exposed data-parallel communication",
                made=then,
            )
        )
    return rows


def _over_peak(case: Case, steps: Steps, made: Made) -> Row:
    """How many times an A100's peak the fitted compute is: above 1 there is no such device."""
    peak = _steps(case, PEAK, (BASELINE,))[BASELINE][0].compute_us
    factor = peak / steps[BASELINE][0].compute_us
    why = FASTER if factor > 1 else ""
    how = f"{peak / 1e3:.2f} ms at 312 TFLOP/s in every layer"
    return Row(
        f"{case.name}, fitted compute over an A100's peak",
        factor,
        None,
        "x",
        how=how,
        why=why,
        made=made,
    )


def _devices(case: Case) -> list[Row]:
    """The speed-ups with the times of devices that there are; the paper's is an A100."""
    rows = []
    for label, compute in (("A100", A100), ("H100", H100)):
        steps = _steps(case, compute, (BASELINE, SCF))
        gains = _gains(steps, SCF)
        told = f"dims, roofline at half of the peak: {steps[BASELINE][0].compute_us / 1e3:.1f} ms"
        rows += [
            Row(
                f"{case.name}, {label}'s compute, {what} speed-up",
                ours,
                number(value, ABSTRACT) if compute is A100 else None,
                "x",
                digits=3,
                how=told,
                why=REAL if compute is A100 else "",
                made=chosen(BUCKET, *case.picked, by=BUCKET_BY),
            )
            for what, ours, value in (
                ("mean", mean(gains), case.speedup[0]),
                ("largest", max(gains), case.speedup[1]),
            )
        ]
    return rows


def _over_all(everything: Mapping[str, Steps]) -> list[Row]:
    uses = [
        100 * (result.utilisation_while_communicating or 0.0)
        for steps in everything.values()
        for result in steps[BASELINE]
    ]

    def shorter(schedule: str) -> float:
        return mean(
            [
                base.exposed_communication_us / one.exposed_communication_us
                for steps in everything.values()
                for base, one in zip(steps[BASELINE], steps[schedule], strict=True)
                if one.exposed_communication_us > 0
            ]
        )

    made = fitted("workload.compute.scale of all four", to="the four mean speed-ups")
    return [
        Row(case, ours, number(value, TRAINING), unit, how="dims", why=FOLLOWS, made=made)
        for case, ours, value, unit in (
            ("baseline utilisation, mean of all", mean(uses), 59.7, "%"),
            ("baseline utilisation, least of all", min(uses), 35.1, "%"),
            ("exposed communication, shorter by", shorter(SCF), 1.65, "x"),
            ("the same, ideal", shorter(IDEAL), 1.72, "x"),
        )
    ]
