"""Receives that wait for what others send, and what has come before anyone wanted it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

from allrail.base.errors import TrainingError
from allrail.runtime.message import ANY, Message
from allrail.runtime.nodes import Memory


@dataclass
class Kept:
    """Bytes that came before anyone wanted them."""

    source: int
    tag: int
    memory: Memory
    dtype: str


class Inbox:
    """What is wanted of all sources, and what has come too early."""

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self.changed = threading.Condition()
        self._wanted: list[Message] = []
        self._kept: list[Kept] = []
        self._failed: dict[int, Exception] = {}
        self.closed = False

    def want(self, message: Message) -> None:
        """Have a message received."""
        with self.changed:
            for one in self._kept:
                if message.source in {None, one.source} and message.tag == one.tag:
                    self._kept.remove(one)
                    break
            else:
                error = self._failed.get(
                    ANY if self.closed or message.source is None else message.source
                )
                if error is None:
                    self._wanted.append(message)
                    self.changed.notify_all()
                    return
                message.end(error)
                return
        fill(message, one)

    def wants(self, source: int) -> bool:
        """Whether anything is wanted that this source may send; called with the lock."""
        return any(message.source in {None, source} for message in self._wanted)

    def take(self, source: int, tag: int) -> Message | None:
        """The receive that a message goes to; called with the lock."""
        for message in self._wanted:
            if message.source in {None, source} and message.tag == tag:
                self._wanted.remove(message)
                return message
        return None

    def keep(self, kept: Kept) -> None:
        """Bytes have come that nobody wants so far."""
        with self.changed:
            message = self.take(kept.source, kept.tag)
            if message is None:
                self._kept.append(kept)
                return
        fill(message, kept)

    def fail(self, source: int, error: Exception) -> None:
        """Nothing comes of this source any more."""
        with self.changed:
            self._failed[source] = error
            if len(self._failed) == self._sources:
                self._failed[ANY] = error
            ended = {source, None} if ANY in self._failed else {source}
            self._end(lambda message: message.source in ended, error)

    def close(self) -> None:
        """Nothing is received any more."""
        error = TrainingError(
            "the group was closed while it was waited for a message",
            hint="wait for all messages before the group is destroyed",
        )
        with self.changed:
            self.closed = True
            self._failed[ANY] = error
            self._end(lambda _: True, error)
            self.changed.notify_all()

    def _end(self, concerned: Callable[[Message], bool], error: Exception) -> None:
        ended = [message for message in self._wanted if concerned(message)]
        self._wanted = [message for message in self._wanted if not concerned(message)]
        for message in ended:
            message.end(error)


def fill(message: Message, kept: Kept) -> None:
    """Give a receive what has come for it."""
    size = message.memory.held.nbytes
    message.source = kept.source
    sent = kept.memory.held.nbytes
    if (sent, kept.dtype) != (size, message.dtype):
        of_sent, of_awaited = ((f" of {one}" if one else "") for one in (kept.dtype, message.dtype))
        message.end(
            TrainingError(
                f"rank {kept.source} sends {sent} bytes{of_sent} with tag {kept.tag}; {size}"
                f"{of_awaited} are received",
                hint="receive what is sent, in its shape and type",
            )
        )
        return
    if size:
        ctypes.memmove(message.memory.held.pointer, kept.memory.held.pointer, size)
    message.end()
