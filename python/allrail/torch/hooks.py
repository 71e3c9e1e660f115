"""Hooks of a module that its copies, and what is pickled of it, do not take along."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from allrail.torch import private


class Hook:
    """A hook that belongs to one module: copies of the module carry an empty one.

    Where a module is compiled after it was scheduled, its hooks cut the graph, and run as they are.

    Args:
        function: What it calls.
        compiled: What it calls instead where the module is part of a compiled graph.
        idle: Whether there is nothing to do for a module, which is quickly said.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *,
        compiled: Callable[..., None] | None = None,
        idle: Callable[[Any], bool] | None = None,
    ) -> None:
        # Nothing of it is compiled, whatever is compiled around it.
        self._function = torch.compiler.disable(function)
        self._compiled = self._function if compiled is None else torch.compiler.disable(compiled)

        self._idle = idle

    def __call__(self, *args: Any) -> None:
        """Call the function.

        Within a transform of `torch.func` that is compiled there is nothing to do: steps were made
        before the compiled function began. And a graph that is cut there is an error of torch's.
        """
        if torch.compiler.is_compiling():
            # Not `is None`: what the compiler has in its place never is.
            transform = private.peek_interpreter_stack()
            if not isinstance(transform, private.CInterpreter):
                self._compiled(*args)
        elif self._idle is None or not self._idle(args[0]):
            self._function(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        del memo
        return _nothing

    def __reduce__(self) -> Any:
        return _empty_hook, ()


def _nothing(*_: Any) -> None:
    """What a copy of a hook does."""


def _empty_hook() -> Callable[..., None]:
    return _nothing


def wrap_compiled(
    module: nn.Module,
    before: Callable[..., None],
    after: Callable[..., None],
    region: Callable[[], AbstractContextManager[None]],
) -> Callable[[], None]:
    """Do what hooks do around a module compiled in place: its hooks are compiled with it.

    The same for one of TorchScript, which takes no hooks.

    Args:
        module: The module.
        before: Called with the module before each of its calls.
        after: Called with it after each.
        region: Entered around each.

    Returns:
        What undoes it.
    """
    original = private.compiled_call(module)
    compiled = private.plain_call(module) if original is None else original

    def call(*args: Any, **kwargs: Any) -> Any:
        before(module)
        try:
            with region():
                return compiled(*args, **kwargs)
        finally:
            after(module)

    def undo() -> None:
        own[private.COMPILED_CALL] = original

    own = vars(module)  # a traced module sets attributes elsewhere
    own[private.COMPILED_CALL] = call
    return undo


def run_uncompiled(*functions: Any) -> None:
    """Have functions, and what they call, run as they are where a backward pass is compiled.

    Unlike `torch.compiler.disable`, it costs a call nothing. Before torch 2.7 it does nothing.
    """
    mark = private.code_marker()
    if mark is not None:
        for function in functions:
            mark(function.__code__)
