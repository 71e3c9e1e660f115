"""What may be going on around allrail's own computing: autocast, modes, tracing, `torch.func`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from allrail.torch import private


def plain_surroundings(device: str) -> AbstractContextManager[Any]:
    """Within it, nothing of what may be going on around it reaches into what is computed."""
    if (
        torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled(device)
        or private.function_modes()
        or private.dispatch_modes()
        or private.tracing_state() is not None
        or in_transform()
    ):
        return _undone(device)
    plain: AbstractContextManager[Any] = torch.no_grad()
    return plain


def in_transform() -> bool:
    """Whether a transform of `torch.func` is going on."""
    return private.peek_interpreter_stack() is not None


@contextlib.contextmanager
def _undone(device: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if private.function_modes():
            stack.enter_context(private.DisableTorchFunction())
        stack.enter_context(private.disable_current_modes())
        if (tracing := private.tracing_state()) is not None:
            private.set_tracing_state(None)
            stack.callback(private.set_tracing_state, tracing)
        if in_transform():
            stack.enter_context(private.clear_interpreter_stack())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
