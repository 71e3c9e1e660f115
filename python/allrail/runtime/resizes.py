"""Resizing a storage of PyTorch in place frees its memory: refused while a node has it.

A storage that is held keeps a tensor's memory wherever the tensor goes, but not from `resize_`,
which allocates anew within the same storage. PyTorch has no mark that forbids it for a while, so
its methods ask first. They are called rarely, and cost a microsecond more.

Of no effect on what reaches a storage otherwise: `out=` with a tensor of another shape, and
`torch.ops.aten.resize_`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from allrail import _core
from allrail.base.errors import TrainingError


def guard_resizes(torch: Any) -> None:
    """Have the methods that resize a storage in place ask whether a node has it.

    Args:
        torch: The module, which whoever calls this has imported.
    """
    if hasattr(torch.UntypedStorage.resize_, "_allrail_asks"):
        return
    tensor, storage = torch.Tensor, torch.UntypedStorage

    def all_of(self: Any, *_: Any) -> None:
        # To the same size, too, it allocates anew.
        _check(self)

    def as_shape(self: Any, *shape: Any, **_: Any) -> None:
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        grows(self, math.prod(sizes))

    def as_other(self: Any, other: Any, **_: Any) -> None:
        grows(self, other.numel())

    def grows(self: Any, elements: int) -> None:
        held = self.untyped_storage()
        if (self.storage_offset() + elements) * self.element_size() > held.nbytes():
            _check(held)

    storage.resize_ = _asking(torch, storage.resize_, all_of)
    tensor.resize_ = _asking(torch, tensor.resize_, as_shape)
    tensor.resize_as_ = _asking(torch, tensor.resize_as_, as_other)


def _asking(torch: Any, method: Callable[..., Any], ask: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            ask(self, *args, **kwargs)
        return method(self, *args, **kwargs)

    asking._allrail_asks = True  # type: ignore[attr-defined]
    return asking


def _check(storage: Any) -> None:
    """Refuse to free the memory of a storage that a node has.

    Raises:
        TrainingError: One has.
    """
    if storage.device.type != "cpu":
        return
    if _core.in_flight(storage.data_ptr(), storage.nbytes()):
        raise TrainingError(
            "its storage is resized while its exchange is under way",
            field="tensor",
            hint="wait for the exchange before `resize_`",
        )
