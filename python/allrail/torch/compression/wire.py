"""The bytes that a compression puts on the wire, as the simulator counts them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from allrail._core import compressed_exchanges


def wire_bytes(
    compression: dict[str, Any], dtype: torch.dtype, shape: Sequence[int], ranks: int
) -> list[int] | None:
    """Return the bytes of each collective of a gradient's exchange, one after the other.

    It decides, too, what is compressed: None where the gradient would be no smaller, or holds no
    fractions.

    Args:
        compression: Its kind and parameters, as in a scenario's `workload.compression`.
        dtype: The type of the gradient's numbers.
        shape: Its shape.
        ranks: How many ranks exchange it.
    """
    if not dtype.is_floating_point:
        return None
    return compressed_exchanges(json.dumps(compression), list(shape), dtype.itemsize, ranks)
