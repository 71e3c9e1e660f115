"""What an import did, and the scenario that runs what was imported."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail.base.stdin import is_spooled
from allrail.results.answer import Answer


@dataclass(frozen=True, slots=True)
class Imported(Answer):
    """What an import did.

    Attributes:
        source: The format that was read.
        npus: How many NPUs the job has; None if its file does not say.
        kept: Nodes by kind.
        measured: Communication of which only the measured time was kept, by why.
        measured_us: Microseconds that the trace measured, by what was kept and what is only
            measured: together the trace's. Empty where a trace measures nothing.
        dropped: What was left out, by why.
        notes: What was taken otherwise than written, or assumed.
        warnings: What makes the result less than it seems.
        files: How many files were written.
        nodes: Nodes in them.
        bytes: Bytes in them.
        scenario: The scenario file that points to them.
    """

    source: str
    npus: int | None
    kept: dict[str, int]
    measured: dict[str, int]
    measured_us: dict[str, float]
    dropped: dict[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    files: int
    nodes: int
    bytes: int
    scenario: Path

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        tree = {name: getattr(self, name) for name in self.__slots__}
        lists = {"notes": list(self.notes), "warnings": list(self.warnings)}
        return tree | lists | {"scenario": str(self.scenario)}


def named_in(folder: Path, file: Path, *, name: str) -> str:
    """Return by which path a scenario in a folder names a file; of stdin a copy is made there.

    Args:
        folder: Where the scenario is written.
        file: What it names.
        name: What was imported is called.
    """
    if not is_spooled(file):
        return str(file.resolve())
    copy = folder / f"{name}{file.suffix}"
    shutil.copyfile(file, copy)
    return copy.name


def write_scenario(
    path: Path, *, npus: int | None, model: str, workload: dict[str, Any] | None = None
) -> None:
    """Write a scenario that runs what was imported, on a network to be replaced.

    Args:
        path: The scenario's file.
        npus: How many NPUs the job has; None if nothing says it.
        model: What `workload.model` has, as YAML.
        workload: All of `workload` instead.
    """
    about = "Imported; the network is an example, to be replaced by yours."
    size = npus or 64
    if npus == 1:
        # A network joins two NPUs at least.
        size, model = 2, f"trace: {{path: {model.removeprefix('trace: ')}, scale: {{}}}}"
        about += " One NPU has none: it is on both."
    text = f"""\
# {about}
schema_version: 1
fabric:
  name: one-switch
  dimensions:
    - {{kind: switch, size: {size}, bandwidth: 400 Gb/s, latency: 1 us}}
workload: {json.dumps(workload) if workload else f"{{model: {{{model}}}}}"}
schedule: {{policy: baseline, chunks: 16}}
"""
    path.write_text(text, encoding="utf-8", newline="\n")
