"""What carries gradients between ranks: the protocol, apart from who implements it.

A transport knows *keys*, one for each tensor that is registered, and *generations*, which count
the exchanges of a key from 0. An exchange sums a tensor over all ranks in place. Every rank takes
part in every generation of every key, by `submit` or by `unused`; what a rank does not need it
gives zeros to.

    key = transport.register("layer.weight", torch.float32, (4, 4), (4, 1), place=0)
    transport.start()
    generation = transport.submit(key, gradient)  # returns at once; hands off the tensor
    transport.wait(key, generation)               # now it holds the sum

Each implementation is one file: `whole.py` runs over any process group of torch.distributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class Transport(Protocol):
    """Sums registered tensors over all ranks; used from one thread at a time."""

    @property
    def rank(self) -> int:
        """This process among those that exchange, from 0."""
        ...

    @property
    def ranks(self) -> int:
        """How many processes exchange."""
        ...

    def register(
        self,
        name: str,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
        place: int,
        group: int | None = None,
    ) -> int:
        """Announce a tensor, before `start`; all ranks announce the same ones in the same order.

        Args:
            name: What messages call it.
            dtype: The type of its elements.
            shape: Its shape.
            strides: Its strides, in elements; its memory must be dense.
            place: When the next forward pass needs it: the lowest is the most urgent.
            group: Tensors of one group are ready together; None if it is on its own.

        Returns:
            Its key. Keys count from 0, in the order in which tensors usually become ready.
        """
        ...

    def start(self) -> None:
        """All tensors are registered."""
        ...

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """Begin the exchange of `tensor`, which nobody touches meanwhile; return its generation."""
        ...

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """Like `submit`, but this rank adds zeros, whatever `tensor` holds; it receives the sum."""
        ...

    def wait(self, key: int, generation: int) -> None:
        """Return when that exchange is over; raise `TrainingError` if it has failed."""
        ...

    def is_done(self, key: int, generation: int) -> bool:
        """Whether `wait` would return at once."""
        ...

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give all ranks what rank 0 has, and wait for it; may be called before `start`."""
        ...

    def gather(self, buffer: torch.Tensor) -> int:
        """Begin to give all ranks each one's row of `buffer`, which is contiguous; return a ticket.

        The first axis is that of ranks. All ranks begin the same gathers in the same order,
        whatever else is under way.
        """
        ...

    def gathered(self, ticket: int) -> None:
        """Return when that gather is over; raise `TrainingError` if it has failed."""
        ...

    def close(self) -> None:
        """End it; what is in flight is lost."""
        ...


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor as one row of elements, as they lie in memory, without a copy."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one stretch of memory, each once, in whatever order of axes."""
    if tensor.layout != torch.strided:
        return False
    expected = 1
    axes = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in axes:
        if size == 1:
            continue
        if stride != expected:
            return bool(tensor.numel() == 0)
        expected *= size
    return True
