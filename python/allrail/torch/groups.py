"""Process groups of torch.distributed that are allrail's own.

A user's collectives come in no order to ours, so ours have groups of their own. Groups are kept for
whoever needs one next: where torch 2.4 destroys a group whose last work has just ended, the process
may hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist

from allrail.runtime.agreement import Agreement

Lines = tuple[tuple[int, ...], ...]
_Kind = tuple[Lines, str | None]


@dataclass(frozen=True)
class Group:
    """A group of this process.

    Attributes:
        lines: All ranks, by the group that they are in.
        number: Which of those of these lines and backends; alike on all ranks.
        group: The group with this rank.
        backend: Its backends, as torch.distributed names them; None for the job's own.
    """

    lines: Lines
    number: int
    group: dist.ProcessGroup
    backend: str | None = None


_free: dict[_Kind, dict[int, Group]] = {}
_made: dict[_Kind, int] = {}
# Of a job that has failed: to destroy one may hang, so they stay.
_broken: list[Group] = []


def take(agreement: Agreement, topic: str, lines: Lines, backend: str | None = None) -> Group:
    """Return a group that nobody uses, made if there is none; all ranks call it alike.

    Args:
        agreement: How ranks agree on which they take.
        topic: What the agreement is called.
        lines: All ranks, by the group that they shall be in.
        backend: Its backends; None for those of the job.
    """
    kind = (lines, backend)
    free = _free.setdefault(kind, {})
    common = agreement.on(topic, sorted(free), _in_common)
    if common:
        return free.pop(common[0])
    number = _made.get(kind, 0)
    _made[kind] = number + 1
    # Every rank takes part in making every group.
    groups = [dist.new_group(list(line), backend=backend) for line in lines]
    mine = next(place for place, line in enumerate(lines) if dist.get_rank() in line)
    return Group(lines, number, groups[mine], backend)


def give_back(groups: Sequence[Group], *, broken: bool) -> None:
    """Keep groups for the next who needs such; `broken` ones are not used again."""
    for group in groups:
        if broken:
            _broken.append(group)
        else:
            _free[group.lines, group.backend][group.number] = group


def along(sizes: Sequence[int], dimension: int) -> Lines:
    """Return the ranks that differ on one dimension only, where the first dimension is innermost.

    Args:
        sizes: How many ranks each dimension joins.
        dimension: Which one.
    """
    ranks, stride = 1, 1
    for place, size in enumerate(sizes):
        ranks *= size
        stride *= size if place < dimension else 1
    size = sizes[dimension]
    firsts = (rank for rank in range(ranks) if rank // stride % size == 0)
    return tuple(tuple(first + i * stride for i in range(size)) for first in firsts)


def _in_common(said: list[list[int]]) -> list[int]:
    return sorted(set(said[0]).intersection(*said[1:]))
