"""Which of a layer file's collectives its loop runs: the rules of the core, in a table.

`MICRO` runs one, inference the forward half, and others leave out what a layer's neighbours make
needless. What a loop does, and when, is in the core (`crates/formats/src/astra_sim`),
which tells the same of a simulation; a test holds both to each other.
"""

from __future__ import annotations

from allrail.scenario.astra_sim.header import DLRMS, TRANSFORMERS
from allrail.scenario.astra_sim.layers import AstraLayer, AstraPhase
from allrail.scenario.astra_sim.workload import AstraWorkload

Found = list[tuple[AstraLayer, AstraPhase]]

_FORWARD, _INPUT, _WEIGHT = range(3)


def split_by_loop(work: AstraWorkload) -> tuple[Found, Found]:
    """Return the collectives that the loop runs, and those that it leaves out.

    Args:
        work: The file.
    """
    runs: Found = []
    leaves: Found = []
    for place, layer in enumerate(work.layers):
        for which, phase in enumerate(layer.phases):
            if phase.kind is not None and phase.size:
                (runs if _runs(work, place, which) else leaves).append((layer, phase))
    return runs, leaves


def _runs(work: AstraWorkload, place: int, which: int) -> bool:
    loop = work.header.loop
    if loop == "MICRO":
        return place == 0 and which == _WEIGHT
    if loop == "DATA":
        return which == _WEIGHT
    if loop == "DISTRIBUTED_INFERENCE":
        return which == _FORWARD
    if loop in DLRMS:
        if which == _FORWARD:
            return work.layers[place].forward.kind == "all_to_all"
        bottom = int(work.header.options.get("last_bottom_layer", 0))
        embeds = place == 0 and bottom + 1 < len(work.layers)
        return which == _WEIGHT or embeds
    if which == _INPUT and place == 0:
        return loop in TRANSFORMERS
    return which != _WEIGHT or loop != "MODEL"
