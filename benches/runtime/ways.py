"""Ways to train: each has a model of its own, and all take turns in the same processes."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from job import Worker
from torch import nn

import allrail.torch as art
from allrail._core import Memory, Node
from testbed.emulated import MODELS, Emulated, EmulatedModel

BUCKETS_MB = (0.1, 0.25, 0.5, 1.6, 6.0, 25.0)
RATE = 0.5


class Way:
    """One way.

    Attributes:
        name: In tables.
        times: Seconds of each step of each block.
        cpu: Seconds of CPU of each step of each block, of all threads of the process.
    """

    name = "no communication"
    exchanges = True

    def __init__(self, model: EmulatedModel) -> None:
        self.model = model
        self.steps = 0
        self.times: list[list[float]] = []
        self.cpu: list[list[float]] = []
        self.optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def run(self, steps: int) -> None:
        """One block: so many steps, timed; then all that is under way is waited for."""
        self.times.append([])
        self.cpu.append([])
        for _ in range(steps):
            begun, used = time.perf_counter(), _cpu()
            self.step()
            self.times[-1].append(time.perf_counter() - begun)
            self.cpu[-1].append(_cpu() - used)
        self.steps += steps
        self.settle()

    def step(self) -> None:
        """One step."""
        self.optimizer.zero_grad()
        self.forward(torch.zeros(1, requires_grad=True)).backward()
        self.optimizer.step()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The forward pass."""
        return self.model(value)

    def settle(self) -> None:
        """Wait for what is under way."""

    def check(self, ranks: int) -> None:
        """Every parameter is what averaging the gradients makes it."""
        expected = self.model.expected(ranks, self.steps, RATE)
        for parameter in self.model.parameters():
            if not torch.all(parameter.detach() == expected):
                raise AssertionError(f"{self.name}: parameters are not {expected}")

    def close(self) -> None:
        """End what it has opened."""


class Alone(Way):
    """Without others."""

    def check(self, ranks: int) -> None:
        """It learns from its own gradients."""
        del ranks


class Scheduled(Way):
    """Hooks and transport of ours."""

    name = "allrail"

    def __init__(self, model: EmulatedModel, worker: Worker, **settings: Any) -> None:
        super().__init__(model)
        self.transport = worker.native(**settings)
        art.schedule(model, self.optimizer, transport=self.transport)

    def settle(self) -> None:
        """Make all steps."""
        art.synchronize(self.model)

    def close(self) -> None:
        """Leave the model alone, and close connections."""
        art.release(self.model)


class Ddp(Way):
    """`DistributedDataParallel` with a bucket.

    Args:
        bucket: In MB.
        group: On which process group; the default one if left out.
    """

    def __init__(self, model: EmulatedModel, bucket: float, group: Any = None) -> None:
        super().__init__(model)
        self.name = f"DDP {bucket:g} MB" + ("" if group is None else " on allrail")
        self._module = nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=bucket, process_group=group
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Through DDP."""
        return self._module(value)


class Sharded(Way):
    """Reduce-scatter in the backward pass, all-gather in the next forward pass, as FSDP2 does.

    Each rank steps its own part of a bucket when its sum has come, and the parts are gathered in
    the order of the forward pass. Over a node of ours: gloo's reduce-scatter is an all-reduce, and
    FSDP2 on a CPU overlaps nothing. Layers share buckets of some size, as modules share a
    `fully_shard`.

    Args:
        bucket: In MB: layers are put together until they have as much.
    """

    name = "reduce-scatter, all-gather"

    def __init__(self, model: EmulatedModel, worker: Worker, bucket: float) -> None:
        super().__init__(model)
        self._node = worker.node([{"size": worker.ranks, **worker.dimension(0)}])
        self._buckets: list[_Bucket] = []
        layers: list[Emulated] = []
        for layer in [*model.layers, None]:
            full = layers and sum(each.weight.nbytes for each in layers) >= bucket * 1e6
            if layers and (full or layer is None):
                self._buckets.append(_Bucket(layers, self._node, worker))
                layers = []
            if layer is not None:
                layers.append(layer)

    def step(self) -> None:
        """One step; the optimizer's is made by each bucket."""
        self.forward(torch.zeros(1, requires_grad=True)).backward()
        for bucket in reversed(self._buckets):
            bucket.step_part()
        for bucket in self._buckets:
            bucket.begin_gather()

    def settle(self) -> None:
        """Wait for all parameters."""
        for bucket in self._buckets:
            bucket.end_gather()

    def close(self) -> None:
        """Close the node."""
        dist.barrier()
        self._node.close()


class _Bucket:
    def __init__(self, layers: list[Emulated], node: Node, worker: Worker) -> None:
        self._node = node
        self._ranks = worker.ranks
        elements = sum(layer.weight.numel() for layer in layers)
        part = -(-elements // worker.ranks)
        self._parameters = torch.zeros(part * worker.ranks)
        self._gradients = torch.zeros_like(self._parameters)
        self._mine = slice(part * worker.rank, part * (worker.rank + 1))
        self._scatter = self._gather = -1
        self._left = self._layers = len(layers)
        at = 0
        for layer in layers:
            weight = layer.weight
            here = slice(at, at + weight.numel())
            at += weight.numel()
            weight.data = self._parameters[here]
            weight.register_post_accumulate_grad_hook(self._taker(here))
            layer.register_forward_pre_hook(lambda *_: self.end_gather())

    def _taker(self, here: slice) -> Callable[[torch.Tensor], None]:
        def take(weight: torch.Tensor) -> None:
            self._gradients[here] = weight.grad
            weight.grad = None
            self._left -= 1
            if not self._left:
                self._left = self._layers
                self._gradients.mul_(1 / self._ranks)
                self._scatter = self._begin("reduce_scatter", self._gradients)

        return take

    def _begin(self, kind: str, buffer: torch.Tensor) -> int:
        return self._node.call(kind, Memory.of_tensor(buffer), "float32")

    def step_part(self) -> None:
        self._node.wait_call(self._scatter, 600.0)
        self._parameters[self._mine].sub_(self._gradients[self._mine], alpha=RATE)

    def begin_gather(self) -> None:
        self._gather = self._begin("all_gather", self._parameters)

    def end_gather(self) -> None:
        if self._gather >= 0:
            self._node.wait_call(self._gather, 600.0)
            self._gather = -1


def model_of(name: str, scale: int, seconds: float, rank: int) -> EmulatedModel:
    """A new emulated model."""
    return EmulatedModel(MODELS[name](), scale=scale, seconds=seconds, rank=rank)


def take_turns(
    ways: list[Way],
    *,
    blocks: int,
    steps: int,
    ranks: int,
    around: Callable[[Way], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> None:
    """Run all ways block by block; the first block opens connections and does not count.

    Args:
        ways: Which.
        blocks: How many count.
        steps: Of each way in a block.
        ranks: How many take part.
        around: What each way's block runs within, of those that count.
    """
    for block in range(blocks + 1):
        for way in ways:
            dist.barrier()
            with around(way) if block else nullcontext():
                way.run(steps)
        if block == 0:
            for way in ways:
                way.times.clear()
                way.cpu.clear()
    for way in ways:
        way.check(ranks)


def _cpu() -> float:
    """Of this process, all its threads, those of the engine among them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
