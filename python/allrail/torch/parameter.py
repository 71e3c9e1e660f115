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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, SupportsIndex

import torch
from torch import nn

from allrail.base.errors import InputError, TrainingError
from allrail.torch import private

_GRAD = torch.Tensor.grad
SLOT = "_allrail_slot"
"""What a scheduled parameter's dictionary calls its slot."""


gradient_of: Callable[[torch.Tensor], torch.Tensor | None] = _GRAD.__get__
"""Returns `parameter.grad` as it is, without waiting."""

set_gradient: Callable[[torch.Tensor, torch.Tensor | None], None] = _GRAD.__set__
"""Sets `parameter.grad`, without further effects."""


class InFlight(Protocol):
    """An exchange of gradients that is under way."""

    def is_done(self) -> bool:
        """Whether it is over."""

    def finish(self) -> list[torch.Tensor | None]:
        """Wait for it and return the means, by place in the pack."""


class Together(Protocol):
    """Gradients that travel together: a `packs.Pack`, as a parameter of it sees it."""

    key: int
    late: bool
    missing: int
    sent: bool

    def send(self, dense: Callable[[Slot, torch.Tensor], torch.Tensor], users: None) -> None:
        """Begin their exchange."""


class Steps(Protocol):
    """What makes the steps of an optimizer."""

    def make(self, pendings: Iterable[Pending]) -> None:
        """Make steps that are pending."""

    def touch(self, slots: Sequence[Slot]) -> None:
        """Make the steps of these parameters: somebody reads or writes them."""


class Pending:
    """Steps that were asked for at once and are not made yet: of the parameters of one pack.

    Attributes:
        stepper: The optimizer that makes them.
        settings: The hyperparameters of all groups when the steps were asked for.
        slots: The parameters.
        groups: Of each, its place among the optimizer's groups.
        gradients: Of each, the gradient to step with, unless `flight` brings it.
        written: Their versions then: nobody may write to them meanwhile.
        crossed: Whether gradients were still in flight.
    """

    __slots__ = (
        "crossed",
        "flight",
        "gradients",
        "groups",
        "settings",
        "slots",
        "stepper",
        "written",
    )

    def __init__(
        self,
        stepper: Steps,
        settings: list[dict[str, Any]],
        slots: Sequence[Slot],
        groups: Sequence[int],
        gradients: Sequence[torch.Tensor | None],
        flight: InFlight | None,
    ) -> None:
        self.stepper = stepper
        self.settings = settings
        self.slots = slots
        self.groups = groups
        self.gradients = gradients
        self.flight = flight
        self.crossed = flight is not None
        self.written = [private.version(slot.parameter) for slot in slots]
        for slot in slots:
            slot.pending = self

    def is_done(self) -> bool:
        """Whether the steps can be made without waiting."""
        return self.flight is None or self.flight.is_done()

    def final_gradients(self) -> Sequence[torch.Tensor | None]:
        """Wait for the gradients and return them; None where a parameter is not to be stepped."""
        if self.flight is None:
            return self.gradients
        means = self.flight.finish()
        return [means[slot.position] for slot in self.slots]

    def check_unwritten(self) -> None:
        """Check that nobody has written to the parameters meanwhile.

        Raises:
            TrainingError: Somebody has.
        """
        for slot, version in zip(self.slots, self.written, strict=True):
            if private.version(slot.parameter) != version:
                raise TrainingError(
                    "it was written to while its step was pending",
                    field=slot.name,
                    hint="call `allrail.torch.synchronize()` before you change parameters yourself",
                )


@dataclass(eq=False)
class Slot:
    """What is known of one trainable parameter.

    Attributes:
        index: Its place among the model's trainable parameters.
        layout: The type, shape and strides that it is registered with.
        read: Called before `grad` is read.
        drop: Called before `grad` is set.
        settle: Called before a copy is taken, with why: all pending steps are made.
        pack: What its gradients travel in; None before that is known, and where they are sparse.
        position: Its place in the pack.
        flight: The exchange of its gradient, until that is over.
        keep: Whether `grad` still stands for the gradient in flight.
        zeroed: Whether `grad` was set to zero since, if there is one at all.
        fires: How many gradients the backward pass that is going on has brought.
        used: Whether a gradient came since the last exchange.
        late: Whether several gradients may come in one backward pass, so that only its end is safe.
        sparse: Whether its gradients travel as rows and their places.
    """

    parameter: nn.Parameter
    name: str
    index: int
    read: Callable[[Slot], None]
    drop: Callable[[Slot], None]
    settle: Callable[[str], None]
    layout: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]] | None = None
    pack: Together | None = None
    position: int = 0
    flight: InFlight | None = None
    pending: Pending | None = None
    keep: bool = True
    zeroed: bool = False
    fires: int = 0
    used: bool = False
    late: bool = False
    sparse: bool = False
    handles: list[Any] = field(default_factory=list)

    def layout_now(self) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
        """The parameter's type, shape and strides."""
        parameter = self.parameter
        return parameter.dtype, tuple(parameter.shape), tuple(parameter.stride())


@private.disable_dynamo
def _read(slot: Slot) -> None:
    """Within a compiled function: nothing of it is compiled."""
    slot.read(slot)


@private.disable_dynamo
def _drop(slot: Slot) -> None:
    slot.drop(slot)


class Watched(nn.Parameter):
    """A parameter whose `grad` is never seen half reduced."""

    __torch_function__ = private.disabled_torch_function

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

    def _use_count(self) -> int:
        """Refuse `torch.utils.swap_tensors`, which asks this before it swaps.

        It gives the parameter another tensor's hooks, so its gradient would not be seen any more.

        Raises:
            InputError: The parameter is scheduled.
        """
        if (slot := self.__dict__.get(SLOT)) is not None:
            raise InputError(
                "`torch.utils.swap_tensors` would leave its gradient on this rank alone; swap"
                " before `allrail.torch.schedule`, or `release` the model first",
                field=slot.name,
                hint="`module.to()` and `load_state_dict` copy instead after"
                " `torch.__future__.set_swap_module_params_on_conversion(False)`",
            )
        count: int = private.tensor_use_count(self)
        return count

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
            return private.rebuild_parameter_with_state, (*arguments, state)
        return private.rebuild_parameter, arguments

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
