"""Buffers of a model, such as the statistics of batch normalisation: those of rank 0 on all."""

from __future__ import annotations

import torch
from torch import nn

from allrail.base.errors import TrainingError
from allrail.torch import private
from allrail.torch.packs import broadcast
from allrail.torch.transport import Transport


class Buffers:
    """The buffers of the modules that have some when the model is scheduled.

    Args:
        model: The model.
        transport: What carries them.
        pack: As `size` of `packs.broadcast`.
        shared: Whether they become those of rank 0 at all.

    Attributes:
        due: Whether they may differ from those of rank 0.
    """

    def __init__(self, model: nn.Module, transport: Transport, pack: int, *, shared: bool) -> None:
        self.due = True
        self._with_some = [module for module in model.modules() if private.buffers_of(module)]
        self._transport = transport
        self._pack = pack
        self._shared = shared

    def share(self) -> None:
        """Give all ranks rank 0's, if they are due."""
        if self._shared and self.due:
            self.give(self._now())

    def share_for_evaluation(self) -> None:
        """Give all ranks rank 0's in the first pass after one in training, as DDP does.

        Rank 0 waits for nobody, and may evaluate alone: the others receive them in their next pass.
        """
        # Where all others have ended, there is nobody to give them to.
        alone = self._transport.rank == 0
        try:
            self.share()
        except TrainingError:
            if not alone:
                raise
        finally:
            self.due = False

    def give(self, tensors: list[torch.Tensor]) -> None:
        """Give all ranks tensors of rank 0.

        Args:
            tensors: What is overwritten.
        """
        if tensors:
            with torch.no_grad():
                broadcast(self._transport, tensors, self._pack)

    def _now(self) -> list[torch.Tensor]:
        buffers = (private.buffers_of(module) for module in self._with_some)
        found = (each for some in buffers for each in some.values())
        return list({id(each): each for each in found if each is not None}.values())
