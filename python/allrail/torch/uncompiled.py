"""Keeps torch's compiler away from our own functions, at no cost for a call.

Under `torch.compile` Dynamo looks at every frame that runs, even of what torch's C++ calls. A
process group is to it a thing that has no methods of its own, which is an error. So the code of the
backend is marked: neither it nor what it calls is compiled.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from allrail.torch import private


def keep_from_compiler(*things: Any) -> None:
    """Mark classes, and the functions and classes of modules."""
    mark = _marker()
    if mark is None:
        return
    for thing in things:
        of = vars(thing).values() if isinstance(thing, types.ModuleType) else [thing]
        for one in of:
            for code in _codes(one):
                mark(code)


def _marker() -> Callable[[types.CodeType], None] | None:
    """What this torch marks code by; until 2.7 it does so for the code alone."""
    return private.code_marker() or getattr(private.eval_frame, "skip_code", None)


def _codes(one: Any) -> Iterator[types.CodeType]:
    """The code of a function, or of a class's methods, if it is ours."""
    if isinstance(one, types.FunctionType):
        if one.__module__.startswith("allrail."):
            yield one.__code__
            yield from _codes(getattr(one, "__wrapped__", None))
    elif isinstance(one, property):
        yield from _codes(one.fget)
    elif isinstance(one, type) and one.__module__.startswith("allrail."):
        for member in vars(one).values():
            yield from _codes(member)
