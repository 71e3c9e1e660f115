"""An optimizer's `state` as a script may read it while steps are pending: they are made first.

`optimizer.state` becomes a `State`, a dictionary like the one that it replaces. While a step is
pending its class is `Unsettled`, whose methods all make the steps first; at other times it costs
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from allrail.torch import private

_METHODS = (
    "__contains__ __delitem__ __eq__ __getitem__ __ior__ __iter__ __len__ __ne__ __or__ __repr__"
    " __reversed__ __ror__ __setitem__ clear get items keys pop popitem setdefault update values"
)


class State(defaultdict[Any, Any]):
    """The state of an optimizer none of whose steps is pending.

    Attributes:
        settle: Makes the pending steps.
    """

    __slots__ = ("settle",)
    settle: Callable[[], None]

    def __reduce__(self) -> Any:
        """Pickle and copy as an ordinary dictionary."""
        return defaultdict, (self.default_factory,), None, None, iter(self.items())

    def copy(self) -> Any:
        """Return an ordinary dictionary with the same items."""
        return defaultdict(self.default_factory, self.items())

    __copy__ = copy


class Unsettled(State):
    """The same while steps are pending."""

    __slots__ = ()


def _first_settled(name: str) -> Callable[..., Any]:
    method = getattr(defaultdict, name)

    def call(self: State, *args: Any, **kwargs: Any) -> Any:
        self.settle()
        return method(self, *args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"Make the pending steps, then `dict.{name}`."
    return call


for _name in _METHODS.split():
    setattr(Unsettled, _name, _first_settled(_name))


def _flatten(state: State) -> tuple[list[Any], Any]:
    keys = list(state.keys())
    return [state[key] for key in keys], (state.default_factory, keys)


def _unflatten(values: Any, context: Any) -> defaultdict[Any, Any]:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


for _class in (State, Unsettled):
    private.pytree.register_pytree_node(
        _class, _flatten, _unflatten, serialized_type_name=f"allrail.torch.{_class.__name__}"
    )


def watch_state(optimizer: torch.optim.Optimizer, settle: Callable[[], None]) -> None:
    """Make the optimizer's state a `State`, if it is an ordinary dictionary now."""
    state: Any = optimizer.state
    if type(state) in (defaultdict, dict):
        watched = State(getattr(state, "default_factory", None), state)
        watched.settle = settle
        optimizer.state = watched


def unwatch_state(optimizer: torch.optim.Optimizer) -> None:
    """Make it an ordinary one again."""
    state: Any = optimizer.state
    if isinstance(state, State):
        mark_pending(optimizer, pending=False)
        optimizer.state = state.copy()


def mark_pending(optimizer: torch.optim.Optimizer, *, pending: bool) -> None:
    """Steps of the optimizer are pending from now on, or none is, or it makes one itself."""
    state: Any = optimizer.state
    if isinstance(state, State):
        state.__class__ = Unsettled if pending else State
