"""Gradients in two bytes a number: `fp16` or `bf16`.

Each rank rounds its gradient, divided by the number of ranks, to the smaller type; the transport
sums in that type. Half the bytes of fp32, a quarter of fp64; 16-bit gradients travel as they are.

`bf16` keeps the range of fp32 and 8 bits of precision; `fp16` has 11 bits, and overflows above
65,504, which a gradient scaler sees as it would without compression. Nothing is remembered: the
rounding is unbiased in practice, and small beside the noise of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from allrail.torch.compression.wire import wire_bytes

_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Half:
    """See the module.

    Args:
        kind: Which of the two types.
    """

    def __init__(self, kind: Literal["fp16", "bf16"]) -> None:
        self._kind = kind

    def channel(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], rank: int, ranks: int
    ) -> _Rounded | None:
        """See `Compression.channel`."""
        del name, rank
        if wire_bytes(self.describe(), dtype, shape, ranks) is None:
            return None
        return _Rounded(_TYPES[self._kind], shape)

    def describe(self) -> dict[str, Any]:
        """See `Compression.describe`."""
        return {"kind": self._kind}


class _Rounded:
    def __init__(self, dtype: torch.dtype, shape: Sequence[int]) -> None:
        self._dtype = dtype
        self.wires = [(dtype, tuple(shape))]

    def carry(self, tensor: torch.Tensor, *, used: bool) -> Iterator[torch.Tensor]:
        """See `Channel.carry`."""
        del used
        small = tensor.to(self._dtype, memory_format=torch.contiguous_format)
        yield small
        tensor.copy_(small)

    def state(self) -> dict[str, torch.Tensor]:
        """See `Channel.state`."""
        return {}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Channel.load`."""
