"""Messages between ranks, as operations on tensors."""

from __future__ import annotations

import torch

from allrail.runtime.message import Message
from allrail.runtime.messages import Messages
from allrail.torch.collectives import checked, dense
from allrail.torch.memory import memory_of, name_of


def send(messages: Messages, tensor: torch.Tensor, target: int, tag: int) -> Sent:
    """Send a tensor's elements to a rank."""
    memory = memory_of(dense(checked(tensor.detach())), in_bytes=True)
    return Sent(messages.send(memory, target, tag, dtype=name_of(tensor.dtype)), target)


def receive(messages: Messages, tensor: torch.Tensor, source: int | None, tag: int) -> Received:
    """Receive a tensor's elements from a rank, or from any."""
    tensor = checked(tensor.detach())
    buffer = dense(tensor)
    memory = memory_of(buffer, in_bytes=True)
    message = messages.receive(memory, source, tag, dtype=name_of(tensor.dtype))
    return Received(message, tensor, buffer)


class Sent:
    """What is sent to a rank."""

    name = ""

    def __init__(self, message: Message, peer: int) -> None:
        self._message = message
        self._peer: int | None = peer
        self.wait = message.wait
        self.when_over = message.when_over

    def deliver(self) -> None:
        """Nothing is left to do."""

    def late(self) -> list[int]:
        """The other side."""
        return [] if self._peer is None else [self._peer]


class Received(Sent):
    """What is received, and from whom."""

    def __init__(self, message: Message, tensor: torch.Tensor, buffer: torch.Tensor) -> None:
        super().__init__(message, -1)
        self._peer = message.source
        self._tensor = tensor
        self._buffer = buffer

    @property
    def source(self) -> int:
        """Who has sent it, once it is over."""
        return -1 if self._message.source is None else self._message.source

    def deliver(self) -> None:
        """Put it where the tensor's elements are."""
        if self._buffer is not self._tensor:
            with torch.no_grad():
                self._tensor.copy_(self._buffer)
        elif not self._buffer.is_inference():
            torch.autograd.graph.increment_version(self._buffer)
