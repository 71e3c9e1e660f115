"""How long calls of PyTorch take, on the device or on the host.

On a GPU, times are those of events on its stream. Before each a kernel keeps the stream busy while
the host queues the calls, so that what is measured is the device and not the host. On a CPU the
wall clock counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

Batch = Callable[[int], float]
"""Makes so many calls; seconds of each."""

_AHEAD = 20_000
"""Cycles in which a host queues a call, and more: ten microseconds."""


class Clock:
    """Times of a device.

    Attributes:
        device: Which.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._gpu = device.type == "cuda"

    def settle(self) -> None:
        """Wait until the device has done all that it was told."""
        if self._gpu:
            torch.cuda.synchronize(self.device)

    def on_device(self, call: Callable[[], Any]) -> Batch:
        """Return what times a call on the device.

        Args:
            call: Queues the work.
        """

        def on_host(count: int) -> float:
            begun = time.perf_counter()
            for _ in range(count):
                call()
            return (time.perf_counter() - begun) / count

        def on_gpu(count: int) -> float:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.settle()
            torch.cuda._sleep(_AHEAD * count)
            begin.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3 / count

        return on_gpu if self._gpu else on_host

    def on_host(self, call: Callable[[], Any], kernels: int) -> Batch:
        """Return what times the host, which is done when the device is: the work is short there.

        Args:
            call: Queues the work.
            kernels: Of a call; the time is of one of them.
        """

        def batch(count: int) -> float:
            self.settle()
            begun = time.perf_counter()
            for _ in range(count):
                call()
            self.settle()
            return (time.perf_counter() - begun) / count / kernels

        return batch
