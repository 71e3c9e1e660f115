"""The order of gradients that a scenario's tensor scheduler gives before a step runs, for a job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.simulation.plugins import loaded, tensor_function
from allrail.targets.decision import Decision
from allrail.targets.keys import refused


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a job carries out of an order.

    Attributes:
        partition: The size of all partitions, as files have it.
        plugin: The name and text of the file with the scheduler's function, if it is one's own.
    """

    partition: str
    plugin: tuple[str, str] | None


def ranked(decision: Decision, title: str) -> Ranked | None:
    """Return what a job needs to keep to an order; None where no order is known beforehand.

    Args:
        decision: What a scenario has decided.
        title: The tool, in sentences.

    Raises:
        Inapplicable: A job cannot keep to it.
    """
    policy = str(decision.tensor["policy"])
    rankings = json.loads(_core.tensor_ranking(json.dumps(decision.tree)))
    if not rankings:
        return None
    if any(one["chooses"] for one in rankings):
        why = "it chooses as it goes, and ranks of a job need one order"
        raise refused(title, "tensor.policy", policy, why=why, hint=_HINT)
    sizes = {task["partition"] for one in rankings for task in one["tasks"]}
    if len(sizes) > 1 or None in sizes:
        why = "a job cuts all gradients alike, and it does not"
        raise refused(title, "tensor.policy", policy, why=why, hint=_HINT)
    partition = _core.format_quantity("size", sizes.pop())
    function = tensor_function(policy)
    if function is None:
        if any(not _forward(one["tasks"]) for one in rankings):
            why = "its order follows branches of the graph, and a job knows a chain of layers"
            raise refused(title, "tensor.policy", policy, why=why, hint=_HINT)
        return Ranked(partition, None)
    if function.source not in loaded():
        why = "its function is in no file of its own"
        hint = "put it into a file, and name that by `--plugin FILE`"
        raise refused(title, "tensor.policy", policy, why=why, hint=hint)
    return Ranked(partition, (Path(function.source).name, loaded()[function.source]))


_HINT = "write `schedule.tensor.policy: bytescheduler`"


def _forward(tasks: list[dict[str, Any]]) -> bool:
    """Whether an order is that of the forward pass."""
    places = [task["place"] for task in tasks]
    return places == sorted(places)
