"""Gradients over allrail's own transport: cut, prioritised and scheduled by the engine.

`allrail._core.Node` keeps the memory of tensors until their exchange is over; this file tells
autograd that they were written to. Ranks need no common order: what each submits has a name.

A node knows its tensors before it starts. What has no name, such as a broadcast of buffers, and
what comes before the first step therefore has a node of its own.

Runs on CPU tensors. Where all ranks are on one machine it needs no settings.
"""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from allrail._core import Memory, Node, RuntimeFault
from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.nodes import (
    Calls,
    as_ours,
    check_current,
    close,
    connected,
    is_open,
    raise_from,
    settings_of,
    warn_of,
)
from allrail.torch.memory import held, memory_of, name_of
from allrail.torch.transport import in_memory_order

_LOOK = 1.0
"""How often it is looked for warnings, s."""
_LAST_PROMISES = 60.0
"""How long closing waits for what others need, s."""


class Native:
    """See the module; satisfies `allrail.torch.transport.Transport`.

    Args:
        rank: This process.
        ranks: How many there are.
        agreement: How ranks tell each other where they listen.
        settings: Of the node, beyond rank, ranks, job and group; None for ranks on one machine.
    """

    root_goes_on = True
    """Whether `broadcast` on rank 0 waits for no other rank."""

    def __init__(
        self, rank: int, ranks: int, agreement: Agreement, settings: dict[str, Any] | None = None
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        known = settings_of(rank, ranks, agreement, settings)
        self.settings = {key: value for key, value in known.items() if key != "secret"}
        self._calls = Calls(known | {"group": 0}, agreement)
        self._tensors = connected(known | {"group": 1}, agreement, "tensors")
        self._held: dict[tuple[int, int], tuple[torch.Tensor, Memory]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._leave = weakref.finalize(self, _leave, self._tensors, self._calls, self._held)

    def register(
        self,
        name: str,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
        place: int,
        group: int | None = None,
    ) -> int:
        """See `Transport.register`."""
        self._shapes[name] = tuple(shape)
        with as_ours:
            return self._tensors.register(
                name, name_of(dtype), list(shape), list(strides), place, group
            )

    def start(self) -> None:
        """See `Transport.start`."""
        with as_ours:
            self._tensors.start()

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.submit`."""
        return self._submit(self._tensors.submit, key, tensor)

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.unused`."""
        return self._submit(self._tensors.unused, key, tensor)

    def wait(self, key: int, generation: int) -> None:
        """See `Transport.wait`."""
        try:
            while not self._tensors.wait(key, generation, _LOOK):
                warn_of(self._tensors)
        except RuntimeFault as error:
            self._raise_from(error)
        self._release(key, generation)

    def is_done(self, key: int, generation: int) -> bool:
        """See `Transport.is_done`."""
        try:
            return self._tensors.is_done(key, generation)
        except RuntimeFault:
            return True  # `wait` has to say what is wrong

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Transport.broadcast`."""
        under_way = []
        for tensor in tensors:
            if tensor.numel():
                memory = memory_of(in_memory_order(tensor), in_bytes=True)
                under_way.append((self._calls.begin("broadcast", memory), tensor))
        for ticket, tensor in under_way:
            self._calls.finish(ticket)
            torch.autograd.graph.increment_version(tensor)

    def gather(self, buffer: torch.Tensor) -> int:
        """See `Transport.gather`."""
        return self._calls.begin("all_gather", memory_of(buffer, in_bytes=True))

    def gathered(self, ticket: int) -> None:
        """See `Transport.gathered`."""
        self._calls.finish(ticket)

    def report(self) -> dict[str, Any]:
        """What the node has done: tensors, dimensions, times."""
        found: dict[str, Any] = json.loads(self._tensors.report())
        return found

    def timeline(self) -> dict[str, Any]:
        """What the node has recorded, as spans of time."""
        found: dict[str, Any] = json.loads(self._tensors.timeline())
        return found

    def close(self) -> None:
        """See `Transport.close`."""
        self._leave()

    def _submit(self, submit: Any, key: int, tensor: torch.Tensor) -> int:
        memory = held(tensor)
        try:
            generation: int = submit(key, memory)
        except (RuntimeFault, ValueError) as error:
            self._raise_from(error)
        self._held[key, generation] = tensor, memory
        return generation

    def _raise_from(self, error: Exception) -> NoReturn:
        """Raise what the node says; of tensors that differ, it knows a digest of the layouts."""
        try:
            raise_from(error)
        except TrainingError as fault:
            shape = self._shapes.get(fault.field)
            if shape is None or " with layout " not in fault.why:
                raise
            why = f"{fault.why}; on this one, rank {self.rank}, it has the shape {shape}"
            raise TrainingError(
                why, field=fault.field, hint=fault.hint, kind=fault.kind, rank=fault.rank
            ) from None

    def _release(self, key: int, generation: int) -> None:
        found = self._held.pop((key, generation), None)
        if found is not None:
            tensor, memory = found
            check_current(memory)
            # Memory was written to behind autograd's back.
            torch.autograd.graph.increment_version(tensor)


def _leave(tensors: Node, calls: Calls, held: dict[tuple[int, int], Any]) -> None:
    """Close both nodes, once others have got what this rank has promised them."""
    if is_open(tensors):
        with contextlib.suppress(RuntimeFault):
            for key, generation in list(held):
                tensors.wait(key, generation, _LAST_PROMISES)
    close(tensors)
    calls.close()
    held.clear()
