"""Gradients of matrices as two narrow ones, of a low rank (Vogels, Karimireddy, Jaggi, 2019).

Of a gradient G with n rows, its other axes together m columns, each rank has M = G + error.
One step of power iteration (algorithm 1), warm started with the Q of the step before:

    P = sum over ranks of M Q     n · r numbers      then P is made orthonormal
    Q = sum over ranks of Mᵀ P    m · r numbers      the result is P Qᵀ

and error = M - P (Mᵀ P)ᵀ, with this rank's own M (algorithm 2). The second sum needs the first: two
exchanges, one after the other. The first Q is drawn alike on every rank, by the tensor's name.

Tensors of one axis, and matrices for which r · (n + m) numbers take more than half of their bytes,
travel as they are. Both sums and the orthonormal basis (by Householder reflections: a gradient of
zeros, or of a lower rank, does no harm) are in fp32 for 16-bit gradients. Ranks compute the basis
each for itself, alike on alike machines.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from allrail.base.errors import InputError
from allrail.torch.compression.wire import wire_bytes


class PowerSGD:
    """See the module.

    Args:
        rank: r, of the matrices that travel; 1 or more. More is nearer to the gradient.
    """

    def __init__(self, rank: Any = 4) -> None:
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
            raise InputError(
                "it is no rank of a matrix",
                field="compression.rank",
                value=str(rank),
                hint="1 or more: 1, 2 and 4 are usual",
            )
        self._rank: int = rank

    def channel(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], rank: int, ranks: int
    ) -> _LowRank | None:
        """See `Compression.channel`."""
        del rank
        if wire_bytes(self.describe(), dtype, shape, ranks) is None:
            return None
        return _LowRank(name, dtype, shape[0], math.prod(shape[1:]), self._rank)

    def describe(self) -> dict[str, Any]:
        """See `Compression.describe`."""
        return {"kind": "power_sgd", "rank": self._rank}


class _LowRank:
    def __init__(self, name: str, dtype: torch.dtype, rows: int, columns: int, rank: int) -> None:
        self._dtype = dtype if dtype.itemsize >= 4 else torch.float32
        self._shape = rows, columns
        # Drawn on the host: the same numbers for every device.
        drawn = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self._basis = torch.randn((columns, rank), generator=drawn, dtype=self._dtype)
        self._error: torch.Tensor | None = None
        self.wires = [(self._dtype, (rows, rank)), (self._dtype, (columns, rank))]

    def carry(self, tensor: torch.Tensor, *, used: bool) -> Iterator[torch.Tensor]:
        """See `Channel.carry`."""
        matrix = tensor.reshape(self._shape).to(self._dtype)
        if used and self._error is not None:
            matrix = matrix + self._error
        elif matrix.data_ptr() == tensor.data_ptr():
            matrix = matrix.clone()  # what is remembered is not what others write to
        self._basis = self._basis.to(tensor.device)
        left = matrix @ self._basis
        yield left
        left = torch.linalg.qr(left).Q
        right = matrix.t() @ left
        if used:
            self._error = matrix.addmm_(left, right.t(), alpha=-1)
        yield right
        self._basis = right
        tensor.copy_((left @ right.t()).view(tensor.shape))

    def state(self) -> dict[str, torch.Tensor]:
        """See `Channel.state`."""
        common = {"basis": self._basis.clone()}
        return common if self._error is None else {"error": self._error.clone(), **common}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Channel.load`."""
        error = state.get("error")
        self._error = None if error is None else error.clone()
        if "basis" in state:
            self._basis = state["basis"].clone()
