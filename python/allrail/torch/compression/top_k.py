"""The numbers of a gradient with the largest magnitude, and where they are; with error feedback.

Each rank adds what it left out before to its gradient, sends the k = ⌈share · n⌉ largest of the n
numbers, and remembers the rest (Stich, Cordonnier and Jaggi, NeurIPS 2018, algorithm 1; Aji and
Heafield, EMNLP 2017). Ranks pick different places, so all need what each has picked: a gather.

It travels as a sum all the same. The tensor on the wire has a slot for each rank, which it fills
and others leave at zero: words of 4 bytes, first k values in the gradient's own type, as bits, then
k places. Sums of zeros and one integer are exact, and no transport needs an operation more. The
price: an all-reduce of R slots moves twice the bytes of a gather, 2 (R-1) slots a rank. Where R
slots are no smaller than the gradient, it travels as it is.

Values are added rank after rank, in the same order on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from allrail.base.errors import InputError
from allrail.torch.compression.wire import wire_bytes

_WORD = 4


class TopK:
    """See the module.

    Args:
        share: The part of the numbers of each gradient that travels, above 0, at most 1.
    """

    def __init__(self, share: Any = 0.01) -> None:
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if not number or not 0 < share <= 1:
            raise InputError(
                "it is no share of a gradient's numbers",
                field="compression.share",
                value=str(share),
                hint="above 0 and at most 1; 0.01 sends one number in a hundred",
            )
        self._share = float(share)

    def channel(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], rank: int, ranks: int
    ) -> _Largest | None:
        """See `Compression.channel`."""
        del name
        if wire_bytes(self.describe(), dtype, shape, ranks) is None:
            return None
        numbers = math.prod(shape)
        return _Largest(dtype, numbers, math.ceil(self._share * numbers), rank, ranks)

    def describe(self) -> dict[str, Any]:
        """See `Compression.describe`."""
        return {"kind": "top_k", "share": self._share}


class _Largest:
    def __init__(self, dtype: torch.dtype, numbers: int, kept: int, rank: int, ranks: int) -> None:
        self._dtype = dtype
        self._numbers = numbers
        self._kept = kept
        self._rank = rank
        self._ranks = ranks
        self._error: torch.Tensor | None = None
        self._value_words = -(-kept * dtype.itemsize // _WORD)
        # Values of 8 bytes are read where they lie: every slot begins at a multiple of theirs.
        self.words = self._value_words + kept
        self.words += self.words % max(1, dtype.itemsize // _WORD)
        self.wires = [(torch.int32, (ranks, self.words))]

    def carry(self, tensor: torch.Tensor, *, used: bool) -> Iterator[torch.Tensor]:
        """See `Channel.carry`."""
        kept = self._kept
        slots = torch.zeros((self._ranks, self.words), dtype=torch.int32, device=tensor.device)
        if used:
            whole = tensor.flatten()
            whole = whole.clone() if self._error is None else whole + self._error
            places = whole.abs().topk(kept, sorted=False).indices
            self._values(slots[self._rank]).copy_(whole[places])
            self._places(slots[self._rank]).copy_(places)
            whole[places] = 0
            self._error = whole
        yield slots
        total = torch.zeros(self._numbers, dtype=self._dtype, device=tensor.device)
        for slot in slots:
            total.index_add_(0, self._places(slot), self._values(slot))
        tensor.copy_(total.view(tensor.shape))

    def _values(self, slot: torch.Tensor) -> torch.Tensor:
        return slot[: self._value_words].view(self._dtype)[: self._kept]

    def _places(self, slot: torch.Tensor) -> torch.Tensor:
        return slot[self._value_words :][: self._kept]

    def state(self) -> dict[str, torch.Tensor]:
        """See `Channel.state`."""
        return {} if self._error is None else {"error": self._error.clone()}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Channel.load`."""
        error = state.get("error")
        self._error = None if error is None else error.clone()
