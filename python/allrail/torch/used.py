"""Which module's forward uses which parameter: seen in one forward pass.

That a module owns a parameter does not say that its forward runs before the parameter is used:
`MultiheadAttention` uses the weights of `out_proj` without calling it, tied weights have two
users, a function may be given any module's weight. So the first forward pass is watched by a
`TorchFunctionMode`, which sees every call of torch and its arguments, and the innermost module
that is running then is a user.

A parameter is waited for at the entry of each of its users, and of its owners. What the pass has
not seen (a kernel that torch does not know) is waited for where its owner runs, or, if that was
never called, where the nearest module around it does.

Within a compiled region nothing can be seen, and no hook can be without cutting the graph. All
that it holds is waited for at its entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from allrail.torch import private
from allrail.torch.parameter import Slot

# Properties whose result shares the parameter's memory; others, such as `shape`, do not read it.
_VIEWS = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})


def is_compiled(module: nn.Module) -> bool:
    """Whether a call of the module runs compiled code."""
    return "_orig_mod" in private.modules_of(module) or private.compiled_call(module) is not None


def is_scripted(module: nn.Module) -> bool:
    """Whether a module, or one within it, is TorchScript's, which takes no hooks."""
    return any(isinstance(each, torch.jit.ScriptModule) for each in module.modules())


def open_modules(model: nn.Module) -> Iterator[tuple[nn.Module, bool]]:
    """Yield the modules whose entry can be hooked, and whether each is a compiled region.

    What is within a compiled region is left out.
    """
    seen: set[nn.Module] = set()

    def walk(module: nn.Module) -> Iterator[tuple[nn.Module, bool]]:
        if module in seen:
            return
        seen.add(module)
        compiled = is_compiled(module)
        yield module, compiled
        if not compiled:
            for child in module.children():
                yield from walk(child)

    yield from walk(model)


class Recorder(TorchFunctionMode):
    """Watches one forward pass of `model`.

    Attributes:
        users: For each slot that was used, its users in the order of their use.
        entered: The modules whose forward was called, in the order of their first call.
    """

    def __init__(self, model: nn.Module, slots: dict[torch.Tensor, Slot]) -> None:
        super().__init__()
        self.users: dict[int, list[nn.Module]] = {}
        self.entered: dict[nn.Module, int] = {}
        self._model = model
        self._slots = {id(parameter): slot for parameter, slot in slots.items()}
        self._stack: list[nn.Module] = []
        self._handles: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the parameters among the arguments, then do as asked."""
        del types
        if getattr(func, "__name__", "") != "__get__" or (
            getattr(getattr(func, "__self__", None), "__name__", "") in _VIEWS
        ):
            self._see(args)
            self._see(kwargs)
        return func(*args, **(kwargs or {}))

    def start(self) -> None:
        """The model's forward begins: follow the calls of its modules."""
        self._enter(self._model)
        for module, compiled in open_modules(self._model):
            if module is self._model or private.compiled_call(module) is not None:
                continue
            enter, leave = (
                (self._enter_region, self._leave_region) if compiled else (self._enter, self._leave)
            )
            self._handles += [
                module.register_forward_pre_hook(enter, prepend=True),
                module.register_forward_hook(leave, always_call=True),
            ]
        self.__enter__()

    def stop(self) -> None:
        """Its forward is over: follow them no longer."""
        self.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @contextlib.contextmanager
    def region(self, region: nn.Module) -> Iterator[None]:
        """A compiled region runs: it uses all that it holds, and runs as it does unwatched."""
        self._enter_region(region)
        try:
            yield
        finally:
            self._leave_region()

    def _enter(self, module: nn.Module, *_: Any) -> None:
        self.entered.setdefault(module, len(self.entered))
        self._stack.append(module)

    def _leave(self, module: nn.Module, *_: Any) -> None:
        if self._stack[-1] is module:
            self._stack.pop()

    def _enter_region(self, region: nn.Module, *_: Any) -> None:
        self.entered.setdefault(region, len(self.entered))
        for parameter in region.parameters():
            self._note(id(parameter), region)
        private.pop_mode()

    def _leave_region(self, *_: Any) -> None:
        private.push_mode(self)

    def _see(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if self._stack:
                self._note(id(value), self._stack[-1])
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._see(item)
        elif isinstance(value, dict):
            for item in value.values():
                self._see(item)

    def _note(self, identity: int, user: nn.Module) -> None:
        slot = self._slots.get(identity)
        if slot is not None:
            users = self.users.setdefault(slot.index, [])
            if user not in users:
                users.append(user)


def entries(
    model: nn.Module, slots: dict[torch.Tensor, Slot], recorder: Recorder | None
) -> dict[nn.Module, list[Slot]]:
    """Return at the entry of which module which parameters are waited for.

    Args:
        model: The model.
        slots: The slot of each of its trainable parameters.
        recorder: What saw a forward pass; None if none was seen.

    Returns:
        Modules in the order in which the pass entered them, each with its slots in order of use.
    """
    waits: dict[nn.Module, dict[int, Slot]] = {}
    by_index = {slot.index: slot for slot in slots.values()}
    entered = recorder.entered if recorder is not None else {}
    users = recorder.users if recorder is not None else {}
    for index, modules in users.items():
        for module in modules:
            waits.setdefault(module, {})[index] = by_index[index]
    _walk_owners(model, [], slots, waits, entered, set(users))
    last = len(entered)
    order = sorted(waits, key=lambda module: entered.get(module, last))
    return {module: list(waits[module].values()) for module in order}


def _walk_owners(
    module: nn.Module,
    around: list[nn.Module],
    slots: dict[torch.Tensor, Slot],
    waits: dict[nn.Module, dict[int, Slot]],
    entered: dict[nn.Module, int],
    used: set[int],
) -> None:
    """Add the entries of owners, and of what is around owners that were not called."""
    path = [*around, module]
    compiled = is_compiled(module)
    owned = module.parameters() if compiled else private.parameters_of(module).values()
    for parameter in owned:
        slot = slots.get(parameter) if parameter is not None else None
        if slot is None:
            continue
        waits.setdefault(module, {})[slot.index] = slot
        if entered and slot.index not in used and module not in entered:
            called = [outer for outer in path if outer in entered]
            if called:
                waits.setdefault(called[-1], {})[slot.index] = slot
    if not compiled:
        for child in module.children():
            _walk_owners(child, path, slots, waits, entered, used)


def places(waits: dict[nn.Module, list[Slot]], count: int) -> list[int]:
    """Return each slot's turn in the forward pass: that of the first entry that waits for it."""
    turns: dict[int, int] = {}
    for slots in waits.values():
        for slot in slots:
            turns.setdefault(slot.index, len(turns))
    return [turns.get(index, count) for index in range(count)]
