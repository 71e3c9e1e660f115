"""The ASTRA-sim tutorial (ASPLOS 2023), exercises 3-1 and 3-2, from files with the same numbers.

3-1: 512 NPUs on three switches of 8, 1 GiB all-reduce in 64 chunks, baseline and Themis.
3-2: 64 NPUs on one switch, 1 GiB direct all-reduce, on both backends. The congestion-unaware one
counts one message's time for all that leave at once, below what an NPU's link can carry; beside it
stands the same case with shared links.

Where ASTRA-sim's own files and printed times are at hand (a folder with `expected.json`), its other
cases follow, whole training loops among them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.formats.astra_sim import AstraCase, columns, read_case
from allrail.results.result import Result
from allrail.simulation import api
from allrail_reproduce.published import number
from allrail_reproduce.rows import Progress, Reproduction, Row

FOLDER = Path(__file__).parent / "tutorial"
REFERENCE = "ALLRAIL_REFERENCE"
"""The environment variable that names a folder with `astra-sim/expected.json` in it."""

TUTORIAL = "ASTRA-sim tutorial, ASPLOS 2023, exercises 3-1 and 3-2"

LINK_BOUND_US = 39_375.0
"""3-2: what one NPU sends, 2016 MiB, over its link of 50 GiB/s."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """One run of the tutorial.

    Attributes:
        name: Its number and variant.
        network: Its file.
        system: Its file.
        network_model: The backend.
        time_us: As published.
        tolerance: As a fraction.
        utilisation: In per cent, as published.
        message_mib: What an NPU sends, as published (MB there).
        ideal_us: All bytes over all bandwidth, as published.
    """

    name: str
    network: str
    system: str
    network_model: str
    time_us: float
    tolerance: float
    utilisation: float | None = None
    message_mib: float | None = None
    ideal_us: float | None = None


EXERCISES = (
    Exercise(
        "3-1, baseline",
        "3d_switch.json",
        "3d_switch_baseline.txt",
        "dims",
        35008.129,
        1e-3,
        38.01,
        2044.0,
        13307.292,
    ),
    Exercise(
        "3-1, themis + SCF",
        "3d_switch.json",
        "3d_switch_themis.txt",
        "dims",
        13635.871,
        2e-3,
        97.59,
        2044.0,
    ),
    Exercise("3-2, congestion-unaware", "switch_64.json", "direct.txt", "dims", 633.217, 5e-3),
    Exercise("3-2, links", "switch_64.yml", "direct.txt", "links", 40008.217, 1e-3),
)


def run(*, reference: Path | None = None, progress: Progress | None = None) -> Reproduction:
    """Compute the tutorial's numbers, and those of `expected.json` if it is there.

    Args:
        reference: The folder with `expected.json`; that of `ALLRAIL_REFERENCE` if None.
        progress: Told how many cases are done.

    Raises:
        InputError: A named reference cannot be read.
    """
    cases = _expected(reference)
    total = len(EXERCISES) + 1 + len(cases)
    rows: list[Row] = []
    notes: list[str] = []

    def tell(done: int) -> None:
        if progress is not None:
            progress(done, total)

    for done, exercise in enumerate(EXERCISES):
        tell(done)
        case, result = _run(FOLDER, exercise.network, exercise.system, exercise.network_model)
        rows.append(
            _time(f"tutorial {exercise.name}", result, exercise.time_us, exercise.tolerance)
        )
        if exercise.utilisation is not None:
            name = f"tutorial {exercise.name}, utilisation"
            rows.append(_utilisation(name, result, exercise))
        rows += _sizes(case, result, exercise)
        if result.below_physical_bound:
            rows.append(_shared(case))
            notes.append(
                f"tutorial {exercise.name}: {result.time_us:.3f} us is below the "
                f"{LINK_BOUND_US:.0f} us that the link of one NPU needs; it has no utilisation"
            )
    rows.append(_every_npu())
    for done, expected in enumerate(cases, start=len(EXERCISES) + 1):
        tell(done)
        rows += _case(expected)
    tell(total)
    if not cases:
        notes.append(f"set {REFERENCE} to check ASTRA-sim's sample cases too")
    return Reproduction("ASTRA-sim, tutorial at ASPLOS 2023", rows, notes)


def _run(folder: Path, network: str, system: str, network_model: str) -> tuple[AstraCase, Result]:
    case = _read(
        folder, network, system, network_model, workload="all_reduce.txt", comm_scale=1024.0
    )
    return case, api.simulate(case.scenario)


def _read(
    folder: Path, network: str, system: str, network_model: str, *, workload: str, **options: Any
) -> AstraCase:
    return read_case(
        folder / network,
        system=folder / system,
        workload=folder / workload,
        network_model=network_model,
        **options,
    )


def _time(name: str, result: Result, published: float, tolerance: float) -> Row:
    return Row(name, result.time_us, number(published, TUTORIAL), "us", within=tolerance, digits=3)


def _utilisation(name: str, result: Result, exercise: Exercise) -> Row:
    """In points; the published time's tolerance carries over."""
    ours = 100 * (result.utilisation or 0.0)
    published = exercise.utilisation or 0.0
    return Row(
        name,
        ours,
        number(published, TUTORIAL),
        "%",
        within=published * exercise.tolerance,
        absolute=True,
    )


