"""Collectives of tensors on a device over a group for host memory: copied there, and back.

A call copies its tensors to pinned buffers, waits for the device to have done so (never for another
rank), and begins the collective on the buffers. Whoever completes the work copies results back and
waits for that, too: so any stream may read them at once. `Staged` does the same for gradients
without waiting; there, tensors are known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from allrail.torch import private
from allrail.torch.staging import Device
from allrail.torch.transport import in_memory_order, is_dense
from allrail.torch.work import Work


class ThroughHost:
    """The collectives of a group, for tensors on another device than the CPU.

    Args:
        group: The group of allrail, whose collectives take tensors in host memory.
        device: Copies from the device and to it.
    """

    def __init__(self, group: Any, device: Device) -> None:
        self._group = group
        self._device = device

    def __getattr__(self, name: str) -> Callable[..., Work]:
        """Return the group's method of this name, for tensors on the device."""
        return partial(self._call, name, getattr(self._group, name))

    def _get_backend(self, device: Any) -> Any:
        del device
        return self._group

    def _start_coalescing(self, device: Any) -> None:
        del device
        private.start_coalescing(self._group, torch.device("cpu"))

    def _call(
        self, name: str, method: Callable[..., Work], *arguments: Any, **options: Any
    ) -> Work:
        twins: dict[int, _Twin] = {}

        def on_host(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if id(value) not in twins:
                    twins[id(value)] = _Twin(value, self._device)
                return twins[id(value)].host
            if isinstance(value, (list, tuple)):
                return [on_host(each) for each in value]
            return value

        given = on_host(arguments)
        for twin in twins.values():
            twin.fetched.synchronize()
        work = method(*given, **options)
        originals = {id(twin.host): twin for twin in twins.values()}

        def on_device(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return originals[id(value)].tensor
            return [on_device(each) for each in value]

        value = on_device(work.result())
        written = [] if name == "send" else [twins[id(each)] for each in _tensors(value)]
        return Work(_Back(work, written), value, self._group, name)


class _Twin:
    """A tensor on the device, and its copy in host memory.

    Attributes:
        tensor: On the device.
        host: Of the same shape, in host memory.
        fetched: The copy to the host.
    """

    def __init__(self, tensor: torch.Tensor, device: Device) -> None:
        self.tensor = tensor
        self._device = device
        detached = tensor.detach()
        self._dense = detached if is_dense(detached) else detached.contiguous()
        raw = in_memory_order(self._dense)
        self._buffer = device.buffer(raw)
        self.host = self._buffer.as_strided(self._dense.shape, self._dense.stride())
        self.fetched = device.fetch(raw, self._buffer)

    def bring(self) -> None:
        """Copy the host's values to the device, and wait until they are there."""
        self._device.bring(self._buffer, in_memory_order(self._dense)).synchronize()
        if self._dense is not self.tensor:
            with torch.no_grad():
                self.tensor.detach().copy_(self._dense)
        torch.autograd.graph.increment_version(self.tensor)


class _Back:
    """The collective on the host, and then the copies of its results.

    Args:
        work: The collective.
        written: What it writes.
    """

    def __init__(self, work: Work, written: Sequence[_Twin]) -> None:
        self._work = work
        self._written = written

    def __getattr__(self, name: str) -> Any:
        """Its name, its source and what else a work asks for are the collective's."""
        return getattr(self._work.operation, name)

    def wait(self, timeout: float) -> bool:
        """See `Operation.wait`."""
        return self._work.complete(timeout)

    def deliver(self) -> None:
        """See `Operation.deliver`."""
        self._work.wait()
        for twin in self._written:
            twin.bring()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)]
