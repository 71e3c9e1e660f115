"""Methods that a scheduled model has in the place of its own, or beside them."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn

from allrail.torch import private
from allrail.torch.gradients import Exchange
from allrail.torch.parameter import Slot, gradient_of, set_gradient


class HasNoSync(Protocol):
    """A `Scheduled`."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Within it, backward passes exchange nothing."""


class ZeroGrad:
    """`zero_grad` of a scheduled module: clears gradients without waiting for them."""

    def __init__(
        self, slots: dict[torch.Tensor, Slot], exchange: Exchange, model: nn.Module
    ) -> None:
        self._slots = slots
        self._exchange = exchange
        self._model = weakref.ref(model)

    def __call__(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's signature
        """See `torch.nn.Module.zero_grad`."""
        model = self._model()
        if model is None:
            return
        self._exchange.close()
        clear(model.parameters(), self._slots, set_to_none=set_to_none)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _own_zero_grad(memo[id(self._model())])

    def __reduce__(self) -> Any:
        return _own_zero_grad, (self._model(),)


class NoSync:
    """`no_sync` of a scheduled model, as that of DDP: accelerate and Trainer look for it."""

    def __init__(self, scheduled: HasNoSync) -> None:
        self._scheduled = weakref.ref(scheduled)

    def __call__(self) -> AbstractContextManager[None]:
        """See `allrail.torch.no_sync`."""
        scheduled = self._scheduled()
        return contextlib.nullcontext() if scheduled is None else scheduled.no_sync()

    def __deepcopy__(self, memo: dict[int, Any]) -> type[AbstractContextManager[None]]:
        del memo
        return contextlib.nullcontext

    def __reduce__(self) -> Any:
        return _no_sync_of_copy, ()


def _no_sync_of_copy() -> type[AbstractContextManager[None]]:
    return contextlib.nullcontext


def _own_zero_grad(model: nn.Module) -> Any:
    return types.MethodType(type(model).zero_grad, model)


def clear(
    parameters: Iterable[torch.Tensor], slots: dict[torch.Tensor, Slot], *, set_to_none: bool
) -> None:
    """Do what `zero_grad` does to parameters, without waiting for their gradients.

    No round is open.
    """
    with private.DisableTorchFunctionSubclass():  # no values of parameters are used
        for parameter in parameters:
            slot = slots.get(parameter)
            if slot is not None and slot.flight is not None:
                # Whether there is one, to be zero then, may only be known when it is over.
                slot.zeroed = not set_to_none and (slot.keep or slot.zeroed)
                slot.keep = False
            gradient = gradient_of(parameter)
            if gradient is None:
                continue
            if set_to_none:
                set_gradient(parameter, None)
            elif slot is not None and (slot.flight is not None or slot.pending is not None):
                set_gradient(parameter, torch.zeros_like(gradient))
            else:
                gradient.detach_().zero_()
