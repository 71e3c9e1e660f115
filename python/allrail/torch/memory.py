"""Tensors of torch as the memory that a node is given.

A node keeps a tensor's storage until its exchange is over. So the tensor may be given another one
meanwhile (`t.data = ...`, `set_`) or be deleted: what the node writes to is still there. What
frees a storage's memory in place (`resize_`) is refused while a node has it.
"""

from __future__ import annotations

import torch

from allrail import _core
from allrail.base.errors import InputError
from allrail.runtime.nodes import Memory
from allrail.runtime.resizes import guard_resizes


def memory_of(tensor: torch.Tensor, *, in_bytes: bool = False) -> Memory:
    """Return the memory of a contiguous tensor on the host.

    Args:
        tensor: Its storage stays as it is as long as the result.
        in_bytes: Whether its elements count as bytes, which any type can be moved as.

    Raises:
        InputError: It has none, or its storage was freed.
    """
    return Memory(held(tensor), "uint8" if in_bytes else name_of(tensor.dtype))


def held(tensor: torch.Tensor) -> _core.Memory:
    """Return the memory of a dense tensor, held.

    Raises:
        InputError: It has none, or its storage was freed.
    """
    try:
        return _core.Memory.of_tensor(tensor)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InputError(
            str(error), field="tensor", hint="give a dense tensor on the host"
        ) from None


_names: dict[torch.dtype, str] = {}


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a type, such as `float32`."""
    name = _names.get(dtype)
    if name is None:
        name = _names[dtype] = str(dtype).removeprefix("torch.")
    return name


guard_resizes(torch)
