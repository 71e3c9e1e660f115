"""Tensors on a device over a transport for host memory: copied to the host, exchanged, copied back.

    gradient ── copy ──► pinned buffer ── exchange ──► pinned buffer ── copy ──► gradient
       │      side stream      │                             │      side stream     │
    autograd returns       one thread waits for          `wait` asks         the consumer's stream
    at once                the copy, then submits        for the copy        waits, not the script

To whoever exchanges gradients it is a transport like any other. Autograd's thread only asks for the
copy: a thread of this file waits for its event, which lets go of Python's lock, and then submits
the buffer below. All copies of a device are on one stream, so they happen in the order in which
they were asked for: a buffer is not written to by the next step before the last result has left it.
Each tensor has one buffer, since it is in one exchange at a time: that bounds them.

What a device has to be able to do is `Device`, so that all of this is tested without one.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from allrail.torch.native import Native
from allrail.torch.transport import in_memory_order

_TO_END = 60.0


class Event(Protocol):
    """Something that a device does later."""

    def synchronize(self) -> None:
        """Return when it has been done; lets go of Python's lock meanwhile."""
        ...


class Device(Protocol):
    """Copies between a device and the host, in the order in which they are asked for."""

    def buffer(self, like: torch.Tensor) -> torch.Tensor:
        """Return memory of the host, of as many elements, that the device copies from and to."""
        ...

    def fetch(self, tensor: torch.Tensor, buffer: torch.Tensor) -> Event:
        """Ask for a copy to the host, after all that the script has asked of the device so far."""
        ...

    def bring(self, buffer: torch.Tensor, tensor: torch.Tensor) -> Event:
        """Ask for a copy from the host; what the script asks for next happens after it."""
        ...


class Cuda:
    """The GPUs of this process: copies of each go over a stream of their own.

    A tensor on the host is copied at once: a model may have some there.
    """

    def __init__(self) -> None:
        self._sides: dict[torch.device, Any] = {}

    def buffer(self, like: torch.Tensor) -> torch.Tensor:
        """See `Device.buffer`."""
        return torch.empty(like.numel(), dtype=like.dtype, pin_memory=True)

    def fetch(self, tensor: torch.Tensor, buffer: torch.Tensor) -> Event:
        """See `Device.fetch`."""
        if tensor.device.type == "cpu":
            buffer.copy_(tensor)
            return _Done()
        side = self._side(tensor)
        with torch.cuda.stream(side):
            buffer.copy_(tensor, non_blocking=True)
            copied: Event = side.record_event()
        return copied

    def bring(self, buffer: torch.Tensor, tensor: torch.Tensor) -> Event:
        """See `Device.bring`."""
        if tensor.device.type == "cpu":
            tensor.copy_(buffer)
            return _Done()
        # After what was asked of the tensor before, too, such as to clear it.
        side = self._side(tensor)
        with torch.cuda.stream(side):
            tensor.copy_(buffer, non_blocking=True)
            copied: Event = side.record_event()
        torch.cuda.current_stream(tensor.device).wait_stream(side)
        return copied

    def _side(self, tensor: torch.Tensor) -> Any:
        """The stream for copies of this tensor's device, after all that was asked so far."""
        device = tensor.device
        if device not in self._sides:
            self._sides[device] = torch.cuda.Stream(device)
        side = self._sides[device]
        side.wait_stream(torch.cuda.current_stream(device))
        # Its memory is not given to others before the copy has happened.
        tensor.record_stream(side)
        return side


class _Done:
    """What has been done already."""

    def synchronize(self) -> None:
        """See `Event.synchronize`."""


