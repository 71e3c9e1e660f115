"""Workload files (1.0 `.txt`): a training loop and a list of layers.

The first line names the loop (`header`), the second the number of layers, then each layer has a row
(`layers`). What the loops do is in the core (`crates/formats/src/astra_sim`); `MICRO`, a
collective on its own, is in `micro`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail.scenario.astra_sim.header import AstraHeader, read_header
from allrail.scenario.astra_sim.layers import AstraLayer, read_layer
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source, read_lines
from allrail.scenario.places import Place


@dataclass(frozen=True, slots=True)
class AstraWorkload:
    """A workload file.

    Attributes:
        header: Its loop and options.
        layers: First to last of the forward pass.
        source: For errors about it.
    """

    header: AstraHeader
    layers: tuple[AstraLayer, ...]
    source: Source

    def to_json(self, *, comm_scale: float = 1.0, compute_scale: float = 1.0) -> dict[str, Any]:
        """The file as the core takes it: `workload.model.astra_sim`.

        Args:
            comm_scale: Multiplies bytes.
            compute_scale: Multiplies compute times.
        """
        scales = {"comm_scale": comm_scale, "compute_scale": compute_scale}
        return {
            "loop": self.header.loop,
            "options": self.header.options | {k: v for k, v in scales.items() if v != 1.0},
            "layers": [layer.to_json() for layer in self.layers],
        }


def read_workload(path: str | Path, *, notes: Notes | None = None) -> AstraWorkload:
    """Read a workload file.

    Args:
        path: The file.
        notes: Takes what it says and is not modelled, where that is asked for.

    Raises:
        InputError: Anything in it is wrong.
    """
    if Path(path).suffix == ".et":
        raise Source(str(path)).error(
            "it is a Chakra trace, not a layer file",
            hint="give a trace without its `.<rank>.et`, or a 1.0 workload `.txt`",
        )
    lines, source = read_lines(path)
    notes = Notes() if notes is None else notes
    header = read_header(*lines[0], source=source, notes=notes)
    if len(lines) < 2:
        raise source.error(
            "it ends before the number of layers", hint="the second line says how many follow"
        )
    count_line, count_text = lines[1]
    source.places.known[("layers",)] = Place(source.file, count_line)
    count = source.count(count_text, at="layers", at_most=1_000_000)
    rows = lines[2:]
    if len(rows) != count:
        raise source.error(
            f"{len(rows)} lines follow, one a layer",
            at="layers",
            value=count,
            hint=f"write {len(rows)}, or check whether the file is truncated",
        )
    layers = tuple(
        read_layer(line, row, loop=header.loop, source=source, notes=notes) for line, row in rows
    )
    _check_options(header, len(layers), source)
    return AstraWorkload(header, layers, source)


def _check_options(header: AstraHeader, count: int, source: Source) -> None:
    """Layers that the options name exist, and each recomputation has a checkpoint to start from."""
    checkpoints = header.options.get("checkpoints", [])
    initiates = header.options.get("checkpoint_initiates", [])
    bottom = header.options.get("last_bottom_layer", 0)
    for name, layers in (
        ("checkpoints", checkpoints),
        ("checkpoint_initiates", initiates),
        ("last bottom layer", [bottom]),
    ):
        for layer in layers:
            if layer >= count:
                raise source.error(
                    f"there is no such layer: there are {count}",
                    at=name,
                    value=layer,
                    hint=f"layers count from 0 to {count - 1}",
                )
    for layer in initiates:
        if layer in checkpoints or not any(kept < layer for kept in checkpoints):
            raise source.error(
                "it is a checkpoint itself: nothing is to be computed again"
                if layer in checkpoints
                else "no checkpoint is below it",
                at="checkpoint_initiates",
                value=layer,
                hint="keep a checkpoint below each layer that initiates, such as layer 0",
            )
