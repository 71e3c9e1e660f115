"""`MICRO`: the weight-gradient collective of the first layer, once a pass.

Every pass starts at time zero, and nothing is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from allrail.scenario.astra_sim.layers import KINDS, PHASES
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source
from allrail.scenario.astra_sim.workload import AstraWorkload


@dataclass(frozen=True, slots=True)
class AstraCollective:
    """What `MICRO` runs.

    Attributes:
        layer: The name of the first layer.
        kind: Its weight-gradient collective, in our words.
        size: Bytes, as ASTRA-sim counts them: what each NPU puts in.
        update_time: How long the update after the collective takes, ns.
        size_line: The line that the size stands in.
        source: For errors about it.
    """

    layer: str
    kind: str
    size: int
    update_time: int
    size_line: int
    source: Source


def micro(work: AstraWorkload, *, notes: Notes) -> AstraCollective:
    """The collective of a `MICRO` file.

    Args:
        work: The file.
        notes: Takes the collectives that `MICRO` does not run.

    Raises:
        InputError: The first layer has no collective, or an empty one.
    """
    first = work.layers[0]
    if len(work.layers) > 1:
        notes.add("layers after the first", "`MICRO` does not run them, in ASTRA-sim neither")
    for phase, name in zip(first.phases[:2], PHASES, strict=False):
        if phase.kind is not None:
            notes.add(f"{name} collective", "`MICRO` does not run it, in ASTRA-sim neither")
    gradient = first.weight_gradient
    if gradient.kind is None:
        raise work.source.error(
            "the first layer has no collective to run",
            at="weight-gradient collective",
            line=first.line,
            value="NONE",
            hint=f"write one of {', '.join(f'`{kind}`' for kind in KINDS)}",
        )
    if gradient.size == 0:
        raise work.source.error(
            "it is less than it can be",
            at="weight-gradient bytes",
            line=first.line,
            value=0,
            hint="write a whole number of bytes, 1 at least",
        )
    return AstraCollective(
        first.name, gradient.kind, gradient.size, first.update_ns, first.line, work.source
    )
