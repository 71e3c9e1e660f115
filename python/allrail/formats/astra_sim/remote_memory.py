"""ASTRA-sim 2.x's file of remote memory, which every case of it names: mostly, there is none."""

from __future__ import annotations

from pathlib import Path

from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import read_tree

_NONE = "NO_MEMORY_EXPANSION"


def read_remote_memory(path: str | Path, *, notes: Notes) -> None:
    """Read the file, of which only that there is no such memory is modelled.

    Args:
        path: The file.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: It is no such file.
    """
    tree, source = read_tree(path)
    kind = tree.get("memory-type")
    if kind is None:
        raise source.error(
            "the key `memory-type` is missing", hint=f"where there is none: `{_NONE}`"
        )
    if kind != _NONE:
        notes.add(str(kind), "remote memory: loads and stores take their bytes over the NPU's own")
