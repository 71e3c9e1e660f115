"""Tables of the processes of a running job, over torch.distributed: NCCL on GPUs, gloo otherwise.

As nccl-tests do: a collective over a buffer of each size, repeated, its mean time. Where the mean
over all repetitions would be taken from a machine that is busy now and then, here it is the median
of a few such means, and of ranks the slowest counts.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from allrail.base.progress import Progress
from allrail.measure.calibrate.pairs import Pair, rounds
from allrail.measure.calibrate.table import Row, Table
from allrail.runtime.agreement import Agreement
from allrail.torch.choice import group_of_all
from allrail.torch.store import store_of_job

WARM = 3
"""Repetitions that do not count."""
MEANS = 5
"""Means, of which the median is taken."""
LASTS = 0.02
"""Seconds that the repetitions of a mean take at least, up to `MOST`."""
MOST = 50
_SMALL = 8
_LARGE = 4 << 20
SOURCE = "this job"


def _all_reduce(buffer: torch.Tensor, count: int, group: Any) -> Callable[[], Any]:  # noqa: ARG001
    return partial(dist.all_reduce, buffer, group=group)


def _all_gather(buffer: torch.Tensor, count: int, group: Any) -> Callable[[], Any]:
    mine = torch.zeros_like(buffer[: buffer.numel() // count])
    return partial(dist.all_gather_into_tensor, buffer, mine, group=group)


_CALLS = {"all_reduce": _all_reduce, "all_gather": _all_gather}
"""By collective what makes a call of a buffer, of how many ranks, in their group."""


@dataclass(frozen=True)
class Measured:
    """What a job measured of itself.

    Attributes:
        tables: Over the ranks of a machine, where there are several machines of several ranks;
            over all.
        pairs: Every two ranks.
        inside: Ranks of a machine; 0 where these differ.
    """

    tables: tuple[Table, ...]
    pairs: tuple[Pair, ...]
    inside: int


def measure(
    sizes: Sequence[int],
    *,
    collective: str = "all_reduce",
    inside: int,
    progress: Progress | None = None,
) -> Measured:
    """Measure, on every rank of torch.distributed's default group at once.

    Args:
        sizes: Bytes, as nccl-tests count them.
        collective: `all_reduce` or `all_gather`.
        inside: Ranks of a machine, neighbours; 0 where these differ.
        progress: Told how much is done.
    """
    ranks, rank = dist.get_world_size(), dist.get_rank()
    layers: list[tuple[int, Any]] = [(ranks, None)]
    if 1 < inside < ranks and ranks % inside == 0:
        groups = [
            dist.new_group(list(range(first, first + inside))) for first in range(0, ranks, inside)
        ]
        layers.insert(0, (inside, groups[rank // inside]))
    done, total = 0, len(layers) * len(sizes) + ranks - 1 + ranks % 2

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    tables = []
    for count, group in layers:
        rows = []
        for size in sorted(sizes):
            buffer = torch.zeros(max(count, size // 4 // count * count), device=_device())
            seconds = _time(_CALLS[collective](buffer, count, group))
            rows.append(Row(4 * buffer.numel(), 1e6 * seconds))
            step()
        hosts = max(1, count // inside) if inside else None
        tables.append(Table(collective, count, hosts, _name(), tuple(rows), SOURCE))
    return Measured(tuple(tables), tuple(_pairs(step)), inside)


def _pairs(step: Callable[[], None]) -> list[Pair]:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    seen: dict[tuple[int, int], tuple[float, float]] = {}
    for each in rounds(ranks):
        mine = next((pair for pair in each if rank in pair), None)
        times = [0.0, 0.0]
        for at, size in enumerate((_SMALL, _LARGE)):
            dist.barrier()
            if mine is not None:
                times[at] = _met(mine[0] + mine[1] - rank, size)
        if mine is not None:
            seen[mine] = (1e6 * times[0], _LARGE / max(times[1], 1e-9) / 1e9)
        step()
    told: list[Any] = [None] * ranks
    dist.all_gather_object(told, {pair: found for pair, found in seen.items() if pair[0] == rank})
    return [Pair(*pair, *found) for theirs in told for pair, found in sorted(theirs.items())]


def _met(other: int, size: int) -> float:
    """Seconds in which this rank and another send each other a message."""
    out = torch.zeros(size // 4, device=_device())
    into = torch.zeros_like(out)

    def once() -> None:
        calls = [dist.P2POp(dist.isend, out, other), dist.P2POp(dist.irecv, into, other)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()

    for _ in range(WARM):
        once()
    means = []
    for _ in range(MEANS):
        begun = time.perf_counter()
        for _ in range(3):
            once()
        _settle()
        means.append((time.perf_counter() - begun) / 3)
    return median(means)


def _time(call: Callable[[], Any]) -> float:
    """Seconds of a call, of the slowest rank."""
    for _ in range(WARM):
        call()
    _settle()
    begun = time.perf_counter()
    call()
    _settle()
    again = _slowest(time.perf_counter() - begun)
    count = max(1, min(MOST, round(LASTS / max(again, 1e-9))))
    means = []
    for _ in range(MEANS):
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        _settle()
        means.append((time.perf_counter() - begun) / count)
    return _slowest(median(means))


def _slowest(seconds: float) -> float:
    told = torch.tensor([seconds], dtype=torch.float64, device=_device())
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return float(told.item())


def _device() -> torch.device:
    here = torch.cuda.is_available() and "nccl" in str(dist.get_backend_config())
    return torch.device("cuda", torch.cuda.current_device()) if here else torch.device("cpu")


def _name() -> str:
    return torch.cuda.get_device_name() if _device().type == "cuda" else ""


def _settle() -> None:
    if _device().type == "cuda":
        torch.cuda.synchronize()


def begin(local_rank: int) -> None:
    """Make the default group, whoever started this process: NCCL for GPUs, gloo otherwise.

    Args:
        local_rank: On this machine; the GPU of this rank.

    Raises:
        InputError: Ranks on several machines do not find each other.
    """
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    store, rank, ranks = store_of_job()
    group_of_all(store, Agreement(store, rank, ranks, "calibrate"))


def end() -> None:
    """Take the default group apart, when all have come so far."""
    dist.barrier()
    dist.destroy_process_group()


def ranks_inside() -> int:
    """Return how many ranks a machine has, neighbours all; 0 where that is not so.

    By what ranks call their machine, whoever started them.
    """
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, socket.gethostname())
    count = told.count(told[0])
    alike = all(len(set(told[first : first + count])) == 1 for first in range(0, len(told), count))
    return count if alike and len(told) % count == 0 else 0
