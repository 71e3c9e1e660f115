"""A network file of either version, told apart by its keys."""

from __future__ import annotations

from pathlib import Path

from allrail.base.stdin import STDIN, suffix
from allrail.formats.astra_sim.network import AstraNetwork
from allrail.formats.astra_sim.network_v1 import read_network_v1
from allrail.formats.astra_sim.network_v2 import read_network_v2
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source, read_tree


def read_network(path: str | Path, *, notes: Notes) -> AstraNetwork:
    """Read a 1.0 network (`.json`) or a 2.x network (`.yml`).

    Args:
        path: The file.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: Anything in it is wrong.
    """
    analytical = "give a network of the analytical backend: `.yml`, or `.json` of 1.0"
    if Path(path).suffix == ".txt":
        raise Source(str(path)).error("networks of ns-3 are not read", hint=analytical)
    tree, source = read_tree(path)
    if "logical-dims" in tree:
        raise source.error(
            "it is ns-3's logical topology, which says no bandwidths",
            at="logical-dims",
            hint=analytical,
        )
    first = "topologies-per-dim" in tree
    piped = Path(path) == STDIN and suffix(STDIN) != ".json"
    yaml = piped or Path(path).suffix in {".yml", ".yaml"}
    if "npus_count" in tree or (not first and ("topology" in tree or yaml)):
        return read_network_v2(tree, source=source, notes=notes)
    return read_network_v1(tree, source=source, notes=notes)
