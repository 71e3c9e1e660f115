"""One parameter on its way from a gradient to its next value.

A gradient that was handed to the transport is in *flight*. An optimizer's step that was asked for
while the gradient was still in flight is *pending*: the hyperparameters of that moment are kept,
and the step is made when the flight is over, at the latest when a forward pass needs the
parameter.

`Watched` is the class that a scheduled parameter takes on: reading its `grad` waits for the
flight. Clipping, unscaling and scripts that look at gradients so see what they would see without
allrail.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch
from torch import nn

if TYPE_CHECKING:
    from allrail.torch.optimizer import Stepper
    from allrail.torch.sparse import SparseFlight
    from allrail.torch.transport import Transport

_GRAD = torch.Tensor.grad
SLOT = "_allrail_slot"
"""What a scheduled parameter's dictionary calls its slot."""


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return `parameter.grad` as it is, without waiting."""
    return _GRAD.__get__(parameter)


def set_gradient(parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Set `parameter.grad`, without further effects."""
    _GRAD.__set__(parameter, gradient)


@dataclass
class Users:
    """Which parameters some rank had a gradient for in a round: a number above 0 where one had."""

    transport: Transport
    key: int
    counts: torch.Tensor
    generation: int
    _over: bool = False

    def any(self, index: int) -> bool:
        """Whether a rank used the parameter of this index; waits for the answer."""
        if not self._over:
            self.transport.wait(self.key, self.generation)
            self._over = True
        return bool(self.counts[index] > 0)


@dataclass
class Flight:
    """The exchange of one gradient.

    Attributes:
        buffer: The tensor that is summed in place.
        target: Where the mean belongs if this rank's backward pass did not use the parameter: its
            gradient at that time, or None if it had none. Else `buffer` itself.
        users: Tells whether any rank used it; None where this rank did.
        keep: Whether the parameter's `grad` still stands for this gradient.
        zeroed: Whether `grad` was set to zero since, if there is one at all.
    """

    slot: Slot
    transport: Transport
    generation: int
    buffer: torch.Tensor
    target: torch.Tensor | None
    users: Users | None = None
    keep: bool = True
    zeroed: bool = False
    over: bool = False

    def is_done(self) -> bool:
        """Whether `finish` would return at once, as far as that is known."""
        return self.over or self.transport.is_done(self.slot.key, self.generation)

    def finish(self) -> torch.Tensor | None:
        """Wait for the exchange; return the mean gradient, None if no rank has one."""
        if self.over:
            return self.target
        self.transport.wait(self.slot.key, self.generation)
        self.over = True
        if self.slot.flight is self:
            self.slot.flight = None
        if self.target is not self.buffer and (
            self.users is None or self.users.any(self.slot.index)
        ):
            self._deliver()
        return self.target

    def _deliver(self) -> None:
        """Put the mean where the gradient is expected."""
        if self.target is not None:
            with torch.no_grad():
                self.target.copy_(self.buffer)
            return
        self.target = self.buffer
        if self.keep:
            set_gradient(self.slot.parameter, self.buffer)
        elif self.zeroed:
            set_gradient(self.slot.parameter, torch.zeros_like(self.buffer))


@dataclass
class Pending:
    """A step that was asked for and is not made yet.

    Attributes:
        stepper: The optimizer that makes it.
        group: The parameter's place among its groups.
        settings: The hyperparameters of all groups when the step was asked for.
        gradient: The gradient to step with, unless `flight` brings it.
        written: The parameter's version then: nobody may write to it meanwhile.
        crossed: Whether the gradient was still in flight.
    """

    stepper: Stepper
    group: int
    settings: list[dict[str, Any]]
    gradient: torch.Tensor | None
    flight: Flight | SparseFlight | None
    written: int
    crossed: bool

    def is_done(self) -> bool:
        """Whether the step can be made without waiting."""
        return self.flight is None or self.flight.is_done()

    def final_gradient(self) -> torch.Tensor | None:
        """Wait for the gradient and return it."""
        return self.gradient if self.flight is None else self.flight.finish()


@dataclass(eq=False)
class Slot:
    """What is known of one trainable parameter.

    Attributes:
        index: Its place among the model's trainable parameters.
        key: What the transport calls it; -1 before it is registered.
        layout: The type, shape and strides that it is registered with.
        read: Called before `grad` is read.
        drop: Called before `grad` is set.
        settle: Called before a copy is taken, with why: all pending steps are made.
        fires: How many gradients the backward pass that is going on has brought.
        used: Whether a gradient came since the last exchange.
        late: Whether several gradients may come in one backward pass, so that only its end is safe.
        sent: Whether the exchange of the round that is open has begun.
        sparse: Whether its gradients travel as rows and their places.
    """

    parameter: nn.Parameter
    name: str
    index: int
    read: Callable[[Slot], None]
    drop: Callable[[Slot], None]
    settle: Callable[[str], None]
    key: int = -1
    layout: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]] | None = None
    flight: Flight | SparseFlight | None = None
    pending: Pending | None = None
    fires: int = 0
    used: bool = False
    late: bool = False
    sent: bool = False
    sparse: bool = False
    handles: list[Any] = field(default_factory=list)

    def layout_now(self) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
        """The parameter's type, shape and strides."""
        parameter = self.parameter
        return parameter.dtype, tuple(parameter.shape), tuple(parameter.stride())


@torch._disable_dynamo
def _read(slot: Slot) -> None:
    """Within a compiled function: nothing of it is compiled."""
    slot.read(slot)


@torch._disable_dynamo
def _drop(slot: Slot) -> None:
    slot.drop(slot)


class Watched(nn.Parameter):
    """A parameter whose `grad` is never seen half reduced."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient; waits for its exchange."""
        slot = self.__dict__.get(SLOT)
        if slot is not None:
            if torch.compiler.is_dynamo_compiling():
                _read(slot)
            else:
                slot.read(slot)
        return _GRAD.__get__(self)

    @grad.setter
    def grad(self, gradient: torch.Tensor | None) -> None:
        slot = self.__dict__.get(SLOT)
        if slot is not None:
            if torch.compiler.is_dynamo_compiling():
                _drop(slot)
            else:
                slot.drop(slot)
        _GRAD.__set__(self, gradient)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def __repr__(self) -> str:
        """Print as an ordinary parameter."""
        return repr(nn.Parameter(self.detach(), self.requires_grad))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle as an ordinary parameter."""
        del protocol
        self.__dict__[SLOT].settle("copy")
        state = {name: value for name, value in self.__dict__.items() if name != SLOT}
        arguments: tuple[Any, ...] = (self.data, self.requires_grad, OrderedDict())
        if state:
            return torch._utils._rebuild_parameter_with_state, (*arguments, state)
        return torch._utils._rebuild_parameter, arguments

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        """Copy to an ordinary parameter."""
        self.__dict__[SLOT].settle("copy")
        copy = nn.Parameter(
            self.data.clone(memory_format=torch.preserve_format), self.requires_grad
        )
        for name, value in self.__dict__.items():
            if name != SLOT:
                setattr(copy, name, value)
        memo[id(self)] = copy
        return copy


def watch(slot: Slot) -> None:
    """Make the slot's parameter a `Watched` one."""
    slot.parameter.__dict__[SLOT] = slot
    slot.parameter.__class__ = Watched


def unwatch(slot: Slot) -> None:
    """Make it an ordinary one again."""
    slot.parameter.__class__ = nn.Parameter
    slot.parameter.__dict__.pop(SLOT, None)
