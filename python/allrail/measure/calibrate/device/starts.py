"""What it costs to start a kernel: chains of operators that do next to nothing.

One function a mode of `points.MODES`, and one line in `STARTS`. Graphs are recorded as CUDA asks:
after a run on a stream of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from allrail.measure.calibrate.device.clock import Batch, Clock

_CHAIN = 50
"""Kernels one after the other."""
_SIDE = 16
"""Rows of a small product."""


def _small(clock: Clock) -> torch.Tensor:
    return torch.ones(64, device=clock.device)


def _chained(clock: Clock) -> torch.Tensor:
    found = _small(clock)
    for _ in range(_CHAIN):
        found = torch.neg(found)
    return found


def _captured(clock: Clock) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        _chained(clock)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _chained(clock)
    return graph


def _on_device(clock: Clock) -> Batch:
    """From one kernel of a graph to the next."""
    timed = clock.on_device(_captured(clock).replay)
    return lambda count: timed(count) / _CHAIN


def _eager(clock: Clock) -> Batch:
    """Operators and their gradients, as training runs them."""
    first, gradient = _small(clock).requires_grad_(), _small(clock)

    def both() -> None:
        found = first
        for _ in range(_CHAIN):
            found = torch.tanh(found)
        torch.autograd.grad(found, first, gradient)

    return clock.on_host(both, 2 * _CHAIN)


def _compiled(clock: Clock) -> Batch:
    """Small products, which nothing fuses, and between them an operator that is a kernel, too."""
    weight = torch.eye(_SIDE, device=clock.device)

    def chain(found: torch.Tensor) -> torch.Tensor:
        for _ in range(_CHAIN // 2):
            found = torch.tanh(found @ weight)
        return found

    return clock.on_host(partial(torch.compile(chain), weight), 2 * (_CHAIN // 2))


def _graph(clock: Clock) -> Batch:
    """What the host needs to hand a graph over; it waits in between, outside of the time."""
    graph = _captured(clock)

    def batch(count: int) -> float:
        took = 0.0
        for _ in range(count):
            clock.settle()
            begun = time.perf_counter()
            graph.replay()
            took += time.perf_counter() - begun
        clock.settle()
        return took / count / _CHAIN

    return batch


def _blocking(clock: Clock) -> Batch:
    """Operators that the host waits for one by one."""
    first = _small(clock)

    def waited() -> None:
        found = first
        for _ in range(_CHAIN):
            found = torch.neg(found)
            clock.settle()

    return clock.on_host(waited, _CHAIN)


STARTS: dict[str, Callable[[Clock], Batch]] = {
    "device": _on_device,
    "eager": _eager,
    "compiled": _compiled,
    "graph": _graph,
    "blocking": _blocking,
}
"""By mode."""
