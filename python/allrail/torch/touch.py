"""A parameter whose step is still to be made: what reads or writes it has the step made first.

Between `optimizer.step()` and the forward pass that needs it, a parameter has its old value, which
nobody may see. While its step is pending, its class is `Unstepped`: torch hands every call that is
given the parameter (`p.data`, `p[0] = 1`, `torch._foreach_mul_`, `F.linear`, `p.tolist()`) to that
class, which makes the step, and then the call. At other times the class is `Watched`, and calls
cost nothing. A module or a compiled region finds only `Watched`, so nothing is compiled again.

What reaches the memory of a parameter without its class:

| way | what is done |
|---|---|
| an alias from before the step (`p.data`, an array of NumPy, a `state_dict`) | `Memory` \
counts the holders of the storage; with one more, the step is made in `step()` |
| transforms of `torch.func`, which unpack trees of tensors | `Unstepped` is a node of such trees, \
and its step is made when it is unpacked |
| a compiled function that holds the parameter | steps are made before its guards are checked, and \
before it is compiled |
| a process that is forked | steps are made before the fork |
| C++ that is given the parameter itself (`torch.tensor(p)`, `to_dlpack(p)`, an extension) | \
nothing; docs/guides/torch.md says so |
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from allrail.torch import private
from allrail.torch.parameter import SLOT, Slot, Watched

_PROPERTIES = (
    "device dtype shape ndim layout requires_grad grad grad_fn is_leaf is_sparse is_cuda is_cpu"
    " is_meta is_mps is_xpu is_quantized is_nested is_mkldnn is_sparse_csr name names itemsize"
    " nbytes output_nr retains_grad _backward_hooks _post_accumulate_grad_hooks _grad"
)
# `is_complex` is not among them: torch.distributed asks it of every tensor before C++ reads it.
_METHODS = "dim size numel nelement ndimension stride storage_offset is_contiguous element_size"
_METHODS += " get_device is_floating_point register_hook register_post_accumulate_grad_hook __len__"
_METHODS += " requires_grad_ new_empty new_zeros new_ones"
_FUNCTIONS = "numel is_floating_point empty_like zeros_like ones_like rand_like randn_like"

_WITHOUT_VALUES: frozenset[Any] = frozenset(
    [
        *(
            method
            for name in _PROPERTIES.split()
            if hasattr(torch.Tensor, name)
            for attribute in [getattr(torch.Tensor, name)]
            for method in (attribute.__get__, *([attribute.__set__] if name == "grad" else []))
        ),
        *(getattr(torch.Tensor, name) for name in _METHODS.split()),
        *(getattr(torch, name) for name in _FUNCTIONS.split()),
    ]
)


class Unstepped(Watched):
    """A parameter whose step was asked for and is not made yet."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Make the steps of the parameters among the arguments, then the call."""
        del types
        if func in _WITHOUT_VALUES:
            with private.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        step([*_among(args), *_among(kwargs)])
        return func(*args, **(kwargs or {}))


def step(parameters: list[Unstepped]) -> None:
    """Make the pending steps of these parameters."""
    slots: list[Slot] = list({id(each): each.__dict__[SLOT] for each in parameters}.values())
    while slots := [slot for slot in slots if slot.pending is not None]:
        stepper = slots[0].pending.stepper  # type: ignore[union-attr]
        stepper.touch([s for s in slots if s.pending is not None and s.pending.stepper is stepper])


def _among(value: Any) -> Iterator[Unstepped]:
    if isinstance(value, Unstepped):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _among(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _among(item)


def _flatten(parameter: Unstepped) -> tuple[list[Any], None]:
    step([parameter])
    return [parameter], None


private.pytree.register_pytree_node(
    Unstepped,
    _flatten,
    lambda children, _: next(iter(children)),
    serialized_type_name="allrail.torch.Unstepped",
)


# -- aliases of its memory


_use_count: Callable[[int], int] = private.storage_use_count


class _Held:
    """One storage, and how many parameters lie in it."""

    __slots__ = ("address", "parameters", "storage")

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.address: int = private.storage_address(storage)
        self.parameters = 0

    def holders(self) -> int:
        """How many tensors hold the storage, beside parameters, and how many variables."""
        return _use_count(self.address) + sys.getrefcount(self.storage) - self.parameters


def _without_others() -> int:
    probe = torch.empty(1)
    held = _Held(probe.untyped_storage())
    held.parameters = 1
    return held.holders()


class Memory:
    """Tells whether anything but parameters holds the memory of a parameter."""

    def __init__(self) -> None:
        self._held: dict[Slot, _Held] = {}
        self._by_address: dict[int, _Held] = {}
        self._usual = _without_others()

    def look(self, slots: Iterable[Slot]) -> None:
        """See in which storage each parameter lies, before `has_others` is asked of any."""
        known = self._held
        for slot in slots:
            storage = slot.parameter.untyped_storage()
            held = known.get(slot)
            if held is None or held.storage is not storage:
                self._hold(slot, storage)

    def has_others(self, slot: Slot) -> bool:
        """Whether the parameter could be read or written by an alias that somebody keeps."""
        held = self._held[slot]
        return held.holders() != self._usual or held.storage.is_shared()

    def _hold(self, slot: Slot, storage: Any) -> None:
        before = self._held.pop(slot, None)
        if before is not None:
            before.parameters -= 1
            if not before.parameters:
                self._by_address.pop(before.address, None)
        address = private.storage_address(storage)
        held = self._by_address.get(address)
        if held is None:
            held = self._by_address[address] = _Held(storage)
        held.parameters += 1
        self._held[slot] = held


# -- those who look from elsewhere


_models: list[weakref.WeakMethod[Callable[[str], None]]] = []
"""What makes all pending steps of each scheduled model, given why, or nothing to count it as."""


def follow(settle: Callable[[str], None]) -> None:
    """Have a model's steps made before its parameters are used in ways that no class sees."""
    _models.append(weakref.WeakMethod(settle, _models.remove))
    _watch_compiler()


def unfollow(settle: Callable[[str], None]) -> None:
    """The model is not scheduled any more."""
    for method in [method for method in _models if method() == settle]:
        _models.remove(method)


def _settle(cause: str) -> None:
    for method in (*_models,):
        if (settle := method()) is not None:
            settle(cause)


os.register_at_fork(before=lambda: _settle("fork"))


def _watch_compiler() -> None:
    """Have steps made before a compiled function checks its guards, and before one is compiled.

    Dynamo has no hook for the call of a compiled function. But every call begins with one question:
    which callback the stance of the compiler (`torch.compiler.set_stance`) makes of its own.
    """
    frames, name = private.stance_asked()
    asked = getattr(frames, name, None) if name else None
    if asked is None or isinstance(asked, _Called):
        return
    setattr(frames, name, _Called(asked))
    private.before_compiling(lambda *_: _settle(""))


class _Called:
    """Stands before a function with which every call of a compiled function begins."""

    def __init__(self, asked: Callable[[Any], Any]) -> None:
        self._asked = asked

    def __call__(self, callback: Any) -> Any:
        """A compiled function is called, unless `callback` is none."""
        if callback not in (None, False) and _models:
            called = sys._getframe(1).f_locals.get("fn")
            # A module waits at its entry for what it uses, and modules within it at theirs.
            if not isinstance(getattr(called, "__self__", called), nn.Module):
                _settle("compiled")
        return self._asked(callback)
