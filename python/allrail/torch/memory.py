"""Tensors of torch as the memory that a node is given."""

from __future__ import annotations

import torch

from allrail.runtime.nodes import Memory


def memory_of(tensor: torch.Tensor, *, in_bytes: bool = False) -> Memory:
    """Return the memory of a contiguous tensor on the host.

    Args:
        tensor: It stays alive as long as the result.
        in_bytes: Whether its elements count as bytes, which any type can be moved as.
    """
    if in_bytes:
        return Memory(tensor.data_ptr(), tensor.nbytes, "uint8", tensor)
    return Memory(tensor.data_ptr(), tensor.numel(), name_of(tensor.dtype), tensor)


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a type, such as `float32`."""
    return str(dtype).removeprefix("torch.")
