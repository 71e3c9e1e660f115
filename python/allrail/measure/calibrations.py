"""Fabrics and devices from measurements: `allrail.calibrate.network`, `live` and `device`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from allrail import _core
from allrail.base import late
from allrail.base.arguments import FILES, Names, PathLike, check, checked, several
from allrail.base.errors import AllrailWarning, InputError, did_you_mean
from allrail.base.files import write_text, write_yaml
from allrail.base.installed import install
from allrail.base.progress import Progress
from allrail.measure.calibrate.device.fit import Fitted, Row, fit
from allrail.measure.calibrate.device.run import run
from allrail.measure.calibrate.network import Calibrated, calibrate
from allrail.measure.calibrate.pairs import Pair, unlike
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import chosen
from allrail.results.answer import renderers
from allrail.results.table import Table
from allrail.runtime.environment import place_of
from allrail.scenario.fields import parse_quantity

if TYPE_CHECKING:
    from allrail.measure.calibrate.live import Measured

_TABLES = 16
COLLECTIVES = ("all_reduce", "all_gather")


@dataclass(frozen=True, slots=True)
class Calibration(Table):
    """A fabric of what was measured: a row a size, measured, fitted and simulated.

    Attributes:
        made: The fabric, and how far it is from what was measured.
        pairs: Of a job that measured itself, every two ranks.
        told: Of such a job, which ranks and pairs are slower than others; None otherwise.
    """

    kind: ClassVar[str] = "calibration"
    PLOTTED: ClassVar[tuple[str, str]] = ("bytes", "measured_us")
    made: Calibrated
    pairs: tuple[Pair, ...] = ()
    told: tuple[str, ...] | None = None

    @property
    def fabric(self) -> dict[str, Any]:
        """The fabric, as a file has it."""
        return self.made.fabric

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a size and table: times in µs."""
        rows: list[dict[str, Any]] = self.to_dict()["rows"]
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        tree = _tree(self.made)
        if self.told is None:
            return tree
        pairs = [asdict(pair) for pair in self.pairs]
        return {**tree, "pairs": pairs, "unlike": list(self.told)}


