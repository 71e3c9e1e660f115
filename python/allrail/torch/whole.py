"""Whole tensors over a process group of torch.distributed, each as one asynchronous all-reduce.

Such groups need one order of collectives on all ranks, while gradients may become ready in another
order on each. So the order is fixed: that of the keys, round after round, each key once in a
round. A tensor that is submitted early waits until all before it have been started. Nothing
overtakes, nothing is cut: this is the plain transport, for the groups that exist everywhere and to
compare with.

Its process group is its own, so that the collectives of the user's script come in no order to
these. Groups are kept for whoever needs one next: where torch 2.4 destroys a group whose last work
has just ended, the process may hang.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from allrail.errors import TrainingError
from allrail.runtime.agreement import Agreement
from allrail.torch.gather import Gathers
from allrail.torch.transport import in_memory_order


@dataclass
class _Tensor:
    name: str
    waiting: deque[torch.Tensor] = field(default_factory=deque)
    submitted: int = 0
    started: int = 0
    works: dict[int, tuple[dist.Work, torch.Tensor]] = field(default_factory=dict)


# Groups that nobody uses any more, by a number that is alike on all ranks.
_free: dict[int, dist.ProcessGroup] = {}
_made = 0


class Whole:
    """See the module; satisfies `allrail.torch.transport.Transport`.

    Args:
        agreement: How ranks agree on which group they take.
    """

    def __init__(self, agreement: Agreement) -> None:
        global _made  # noqa: PLW0603 - groups belong to the process
        common = agreement.on("group", sorted(_free), _in_common)
        if common:
            self._number: int = common[0]
            self._group: dist.ProcessGroup | None = _free.pop(self._number)
        else:
            self._number, self._group = _made, dist.new_group()
            _made += 1
        self.rank: int = dist.get_rank()
        self.ranks: int = dist.get_world_size()
        self._tensors: list[_Tensor] = []
        self._gathers = Gathers()
        self._next = 0
        self._broken = False

    def register(
        self,
        name: str,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
        place: int,
        group: int | None = None,
    ) -> int:
        """See `Transport.register`; only the name and the order matter here."""
        del dtype, shape, strides, place, group
        self._tensors.append(_Tensor(name))
        return len(self._tensors) - 1

    def start(self) -> None:
        """See `Transport.start`."""

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.submit`."""
        entry = self._tensors[key]
        entry.waiting.append(tensor)
        entry.submitted += 1
        self._advance()
        return entry.submitted - 1

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.unused`."""
        tensor.detach().zero_()
        return self.submit(key, tensor)

    def wait(self, key: int, generation: int) -> None:
        """See `Transport.wait`."""
        entry = self._tensors[key]
        if generation >= entry.started:
            before = self._tensors[self._next].name
            raise TrainingError(
                "its exchange is waited for before it could begin",
                field=entry.name,
                hint=f"it goes after `{before}`, which this rank has not submitted yet:"
                " read gradients after `backward()`, not in hooks within it",
            )
        if generation not in entry.works:
            return
        work, tensor = entry.works[generation]
        try:
            work.wait()
        except RuntimeError as error:
            self._broken = True
            raise TrainingError(
                f"its exchange has failed: {error}",
                field=entry.name,
                hint="look at the first error of each rank: a process has ended, or hangs",
            ) from error
        del entry.works[generation]
        # Collectives do not tell autograd that they write.
        torch.autograd.graph.increment_version(tensor)

    def is_done(self, key: int, generation: int) -> bool:
        """See `Transport.is_done`."""
        entry = self._tensors[key]
        if generation >= entry.started:
            return False
        return generation not in entry.works or bool(entry.works[generation][0].is_completed())

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Transport.broadcast`."""
        works = []
        for tensor in tensors:
            if tensor.numel():
                raw = in_memory_order(tensor).view(torch.uint8)
                works.append(dist.broadcast(raw, src=0, group=self._group, async_op=True))
        for work in works:
            work.wait()

    def gather(self, buffer: torch.Tensor) -> int:
        """See `Transport.gather`."""
        return self._gathers.begin(buffer)

    def gathered(self, ticket: int) -> None:
        """See `Transport.gathered`."""
        self._gathers.finish(ticket)

    def close(self) -> None:
        """See `Transport.close`."""
        group, self._group = self._group, None
        for entry in self._tensors:
            for work, _ in entry.works.values():
                try:
                    work.wait()
                except RuntimeError:
                    self._broken = True
            entry.works.clear()
        if group is not None and not self._broken:
            _free[self._number] = group

    def _advance(self) -> None:
        """Start what is next in the order of all ranks, as far as it is here."""
        while (entry := self._tensors[self._next]).waiting:
            tensor = entry.waiting.popleft()
            flat = in_memory_order(tensor)
            work = dist.all_reduce(flat, group=self._group, async_op=True)
            entry.works[entry.started] = work, tensor
            entry.started += 1
            self._next = (self._next + 1) % len(self._tensors)


def _in_common(said: list[list[int]]) -> list[int]:
    return sorted(set(said[0]).intersection(*said[1:]))
