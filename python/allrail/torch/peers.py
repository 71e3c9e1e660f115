"""Messages from one rank to another: a node of two for each direction, made when it is first used.

A message is a header (its tag and size) and its bytes, both broadcasts of the sender. Each
direction has a thread on either side, which connects and then does one message after the other:
so two ranks that both send first do not wait for each other. Messages of a direction are received
in the order they were sent in.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from allrail.errors import TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.job import Job
from allrail.runtime.nodes import Calls, settings_of_group
from allrail.torch.memory import memory_of


class Peers:
    """The directions that this rank has used.

    Args:
        store: Where two ranks find each other.
        rank: This process in the group.
        job: The job, as two ranks see it.
    """

    def __init__(self, store: Any, rank: int, job: Job) -> None:
        self._store = store
        self._rank = rank
        self._job = job
        self._directions: dict[tuple[int, int], _Direction] = {}

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Callable[[float], bool]:
        """Send a contiguous tensor; return what waits for it."""
        return self._direction(self._rank, peer).post(tensor, tag)

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Callable[[float], bool]:
        """Receive into a tensor of the same size; return what waits for it."""
        return self._direction(peer, self._rank).post(tensor, tag)

    def close(self) -> None:
        """End all directions."""
        for direction in self._directions.values():
            direction.close()
        self._directions.clear()

    def _direction(self, source: int, target: int) -> _Direction:
        if (source, target) not in self._directions:
            place = int(self._rank == target)
            agreement = Agreement(self._store, place, 2, f"from {source} to {target}")
            self._directions[source, target] = _Direction(agreement, source, place, self._job)
        return self._directions[source, target]


class _Direction:
    """Messages from one rank to another, on either side; `place` 0 is the sender."""

    def __init__(self, agreement: Agreement, source: int, place: int, job: Job) -> None:
        self._agreement = agreement
        self._job = job
        self._source = source
        self._sends = place == 0
        self._place = place
        self._queue: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="allrail messages", daemon=True)
        self._thread.start()

    def post(self, tensor: torch.Tensor, tag: int) -> Callable[[float], bool]:
        message = _Message(tensor, tag)
        self._queue.put(message)
        return message.wait

    def close(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        calls = None
        failed: Exception | None = None
        while (message := self._queue.get()) is not None:
            try:
                if failed is None:
                    calls = calls or self._connect()
                    self._exchange(calls, message)
            except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                failed = error
            message.error = failed
            message.over.set()
        if calls is not None:
            calls.close()

    def _connect(self) -> Calls:
        return Calls(settings_of_group(self._job, self._agreement), self._agreement)

    def _exchange(self, calls: Calls, message: _Message) -> None:
        header = torch.tensor([message.tag, message.tensor.nbytes])
        _broadcast(calls, header)
        tag, size = header.tolist()
        if (tag, size) != (message.tag, message.tensor.nbytes):
            raise TrainingError(
                f"rank {self._source} sends {size} bytes with tag {tag}; {message.tensor.nbytes}"
                f" bytes with tag {message.tag} are received",
                hint="receive what is sent, in the same order",
            )
        if not message.tensor.numel():
            return
        buffer = message.tensor.contiguous()
        _broadcast(calls, buffer)
        if not self._sends:
            torch.autograd.graph.increment_version(message.tensor)
            if buffer is not message.tensor:
                message.tensor.copy_(buffer)


class _Message:
    def __init__(self, tensor: torch.Tensor, tag: int) -> None:
        self.tensor = tensor
        self.tag = tag
        self.over = threading.Event()
        self.error: Exception | None = None

    def wait(self, timeout: float) -> bool:
        if not self.over.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True


def _broadcast(calls: Calls, buffer: torch.Tensor) -> None:
    calls.finish(calls.begin("broadcast", memory_of(buffer, in_bytes=True)))
