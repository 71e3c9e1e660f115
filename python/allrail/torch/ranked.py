"""Gradients in the order of a tensor scheduler of one's own, which the job file names.

The function is asked once, when the first backward pass has shown the parameters and their turns in
the forward pass. Its order takes the place of these turns: what is first in it goes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from allrail.simulation.plugins import CommTask
from allrail.simulation.plugins.tensors import TensorFunction
from allrail.torch.parameter import Slot


class PlacesBy:
    """Ranks the parameters of a model.

    Args:
        ranking: The scheduler.
        partition: Into which gradients are cut, in bytes.
    """

    def __init__(self, ranking: TensorFunction, partition: int) -> None:
        self._ranking = ranking
        self._partition = partition

    def __call__(self, slots: Sequence[Slot], places: Sequence[int]) -> list[int]:
        """Return each parameter's place in the order; all ranks get the same.

        Args:
            slots: The parameters.
            places: Of each, its turn in the forward pass.

        Raises:
            InputError: The function returned no order, or failed.
        """
        tasks = [
            CommTask(
                *(slot.name, slot.parameter.numel() * slot.parameter.element_size(), place),
                partition=self._partition,
            )
            for slot, place in zip(slots, places, strict=True)
        ]
        order = self._ranking.order_of(tasks, partition=self._partition)
        ranked = [0] * len(tasks)
        for place, index in enumerate(order):
            ranked[index] = place
        return ranked
