"""Whole tensors over a process group of torch.distributed, each as one asynchronous all-reduce.

What `ALLRAIL_DISABLE=1` leaves: no node, no thread, no connection but those of the group. With
buckets, as `DistributedDataParallel` has them, it is the way `plain` of `auto.py`: tensors that
follow each other are copied into one, which is reduced once all of them are there.

Such groups need one order of collectives on all ranks, while gradients may become ready in another
order on each. So the order is fixed: that of the keys, round after round, each key once in a
round. A tensor that is submitted early waits until all before it have been started. Nothing
overtakes, nothing is cut.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Agreement
from allrail.torch.gather import Gathers
from allrail.torch.groups import Group, give_back, take
from allrail.torch.transport import in_memory_order


@dataclass
class _Tensor:
    name: str
    dtype: torch.dtype
    size: int
    waiting: deque[torch.Tensor] = field(default_factory=deque)
    submitted: int = 0
    started: int = 0
    # Of each: the work, the tensor, and where its sum is.
    works: dict[int, tuple[dist.Work, torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class Whole:
    """See the module; satisfies `allrail.torch.transport.Transport`.

    Args:
        agreement: How ranks agree on which group they take.
        buckets: How many bytes the first bucket holds, and each other; None for one a tensor.
    """

    def __init__(self, agreement: Agreement, *, buckets: tuple[int, int] | None = None) -> None:
        self.rank: int = dist.get_rank()
        self.ranks: int = dist.get_world_size()
        self._taken: Group | None = take(agreement, "group", (tuple(range(self.ranks)),))
        self._group = self._taken.group
        self._tensors: list[_Tensor] = []
        self._holds = buckets
        self._buckets: list[list[_Tensor]] = []
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
        """See `Transport.register`; strides, places and groups do not matter here."""
        del strides, place, group
        self._tensors.append(_Tensor(name, dtype, math.prod(shape) * dtype.itemsize))
        return len(self._tensors) - 1

    def start(self) -> None:
        """See `Transport.start`."""

    def _cut(self) -> None:
        """Share the tensors out to buckets, in the order of their keys."""
        full = 0
        for tensor in self._tensors:
            last = self._buckets[-1] if self._buckets else []
            if self._holds and last and last[0].dtype == tensor.dtype and full > 0:
                last.append(tensor)
            else:
                full = self._holds[bool(self._buckets)] if self._holds else 0
                self._buckets.append([tensor])
            full -= tensor.size

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
            before = self._buckets[self._next][0].name
            raise TrainingError(
                "its exchange is waited for before it could begin",
                field=entry.name,
                hint=f"it goes after `{before}`, which this rank has not submitted yet:"
                " read gradients after `backward()`, not in hooks within it",
            )
        if generation not in entry.works:
            return
        work, tensor, total = entry.works[generation]
        try:
            work.wait()
        except RuntimeError as error:
            self._broken = True
            raise TrainingError(
                f"its exchange has failed: {error}",
                field=entry.name,
                hint="look at the first error of each rank: a process has ended, or hangs",
            ) from error
        if total is not tensor:
            in_memory_order(tensor).copy_(total)
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
        taken, self._taken = self._taken, None
        for entry in self._tensors:
            for work, *_ in entry.works.values():
                try:
                    work.wait()
                except RuntimeError:
                    self._broken = True
            entry.works.clear()
        if taken is not None:
            give_back([taken], broken=self._broken)

    def _advance(self) -> None:
        """Start what is next in the order of all ranks, as far as it is here."""
        if not self._buckets:
            self._cut()
        while all(entry.waiting for entry in self._buckets[self._next]):
            bucket = self._buckets[self._next]
            tensors = [entry.waiting.popleft() for entry in bucket]
            flat = [in_memory_order(tensor) for tensor in tensors]
            together = flat[0] if len(flat) == 1 else torch.cat(flat)
            work = dist.all_reduce(together, group=self._group, async_op=True)
            parts = together.split([each.numel() for each in flat])
            for entry, tensor, part in zip(bucket, tensors, parts, strict=True):
                total = tensor if len(bucket) == 1 else part
                entry.works[entry.started] = work, tensor, total
                entry.started += 1
            self._next = (self._next + 1) % len(self._buckets)
