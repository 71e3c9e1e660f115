"""Gathers over a process group of torch.distributed: for transports that have one.

They have a group of their own, so that they come in no order to the sums. All ranks begin the same
gathers in the same order; the first makes the group.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from allrail.base.errors import TrainingError

_group: list[dist.ProcessGroup] = []  # kept for whoever needs one next, as those of sums are


class Gathers:
    """Gathers that are under way, by ticket."""

    def __init__(self) -> None:
        self._works: dict[int, tuple[dist.Work, torch.Tensor]] = {}
        self._begun = 0

    def begin(self, buffer: torch.Tensor) -> int:
        """Begin to give every rank each one's row of a contiguous buffer; return a ticket."""
        if not _group:
            _group.append(dist.new_group())
        own = buffer[dist.get_rank()].clone()
        rows = list(buffer.unbind(0))
        work = dist.all_gather(rows, own, group=_group[0], async_op=True)
        self._works[self._begun] = work, own
        self._begun += 1
        return self._begun - 1

    def finish(self, ticket: int) -> None:
        """Wait for one."""
        work, _ = self._works.pop(ticket)
        try:
            work.wait()
        except RuntimeError as error:
            raise TrainingError(
                f"a gather of sparse gradients has failed: {error}",
                hint="look at the first error of each rank: a process has ended, or hangs",
            ) from error