@dataclass(frozen=True, slots=True)
class DeviceCalibration(Table):
    """A device's file of what was measured: a row a point, beside what the file predicts.

    Attributes:
        fitted: The file and its rows.
        warnings: What to be careful about.
        notes: What was not measured.
    """

    kind: ClassVar[str] = "device"
    PLOTTED: ClassVar[tuple[str, str]] = ("of", "measured_us")
    fitted: Fitted
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def device(self) -> dict[str, Any]:
        """The device, as `workload.compute.device` takes it."""
        return self.fitted.file

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a point: times in µs."""
        return [row_tree(row) for row in self.fitted.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        return {
            "device": self.fitted.file,
            "rows": self.rows,
            "notes": [*self.notes, *self.fitted.notes],
            "warnings": list(self.warnings),
        }


@checked
def network(
    files: PathLike | Sequence[PathLike],
    *,
    out: PathLike | None = None,
    collective: str | None = None,
    ranks: int | None = None,
    table: int | None = None,
    type: str | None = None,  # noqa: A002, as it is typed
    algorithm: Names = (),
    nic: str | None = None,
    report: PathLike | None = None,
) -> Calibration:
    """Make a fabric of tables that nccl-tests, MPI's or PyTorch's benchmarks print.

    Args:
        files: Tables: one gives one dimension over its ranks; several, on one machine, on several,
            or over one rank of each, give the dimension within the machine and the one around it.
        out: Fabric file to write.
        collective: Collective, where a file has several: `all_reduce`, ...
        ranks: Number of ranks: selects a table, or states it where a table (OSU's) does not.
        table: Number of the table in a file, from 1.
        type: Element type, where a file has several: `float`, ...
        algorithm: Algorithm of each file, in order: `ring`, `double_binary_tree`, ...
        nic: Rate of one rank's network interfaces, such as `400 Gb/s`.
        report: Folder for result, table and report.

    Returns:
        `fabric`, and a row a size: bytes, and µs measured, fitted, and simulated with the fabric.

    Raises:
        InputError: A table cannot be read, does not fit the others, or is faster than `nic`.

    Example:
        `allrail.calibrate.network("all_reduce.txt", out="measured.yaml").fabric`
    """
    named = [files] if isinstance(files, (str, os.PathLike)) else files
    check("files", named, kind=FILES)
    for name, count, least in (("ranks", ranks, 2), ("table", table, 1)):
        if count is not None and count < least:
            raise InputError(f"it is below {least}", field=name, value=str(count))
    paths = [Path(file) for file in named]
    algorithms = several(algorithm)
    asked: dict[str, Any] = {"collective": collective, "ranks": ranks}
    asked |= {"number": table, "dtype": type}
    if algorithms:
        each = (chosen(read_tables(file), source=str(file), **asked) for file in paths)
        made = calibrate([one for tables in each for one in tables], algorithms=algorithms)
    else:
        every = [one for file in paths for one in read_tables(file)]
        tables = chosen(every, source=str(paths[0]), most=_TABLES, **asked)
        made = calibrate(tables, nic=_rate(nic))
    if out is not None:
        write_yaml(Path(out), made.fabric)
    calibration = Calibration(made)
    if report is not None:
        renderers().write(calibration, Path(report))
    return calibration


@checked
def live(
    *,
    out: PathLike | None = None,
    collective: str = "all_reduce",
    sizes: str = "4 KiB:64 MiB",
    progress: Progress | None = None,
) -> Calibration | None:
    """Make a fabric of what the processes of a job measure of themselves; needs PyTorch.

    Every process of the job calls it. Measured are a collective over the ranks of each machine and
    over all, and messages between every two ranks.

    Args:
        out: Fabric file that rank 0 writes.
        collective: `all_reduce` or `all_gather`.
        sizes: From one to another, each twice the one before, such as `4 KiB:64 MiB`.
        progress: Called on rank 0 with what is done and the total.

    Returns:
        On rank 0 the fabric, a row a size (µs), and `told`, which ranks and pairs are slow; None on
        the others.

    Raises:
        InputError: There is no PyTorch, or one rank alone.

    Example:
        `allrail.calibrate.live(out="measured.yaml")`
    """
    if collective not in COLLECTIVES:
        raise InputError(
            "it is not measured",
            field="collective",
            value=collective,
            hint=did_you_mean(collective, COLLECTIVES),
        )
    ladder = _ladder(sizes)
    measured, rank = _measured(ladder, collective, progress)
    if rank:
        return None
    made = calibrate(measured.tables)
    if out is not None:
        write_yaml(Path(out), made.fabric)
    told = unlike(measured.pairs, measured.inside)
    return Calibration(made, tuple(measured.pairs), tuple(told))


@checked
def device(
    *,
    out: PathLike | None = None,
    device: str | None = None,
    seconds: float = 60.0,
    progress: Progress | None = None,
) -> DeviceCalibration:
    """Make a device's file of what PyTorch measures on the device at hand.

    Args:
        out: Device file to write, JSON.
        device: As PyTorch names it: `cuda:1`, `cpu`; the first GPU, else the CPU, if None.
        seconds: Time budget, 1 to 3600 s.
        progress: Called with what is done and the total.

    Returns:
        `device`, for `workload.compute.device`, and a row a point: µs measured and predicted.

    Raises:
        InputError: There is no PyTorch, no such device, or no file can be made of its times.

    Warns:
        AllrailWarning: Times scatter.

    Example:
        `allrail.calibrate.device(seconds=20, out="mine.json").device`
    """
    if out is not None and Path(out).suffix != ".json":
        raise InputError(
            "a device's file is JSON", source="--out", value=str(out), hint="such as `mine.json`"
        )
    if not 1 <= seconds <= 3600:
        raise InputError("it is not from 1 to 3600 s", field="seconds", value=str(seconds))
    fitted, told, notes = _of_device(device, seconds, progress)
    if out is not None:
        write_text(Path(out), json.dumps(fitted.file, indent=2, ensure_ascii=False) + "\n")
    for line in told:
        warnings.warn(line, AllrailWarning, stacklevel=3)
    return DeviceCalibration(fitted, tuple(told), tuple(notes))


def _ladder(text: str) -> list[int]:
    """Sizes from one to another."""
    hint = "for example `4 KiB:64 MiB`"
    ends = text.split(":")
    if len(ends) != 2:
        raise InputError("it is no range", source="--sizes", value=text, hint=hint)
    try:
        low, high = (parse_quantity("size", end.strip()) for end in ends)
    except _core.InputError:
        raise InputError(
            "it is no range of sizes", source="--sizes", value=text, hint=hint
        ) from None
    if not 4 <= low <= high <= 16 << 30:
        raise InputError(
            "it is not from 4 B on, upwards, and to 16 GiB", source="--sizes", value=text, hint=hint
        )
    return [low << power for power in range(high.bit_length()) if low << power <= high]


def _measured(sizes: list[int], collective: str, progress: Progress | None) -> tuple[Measured, int]:
    place = place_of()
    try:
        job = late.found("live calibration")
    except ImportError:
        raise InputError(
            "torch is not installed", hint=install("torch"), source="calibrate live"
        ) from None
    if place.ranks < 2:
        raise InputError(
            "there is one rank, and nobody to measure with",
            source="calibrate live",
            hint="`torchrun --nproc-per-node 4 --no-python allrail calibrate live`",
        )
    job.begin(place.local_rank)
    found = job.measure(
        sizes,
        collective=collective,
        inside=job.ranks_inside(),
        progress=progress if place.rank == 0 else None,
    )
    job.end()
    return found, place.rank


def _rate(text: str | None) -> float | None:
    """Bytes a second."""
    if text is None:
        return None
    try:
        return float(parse_quantity("bandwidth", text))
    except _core.InputError:
        raise InputError(
            "it is no rate", source="--nic", value=text, hint="for example `400 Gb/s`"
        ) from None


def _tree(made: Calibrated) -> dict[str, object]:
    return {
        "fabric": made.fabric,
        "collective": made.table.collective,
        "ranks": made.table.ranks,
        "error": made.error,
        "error_of_larger_half": made.large,
        "ran": made.ran,
        "every_second": made.every_second,
        "upper_half": made.upper_half,
        "switches": list(made.fit.switches),
        "left_out": list(made.fit.left_out),
        "unknown": list(made.unknown),
        "notes": list(made.table.notes),
        "rows": [
            {
                "ranks": each.table.ranks,
                "bytes": row.bytes,
                "measured_us": row.time_us,
                "fitted_us": each.fit.time_us(row.bytes),
                "simulated_us": each.simulated_us[row.bytes],
            }
            for each in made.judged
            for row in each.table.rows
        ],
    }


def _of_device(
    which: str | None, seconds: float, progress: Progress | None
) -> tuple[Fitted, tuple[str, ...], tuple[str, ...]]:
    try:
        import torch

    except ImportError:
        raise InputError(
            "torch is not installed", hint=install("torch"), source="calibrate device"
        ) from None
    there = torch.cuda.is_available()
    try:
        chosen = torch.device(which or ("cuda" if there else "cpu"))
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cuda", "cpu"):
        raise InputError(
            "it is no device that is measured",
            source="--device",
            value=which,
            hint="`cuda:0`, `cpu`",
        )
    if chosen.type == "cuda" and (chosen.index or 0) >= (torch.cuda.device_count() if there else 0):
        raise InputError(
            "PyTorch finds no such GPU here",
            source="--device",
            value=str(which),
            hint="`cpu` measures the processor",
        )
    found = run(late.call("bench of a device", chosen), seconds=seconds, progress=progress)
    return fit(found), found.warnings, found.notes


def row_tree(row: Row) -> dict[str, object]:
    """Return a point as a row of `--json`.

    Args:
        row: The point beside its prediction.
    """
    point = row.measured.point
    return {
        "what": type(point).__name__.lower(),
        "kind": kind_of_row(row),
        "of": str(point),
        "measured_us": 1e6 * row.measured.seconds,
        "predicted_us": 1e6 * row.predicted,
        "spread": row.measured.spread,
        "times": row.measured.count,
    }


def kind_of_row(row: Row) -> str:
    """Return the kind of work of a point: where its bytes are, or its format.

    Args:
        row: The point beside its prediction.
    """
    point = row.measured.point
    if type(point).__name__ == "Stream":
        return "in_a_cache" if row.cached else "memory"
    return str(getattr(point, "format", None) or getattr(point, "kind", None) or "-")