def _sizes(case: AstraCase, result: Result, exercise: Exercise) -> list[Row]:
    """What an NPU sends, and how long that takes over all bandwidth."""
    name = f"tutorial {exercise.name}"
    rows = []
    if exercise.message_mib is not None:
        ours = float(columns(case, result=result.to_dict())["TotalMessageSize(MB)"])
        stated = number(exercise.message_mib, TUTORIAL)
        rows.append(Row(f"{name}, sent by an NPU", ours, stated, "MiB", within=1e-6))
    if exercise.ideal_us is not None:
        stated = number(exercise.ideal_us, TUTORIAL)
        label = f"{name}, ideal time"
        told = "all bytes over all bandwidth"
        ours = result.ideal_time_us
        rows.append(Row(label, ours, stated, "us", within=1e-6, digits=3, how=told))
    return rows


def _every_npu() -> Row:
    """3-1 with `boost-mode: 0`, which simulates every NPU and not one for all."""
    why = (
        "missing: in which order the NPUs' events come there, by which each chooses its next "
        "chunk; here NPUs that are alike choose alike, as with `boost-mode: 1`"
    )
    stated = number(13909.354, f"{TUTORIAL}, run with `boost-mode: 0`")
    return Row("tutorial 3-1, themis + SCF, every NPU simulated", None, stated, "us", why=why)


def _shared(case: AstraCase) -> Row:
    """The same scenario with links that messages share: not below what a link can carry."""
    tree = json.loads(json.dumps(case.scenario))
    for dimension in tree["fabric"]["dimensions"]:
        dimension["contention"] = "shared"
    result = api.simulate(tree)
    return Row(
        "tutorial 3-2, dims with shared links",
        result.time_us,
        None,
        "us",
        digits=3,
        how=f"a link of one NPU needs {LINK_BOUND_US:.0f} us",
    )


def _expected(reference: Path | None) -> list[Mapping[str, Any]]:
    """The cases at hand, each with its folder."""
    named = os.environ.get(REFERENCE)
    if reference is None and not named:
        return []
    folder = reference or Path(str(named)) / "astra-sim"
    file = folder / "expected.json"
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        cases = [{**case, "folder": folder} for case in tree["cases"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"its cases cannot be read: {why}",
            source=str(file),
            hint="name the folder that has `expected.json`, or by "
            f"{REFERENCE} the one that has it in `astra-sim`",
        ) from None
    return [case for case in cases if case.get("needs") in (None, "training")]


PARTS = (
    ("compute_us", "ComputeTime(us)", "computing", "us"),
    ("exposed_us", "ExposedCommunicationTime(us)", "exposed communication", "us"),
    ("total_message_MB", "TotalMessageSize(MB)", "sent by an NPU", "MiB"),
)
"""What ASTRA-sim prints beside a case's time: key of `expected.json`, its column, ours, unit."""
PRINTED = "ASTRA-sim, file `expected.json`"


def _case(expected: Mapping[str, Any]) -> list[Row]:
    options = _options(expected["args"])
    case = _read(
        expected["folder"],
        expected["network"],
        expected["system"],
        options.pop("network_model", "dims"),
        workload=expected["workload"],
        **({"comm_scale": 1.0} | options),
    )
    name, within = str(expected["name"]), float(expected["tolerance"])
    if case.passes:
        result = api.simulate(case.scenario).to_dict()
        total: float = sum(result["steps_us"])
    else:
        result = api.simulate(case.scenario).to_dict()
        total = result["time_us"]
    stated = number(float(expected["time_us"]), PRINTED)
    rows = [Row(name, total, stated, "us", within=within, digits=3)]
    told = columns(case, result=result)
    for key, column, what, unit in PARTS:
        if key in expected:
            stated = number(float(expected[key]), PRINTED)
            ours = float(told[column])
            rows.append(Row(f"{name}, {what}", ours, stated, unit, within=within, digits=3))
    return rows


def _options(args: list[str]) -> dict[str, Any]:
    """ASTRA-sim's options as `read_case` takes them."""
    types: dict[str, Any] = {"num_passes": int, "network_model": str}
    # The folder has the option's former name.
    args = ["--network-model" if one == "--world" else one for one in args]
    pairs = zip(args[::2], args[1::2], strict=True)
    return {
        name: types.get(name, float)(value)
        for name, value in ((key.lstrip("-").replace("-", "_"), value) for key, value in pairs)
    }
