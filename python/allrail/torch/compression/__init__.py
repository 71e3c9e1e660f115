"""Gradients made smaller before they travel: what a compression is, and the list of them.

A compression gives each tensor a *channel*, which keeps what it remembers of that tensor between
steps. `Compressed` (`compressed.py`) is the only caller: it stands before a transport, asks for a
channel when a tensor is registered, and runs one `carry` for each of its exchanges.

| kind | what travels | remembers |
|---|---|---|
| `fp16`, `bf16` | the gradient in two bytes a number (`half.py`) | nothing |
| `top_k` | the largest numbers and where they are (`top_k.py`) | what was left out |
| `power_sgd` | two narrow matrices (`power_sgd.py`) | what was left out, a basis |

A new one is one file and one line in `KINDS`, and the same in `crates/workload/src/compression`:
which gradients are compressed, and to how many bytes, the simulator's code says (`wire.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from allrail.base.errors import InputError, did_you_mean
from allrail.torch.compression.half import Half
from allrail.torch.compression.power_sgd import PowerSGD
from allrail.torch.compression.top_k import TopK


class Channel(Protocol):
    """One tensor under a compression; used by one thread at a time."""

    @property
    def wires(self) -> Sequence[tuple[torch.dtype, tuple[int, ...]]]:
        """Type and shape of each tensor that is summed over ranks for one exchange, in turn."""
        ...

    def carry(self, tensor: torch.Tensor, *, used: bool) -> Iterator[torch.Tensor]:
        """Exchange `tensor`: yield one dense tensor for each of `wires`.

        It is resumed when the sum over ranks is in the one that it yielded; what stands before the
        first is done in the backward pass, what comes after the last where somebody waits. At the
        end `tensor` holds, on every rank bit for bit the same, about the sum of what all gave.

        Args:
            tensor: What this rank gives; where it ends.
            used: Whether it is a gradient; if not it holds zeros, and what is remembered stays.
        """
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """What it remembers, for a checkpoint; `error` is this rank's own, others are common."""
        ...

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Remember what `state` returned; what it lacks begins anew."""
        ...


class Compression(Protocol):
    """How gradients are made smaller: see the module."""

    def channel(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], rank: int, ranks: int
    ) -> Channel | None:
        """Return a channel for a tensor, when it is registered; None if it travels as it is.

        Args:
            name: Its name, alike on all ranks.
            dtype: The type of its elements.
            shape: Its shape.
            rank: This process among those that exchange, from 0.
            ranks: How many those are.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Its kind and parameters, as `compression_of` takes them."""
        ...


KINDS: dict[str, Callable[..., Compression]] = {
    "fp16": lambda: Half("fp16"),
    "bf16": lambda: Half("bf16"),
    "top_k": TopK,
    "power_sgd": PowerSGD,
}

_KNOWN = f"a kind of {', '.join(KINDS)}, or a mapping such as {{'kind': 'top_k', 'share': 0.01}}"


def compression_of(given: str | Mapping[str, Any] | Compression | None) -> Compression | None:
    """Return the compression that a user asks for; None for none.

    Args:
        given: A kind, a mapping of `kind` and its parameters, or a compression of one's own.

    Raises:
        InputError: There is no such kind, it has no such parameter, or a parameter is out of range.
    """
    if given is None or given == "none":
        return None
    if isinstance(given, str):
        given = {"kind": given}
    if not isinstance(given, Mapping):
        if callable(getattr(given, "channel", None)):
            return given
        raise InputError(
            f"it is a `{type(given).__name__}`",
            field="compression",
            hint=_KNOWN,
        )
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(
            "there is no such compression" if "kind" in given else "it names no kind",
            field="compression.kind",
            value="" if kind is None else str(kind),
            hint=did_you_mean(str(kind), ("none", *KINDS)) if "kind" in given else _KNOWN,
        )
    make = KINDS[kind]
    parameters = {name: value for name, value in given.items() if name != "kind"}
    known = tuple(inspect.signature(make).parameters)
    for name in parameters:
        if name not in known:
            raise InputError(
                f"`{kind}` has no such parameter",
                field=f"compression.{name}",
                hint=did_you_mean(name, known) if known else f"write '{kind}' alone",
            )
    return make(**parameters)
