"""Gradients over any process group of torch.distributed, in the order that the engine decides.

Such groups (gloo, NCCL, MPI) pair the collectives of ranks by their order. `allrail._core.Node`
makes one: it cuts tensors, ranks them by what the next forward pass needs first, and agrees with
the others on each event from which an order follows, over connections that carry nothing else.
After five steps in the same order that order is frozen, and nothing is agreed any more until a rank
submits in another way. `carrier.py` runs what it hands out: one group for each dimension.

While an order is frozen, a tensor that goes first must be submitted first: who waits for another
one before, in a hook within the backward pass, is told so by an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from allrail._core import Node, RuntimeFault
from allrail.base.errors import InputError, TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.nodes import (
    as_ours,
    close,
    connected,
    is_open,
    raise_from,
    settings_of,
    warn_of,
)
from allrail.torch.carrier import Carrier, Submitted
from allrail.torch.gather import Gathers
from allrail.torch.groups import Group, along, give_back, take
from allrail.torch.mesh import backends_of
from allrail.torch.transport import in_memory_order

_LOOK = 0.1
"""How often it is looked for warnings, and whether a frozen order holds a tensor back, s."""
_LAST_PROMISES = 60.0
"""How long closing waits for what others need, s."""


class Ordered:
    """See the module; satisfies `allrail.torch.transport.Transport`.

    Args:
        rank: This process.
        ranks: How many there are.
        agreement: How ranks tell each other where they listen, and which groups they take.
        settings: Of the node, beyond rank, ranks, job and group; `dimensions` are those of the
            groups, the first one innermost. None for one dimension with all ranks, on one machine.
        mesh: A `DeviceMesh` whose groups have the backends that each dimension shall have; None for
            those of the job.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        agreement: Agreement,
        settings: dict[str, Any] | None = None,
        *,
        mesh: Any = None,
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        known = settings_of(rank, ranks, agreement, settings)
        sizes = [each["size"] for each in known["dimensions"]]
        backends = [None] * len(sizes) if mesh is None else backends_of(mesh, sizes)
        self._everyone = take(agreement, "group of all", (tuple(range(ranks)),))
        groups = [
            take(agreement, f"group of dimension {place}", along(sizes, place), backend)
            for place, backend in enumerate(backends)
        ]
        self._node = connected(known | {"elsewhere": True, "group": 2}, agreement, "order")
        said = known | {"elsewhere": True}
        self.settings = {key: value for key, value in said.items() if key != "secret"}
        self._names: dict[int, str] = {}
        self._memory: dict[int, Submitted] = {}
        self._held: dict[tuple[int, int], torch.Tensor] = {}
        self._gathers = Gathers()
        self._carrier = Carrier(self._node, [each.group for each in groups], self._memory)
        everything = [self._everyone, *groups]
        self._leave = weakref.finalize(
            self, _leave, self._node, self._carrier, everything, self._held
        )

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
        kind = str(dtype).removeprefix("torch.")
        with as_ours:
            key = self._node.register(name, kind, list(shape), list(strides), place, group)
        self._names[key] = name
        return key

    def start(self) -> None:
        """See `Transport.start`."""
        with as_ours:
            self._node.start()

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.submit`."""
        return self._submit(key, tensor, unused=False)

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.unused`."""
        tensor.detach().zero_()
        return self._submit(key, tensor, unused=True)

    def wait(self, key: int, generation: int) -> None:
        """See `Transport.wait`."""
        try:
            while not self._node.wait(key, generation, _LOOK):
                before = self._node.blocked(key)
                if before is not None:
                    raise TrainingError(
                        "its exchange is waited for before it could begin",
                        field=self._names[key],
                        hint=f"it goes after `{before}`, which this rank has not submitted yet:"
                        " read gradients after `backward()`, not in hooks within it",
                    )
                warn_of(self._node)
        except RuntimeFault as error:
            raise_from(error)
        tensor = self._held.pop((key, generation), None)
        if tensor is not None:
            # Collectives do not tell autograd that they write.
            torch.autograd.graph.increment_version(tensor)

    def is_done(self, key: int, generation: int) -> bool:
        """See `Transport.is_done`."""
        try:
            return self._node.is_done(key, generation)
        except RuntimeFault:
            return True  # `wait` has to say what is wrong

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Transport.broadcast`."""
        group = self._everyone.group
        works = []
        for tensor in tensors:
            if tensor.numel():
                raw = in_memory_order(tensor).view(torch.uint8)
                works.append(dist.broadcast(raw, src=0, group=group, async_op=True))
        for work in works:
            work.wait()

    def gather(self, buffer: torch.Tensor) -> int:
        """See `Transport.gather`."""
        return self._gathers.begin(buffer)

    def gathered(self, ticket: int) -> None:
        """See `Transport.gathered`."""
        self._gathers.finish(ticket)

    def report(self) -> dict[str, Any]:
        """What the node has done: tensors, words of coordination, whether the order is frozen."""
        found: dict[str, Any] = json.loads(self._node.report())
        return found

    def close(self) -> None:
        """See `Transport.close`."""
        self._leave()

    def _submit(self, key: int, tensor: torch.Tensor, *, unused: bool) -> int:
        ready = None
        if tensor.device.type == "cuda":
            ready = torch.cuda.current_stream(tensor.device).record_event()
        before = self._memory.get(key)
        self._memory[key] = Submitted(in_memory_order(tensor), ready)
        try:
            with as_ours:
                generation = self._node.announce(key, unused)
        except BaseException:
            # Not taken: what was there may be under way.
            if before is None:
                del self._memory[key]
            else:
                self._memory[key] = before
            raise
        self._held[key, generation] = tensor
        return generation


def _leave(
    node: Node,
    carrier: Carrier,
    groups: list[Group],
    held: dict[tuple[int, int], torch.Tensor],
) -> None:
    """Close the node, once others have got what this rank has promised them."""
    whole = not held
    if is_open(node):
        with contextlib.suppress(RuntimeFault):
            whole = all(node.wait(*each, _LAST_PROMISES) for each in list(held))
    close(node)
    ended = carrier.join()
    give_back(groups, broken=not (whole and ended) or carrier.failed)
    held.clear()


def reach() -> str:
    """Return the address with which this rank reaches the job's master: control listens there.

    Raises:
        InputError: The environment names no master that can be reached.
    """
    master = os.environ.get("MASTER_ADDR", "")
    try:
        family, *_, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it only chooses the interface
            return str(probe.getsockname()[0])
    except OSError as error:
        raise InputError(
            f"ranks are on several machines, and the way to `MASTER_ADDR` is not known: {error}",
            field="MASTER_ADDR",
            value=master,
            hint="set it to an address of rank 0's machine, as torchrun does",
        ) from error
