"""Where the parts run: a GPU, or a CPU that stands in for one in rehearsals.

The stand-in has no streams of its own. What it has is `Late`, a device whose copies happen late and
in order, so that code which uses a buffer before its event sees rubbish.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from allrail.torch.staging import Cuda


class NotHere(Exception):  # noqa: N818 - no error: the part cannot run on this machine
    """Why a part, or a row of it, does not apply to this machine."""


class Stream:
    """A queue of work that one thread does in order, each item late by `delay` seconds."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.work: queue.SimpleQueue[tuple[Callable[[], Any], threading.Event]] = (
            queue.SimpleQueue()
        )
        self.runs = threading.Event()
        self.runs.set()
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, does: Callable[[], Any]) -> threading.Event:
        """Queue a piece of work; the event is set when it is done."""
        done = threading.Event()
        self.work.put((does, done))
        return done

    def _run(self) -> None:
        while True:
            does, done = self.work.get()
            time.sleep(self.delay)
            self.runs.wait()
            does()
            done.set()


class Late:
    """A device for `allrail.torch.staging`: tensors are in host memory, copies are late.

    Args:
        delay: Seconds by which each copy is late.
        waits: Whether `bring` returns only when the copy is done, as code that reads the tensor on
            the host needs it; else the test calls `settle`.

    Attributes:
        made: Elements of each host buffer that was asked for.
    """

    def __init__(self, delay: float = 0.02, *, waits: bool = False) -> None:
        self.stream = Stream(delay)
        self.waits = waits
        self.made: list[int] = []

    def buffer(self, like: torch.Tensor) -> torch.Tensor:
        """See `allrail.torch.staging.Device.buffer`; full of rubbish until a copy has happened."""
        self.made.append(like.numel())
        rubbish = torch.empty(like.numel(), dtype=like.dtype)
        rubbish.view(torch.uint8).fill_(0x5A)
        return rubbish

    def fetch(self, tensor: torch.Tensor, buffer: torch.Tensor) -> Any:
        """See `allrail.torch.staging.Device.fetch`."""
        done: Any = self.stream.ask(lambda: buffer.copy_(tensor))
        done.synchronize = done.wait
        return done

    def bring(self, buffer: torch.Tensor, tensor: torch.Tensor) -> Any:
        """See `allrail.torch.staging.Device.bring`."""
        done: Any = self.stream.ask(lambda: tensor.copy_(buffer))
        done.synchronize = done.wait
        if self.waits:
            done.wait()
        return done

    def settle(self) -> None:
        """Return when everything asked for so far is done."""
        self.stream.ask(lambda: None).wait()


@dataclass(frozen=True)
class Place:
    """The device that a part uses.

    Attributes:
        rehearsal: Whether a CPU stands in for the GPU.
        seconds: Time that a part may use for what can take longer or shorter.
    """

    rehearsal: bool
    seconds: float

    @property
    def device(self) -> torch.device:
        """The device of tensors: the first GPU, or the CPU in rehearsals."""
        return torch.device("cpu") if self.rehearsal else torch.device("cuda", 0)

    def staging(self) -> Any:
        """Return a device for `allrail.torch.staging.Staged`."""
        return Late(0.002, waits=True) if self.rehearsal else Cuda()

    def synchronize(self) -> None:
        """Wait for all kernels."""
        if not self.rehearsal:
            torch.cuda.synchronize()

    def delay(self, milliseconds: float) -> None:
        """Keep the current stream busy, so that kernels queued after it run late."""
        if not self.rehearsal:
            torch.cuda._sleep(int(milliseconds * 1.5e6))  # cycles, at about 1.5 GHz

    @contextlib.contextmanager
    def other_stream(self) -> Iterator[None]:
        """Queue kernels on a new stream, which waits for nothing and nothing waits for it."""
        if self.rehearsal:
            yield
            return
        with torch.cuda.stream(torch.cuda.Stream()):
            yield

    def demand_nccl_of_several(self) -> None:
        """Raise `NotHere` unless NCCL lets several ranks share one GPU."""
        if self.rehearsal:
            raise NotHere("rehearsal: there is no NCCL without a GPU")
        version = torch.cuda.nccl.version()
        if version < (2, 30):
            text = ".".join(map(str, version))
            raise NotHere(f"NCCL {text} takes one rank per GPU; 2.30 and later take several")