class Staged:
    """See the module; satisfies `allrail.torch.transport.Transport`.

    Args:
        transport: What carries tensors in host memory.
        device: Where they come from, and go to; the host's own pass as they are.

    Attributes:
        settings: Those of the transport.
        report: That of the transport.
        timeline: That of the transport.
    """

    def __init__(self, transport: Native, device: Device) -> None:
        self.rank, self.ranks = transport.rank, transport.ranks
        self.settings, self.report, self.timeline = (
            transport.settings,
            transport.report,
            transport.timeline,
        )
        self.register, self.start = transport.register, transport.start
        self._transport = transport
        self._device = device
        self._buffers: dict[int, torch.Tensor] = {}
        self._generations: dict[int, int] = {}
        self._trips: dict[tuple[int, int], _Trip] = {}
        self._gathers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._thread = _Thread()
        self._leave = weakref.finalize(self, _leave, self._thread, transport, os.getpid())

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.submit`."""
        raw, buffer = self._buffer(key, tensor)
        copied = self._device.fetch(raw, buffer)
        return self._later(key, tensor, copied, lambda: self._transport.submit(key, buffer))

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.unused`."""
        raw, buffer = self._buffer(key, tensor)
        # Not for what it holds: so that the last result has left the buffer before zeros come.
        copied = self._device.fetch(raw, buffer)
        return self._later(key, tensor, copied, lambda: self._transport.unused(key, buffer))

    def wait(self, key: int, generation: int) -> None:
        """See `Transport.wait`."""
        trip = self._trips.get((key, generation))
        if trip is None:
            return
        trip.handed.wait()
        if trip.error is not None:
            raise trip.error
        self._transport.wait(key, trip.generation)
        self._device.bring(self._buffers[key], in_memory_order(trip.tensor))
        del self._trips[key, generation]
        torch.autograd.graph.increment_version(trip.tensor)

    def is_done(self, key: int, generation: int) -> bool:
        """See `Transport.is_done`."""
        trip = self._trips.get((key, generation))
        if trip is None:
            return True
        if not trip.handed.is_set():
            return False
        return trip.error is not None or self._transport.is_done(key, trip.generation)

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Transport.broadcast`."""
        on_host = []
        for tensor in tensors:
            raw = in_memory_order(tensor)
            buffer = self._device.buffer(raw)
            self._device.fetch(raw, buffer).synchronize()
            on_host.append(buffer)
        self._transport.broadcast(on_host)
        for tensor, buffer in zip(tensors, on_host, strict=True):
            self._bring_whole(buffer, tensor)

    def gather(self, buffer: torch.Tensor) -> int:
        """See `Transport.gather`."""
        on_host = self._device.buffer(buffer).view(buffer.shape)
        self._device.fetch(buffer, on_host).synchronize()
        ticket = self._transport.gather(on_host)
        self._gathers[ticket] = buffer, on_host
        return ticket

    def gathered(self, ticket: int) -> None:
        """See `Transport.gathered`."""
        self._transport.gathered(ticket)
        buffer, on_host = self._gathers.pop(ticket)
        self._bring_whole(on_host.view(-1), buffer)

    def close(self) -> None:
        """See `Transport.close`."""
        self._leave()

    def _buffer(self, key: int, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raw = in_memory_order(tensor)
        if key not in self._buffers:
            self._buffers[key] = self._device.buffer(raw)
        return raw, self._buffers[key]

    def _later(
        self, key: int, tensor: torch.Tensor, copied: Event, submit: Callable[[], int]
    ) -> int:
        generation = self._generations.get(key, 0)
        self._generations[key] = generation + 1
        trip = self._trips[key, generation] = _Trip(tensor, copied, submit)
        self._thread.take(trip)
        return generation

    def _bring_whole(self, buffer: torch.Tensor, tensor: torch.Tensor) -> None:
        """For what is not kept: it may only go once the copy has happened."""
        self._device.bring(buffer, in_memory_order(tensor)).synchronize()
        torch.autograd.graph.increment_version(tensor)


class _Trip:
    """One exchange of a tensor; `handed` once the transport has it, or nobody will give it."""

    def __init__(self, tensor: torch.Tensor, copied: Event, submit: Callable[[], int]) -> None:
        self.tensor = tensor
        self.copied = copied
        self.submit = submit
        self.handed = threading.Event()
        self.generation = -1
        self.error: Exception | None = None


class _Thread:
    """Hands on what has been copied; starts with the first, in the process that has it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Trip | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def take(self, trip: _Trip) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="allrail staging", daemon=True)
            self._thread.start()
        self._queue.put(trip)

    def stop(self) -> None:
        """Return when all that was taken is handed on."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_TO_END)

    def _run(self) -> None:
        while (trip := self._queue.get()) is not None:
            try:
                trip.copied.synchronize()
                trip.generation = trip.submit()
            except Exception as error:  # noqa: BLE001 - raised by `wait`
                trip.error = error
            trip.handed.set()
            del trip


def _leave(thread: _Thread, transport: Any, process: int) -> None:
    """Others wait for what this rank has promised: that is given before the transport ends."""
    if os.getpid() == process:  # a forked child has no such thread
        thread.stop()
    transport.close()
