"""A network file of either version, told apart by its keys."""

from __future__ import annotations

from pathlib import Path

from allrail.formats.astra_sim.network import AstraNetwork
from allrail.formats.astra_sim.network_v1 import read_network_v1
from allrail.formats.astra_sim.network_v2 import read_network_v2
from allrail.formats.astra_sim.notes import Notes
from allrail.formats.astra_sim.source import read_tree


def read_network(path: str | Path, *, notes: Notes) -> AstraNetwork:
    """Read a 1.0 network (`.json`) or a 2.x network (`.yml`).

    Args:
        path: The file.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: Anything in it is wrong.
    """
    tree, source = read_tree(path)
    if "npus_count" in tree or ("topology" in tree and "topologies-per-dim" not in tree):
        return read_network_v2(tree, source=source, notes=notes)
    return read_network_v1(tree, source=source, notes=notes)
