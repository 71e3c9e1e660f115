"""Steps that can be taken back: each parameter is kept as it was until all have made the step.

Parameters are stepped one by one, as late as the next forward pass needs them. So when a rank is
lost between two steps, some parameters have made the last step and others never will. With
`schedule(..., undo=True)` those that have made it go back, and what the model and its optimizer
then hold is what they held after the step before: a script that catches the error can save it.

Kept is a copy of each parameter and of its optimizer's state, for less than one step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from allrail.torch.parameter import Slot


@dataclass
class _Before:
    """What a parameter and its state were."""

    parameter: torch.Tensor
    state: dict[str, Any] | None


class Undo:
    """Copies of what one optimizer's last step has changed.

    Args:
        optimizer: The optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._before: dict[Slot, _Before] = {}

    def keep(self, slots: Iterable[Slot]) -> None:
        """These are about to make their step."""
        for slot in slots:
            state = self._optimizer.state.get(slot.parameter)
            copied = None if state is None else {name: _copy(one) for name, one in state.items()}
            self._before[slot] = _Before(_copy(slot.parameter.detach()), copied)

    def forget(self) -> None:
        """All have made it."""
        self._before.clear()

    def take_back(self) -> None:
        """Those that have made the last step are what they were before it."""
        for slot, before in self._before.items():
            with torch.no_grad():
                slot.parameter.copy_(before.parameter)
            if before.state is None:
                self._optimizer.state.pop(slot.parameter, None)
            else:
                self._optimizer.state[slot.parameter] = before.state
        self._before.clear()


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone(memory_format=torch.preserve_format)
    return value
