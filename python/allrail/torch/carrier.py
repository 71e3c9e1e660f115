"""Runs what a node hands out on process groups, in the order in which it does: no decisions here.

One thread takes launches and gives each to the group of its dimension, which queues them. One
thread a dimension waits for what was given, in the same order, and tells the node. What fails is
told as well: the node ends the job on all ranks, with the tensor's name.

A chunk whose stages are on several dimensions is padded to whole shares and worked on in memory of
its own, with one axis for each dimension: a reduce-scatter takes the axis of its dimension away, an
all-gather puts it in front, whatever the order of both.

On CUDA, launches go to a stream of their own, which first waits for what had been asked of the
device when the tensor was submitted; a launch is over when that stream says so.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from allrail._core import Launch, Node, RuntimeFault

_A_WHILE = 3600.0
_TO_END = 1.0
_GRACE = 0.2


@dataclass
class Submitted:
    """A tensor under way.

    Attributes:
        flat: Its elements, as they lie in memory.
        ready: On CUDA: what must have happened before anyone reads them.
    """

    flat: torch.Tensor
    ready: Any = None


class Carrier:
    """See the module.

    Args:
        node: What hands out launches.
        groups: The process group of each dimension with this rank.
        memory: The tensors under way, by key; kept by the caller.
    """

    def __init__(
        self, node: Node, groups: Sequence[dist.ProcessGroup], memory: dict[int, Submitted]
    ) -> None:
        self._node = node
        self._groups = list(groups)
        self._sizes = [dist.get_world_size(group) for group in groups]
        self._memory = memory
        self._chunks: dict[tuple[int, ...], _Chunk] = {}
        self._given: list[SimpleQueue[Any]] = [SimpleQueue() for _ in groups]
        self._streams: dict[torch.device, Any] = {}
        self._scatters = True
        self.failed = False
        self._threads = [threading.Thread(target=self._launch, name="allrail launch", daemon=True)]
        for number, given in enumerate(self._given):
            name = f"allrail dimension {number}"
            self._threads.append(
                threading.Thread(target=self._finish, args=(given,), name=name, daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def join(self) -> bool:
        """Wait for the threads, once the node is closed; return whether all have ended."""
        until = time.monotonic() + _TO_END
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _launch(self) -> None:
        try:
            while True:
                for launch in self._node.next_launches(_A_WHILE):
                    try:
                        self._give(launch)
                    except RuntimeError as error:
                        self._fail(launch, error)
        except RuntimeFault:
            pass  # the job is over, as whoever waits for a tensor is told
        finally:
            for given in self._given:
                given.put(None)

    def _give(self, launch: Launch) -> None:
        if launch.stage == 0:
            pieces = list(self._pieces(launch))
            first = self._memory[launch.slices[0][0]]
            self._chunks[launch.of] = _Chunk(pieces, self._sizes, first.ready)
        chunk = self._chunks[launch.of]
        group, size = self._groups[launch.dimension], self._sizes[launch.dimension]
        with self._stream(chunk):
            work = None
            if chunk.count:
                work = self._start(launch, chunk, group, size)
        self._given[launch.dimension].put((launch, chunk, work))

    def _start(self, launch: Launch, chunk: _Chunk, group: Any, size: int) -> Any:
        if launch.kind == "all_reduce":
            data = chunk.whole(in_place=launch.stages == 1)
            return dist.all_reduce(data, group=group, async_op=True)
        if launch.kind == "all_gather":
            mine, out = chunk.gathered(launch.dimension, size)
            return dist.all_gather_into_tensor(out, mine, group=group, async_op=True)
        shares, out = chunk.scattered(launch.dimension)
        if self._scatters:
            try:
                return dist.reduce_scatter_tensor(out, shares, group=group, async_op=True)
            except RuntimeError:
                self._scatters = False  # gloo has it only in newer versions of torch
        place = dist.get_rank(group) * out.numel()
        chunk.take = shares[place : place + out.numel()]
        return dist.all_reduce(shares, group=group, async_op=True)

    def _pieces(self, launch: Launch) -> Iterator[torch.Tensor]:
        """The chunk's elements: parts of slices that lie end to end."""
        before = 0
        for key, start, end in launch.slices:
            low = max(launch.start - before, 0)
            high = min(launch.end - before, end - start)
            if low < high:
                yield self._memory[key].flat[start + low : start + high]
            before += end - start

    def _finish(self, given: SimpleQueue[Any]) -> None:
        while (item := given.get()) is not None:
            launch, chunk, work = item
            try:
                with self._stream(chunk):
                    if work is not None:
                        work.wait()
                    chunk.stage_over()
                    if launch.stage + 1 == launch.stages:
                        del self._chunks[launch.of]
                        chunk.put_back()
                    self._settle(chunk)
                self._node.finished(launch.number)
            except RuntimeFault:
                pass  # the job has ended meanwhile
            except RuntimeError as error:
                self._fail(launch, error)

    def _fail(self, launch: Launch, error: Exception) -> None:
        self.failed = True
        time.sleep(_GRACE)  # who has died is told by its control connection, and by name
        with contextlib.suppress(RuntimeFault):
            self._node.failed(launch.number, str(error).split("\n", 1)[0])

    def _stream(self, chunk: _Chunk) -> contextlib.AbstractContextManager[Any]:
        """On CUDA a stream beside those of the script, once the tensor is complete."""
        device = chunk.device
        if device is None or device.type != "cuda":
            return contextlib.nullcontext()
        if device not in self._streams:
            self._streams.setdefault(device, torch.cuda.Stream(device))
        stream = self._streams[device]
        if chunk.ready is not None:
            stream.wait_event(chunk.ready)
            chunk.ready = None
        for piece in chunk.pieces:
            piece.record_stream(stream)
        found: contextlib.AbstractContextManager[Any] = torch.cuda.stream(stream)
        return found

    def _settle(self, chunk: _Chunk) -> None:
        """Until the device is done with it: a work's `wait` only makes its stream wait."""
        if chunk.device is not None and chunk.device.type == "cuda":
            torch.cuda.current_stream(chunk.device).record_event().synchronize()


@dataclass
class _Chunk:
    pieces: list[torch.Tensor]
    sizes: list[int]
    ready: Any
    data: torch.Tensor | None = None
    # The dimensions that are axes of `data`, in order; its last axis is of none.
    axes: list[int] = field(default_factory=list)
    take: torch.Tensor | None = None
    in_place: bool = False

    @property
    def device(self) -> torch.device | None:
        return self.pieces[0].device if self.pieces else None

    @property
    def count(self) -> int:
        return sum(piece.numel() for piece in self.pieces)

    def whole(self, *, in_place: bool) -> torch.Tensor:
        """Its elements in one row: the tensor's own where it is one, and that is all there is."""
        if in_place and len(self.pieces) == 1:
            self.in_place = True
            return self.pieces[0]
        self.data = self._padded().contiguous()
        return self.data.view(-1)

    def scattered(self, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What is summed and divided on a dimension, and where this rank's share goes."""
        shares = self._padded().movedim(self.axes.index(dimension), 0).contiguous()
        self.axes.remove(dimension)
        self.data = shares.new_empty(shares.shape[1:])
        return shares.view(-1), self.data.view(-1)

    def gathered(self, dimension: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's share, and where those of all on a dimension go."""
        mine = self._padded().contiguous()
        self.axes.insert(0, dimension)
        self.data = mine.new_empty((size, *mine.shape))
        return mine.view(-1), self.data.view(-1)

    def stage_over(self) -> None:
        """A stage is over: its result is in `data`."""
        if self.take is not None and self.data is not None:
            self.data.view(-1).copy_(self.take)
            self.take = None

    def put_back(self) -> None:
        """The last stage is over: the result goes to where the elements were."""
        if self.in_place or self.data is None:
            return
        order = [self.axes.index(dimension) for dimension in range(len(self.sizes))]
        row = self.data.permute(*order, len(order)).reshape(-1)
        start = 0
        for piece in self.pieces:
            piece.copy_(row[start : start + piece.numel()])
            start += piece.numel()

    def _padded(self) -> torch.Tensor:
        if self.data is None:
            row = torch.cat(self.pieces)
            shares = math.prod(self.sizes)
            row = torch.nn.functional.pad(row, (0, -row.numel() % shares))
            self.axes = list(range(len(self.sizes)))
            self.data = row.view(*self.sizes, -1)
        return self.data
