"""Messages from one rank to another: a node of two for each direction, made when it is first used.

A message is a header (its tag, size and type) and its bytes, both broadcasts of the sender. A
direction has a thread on either side, which does one message after the other: so two ranks that
both send first do not wait for each other, and no call waits for a connection.

A message goes to the first receive, in the order in which they were asked for, that takes its
source and its tag. Of what a source sends, nothing is read before something of it is wanted. What
is in the way of what is wanted, as it has another tag, is kept until someone wants it.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from typing import Any

from allrail import _core
from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Agreement, Patience
from allrail.runtime.inbox import Inbox, Kept, fill
from allrail.runtime.job import Job, patience_of
from allrail.runtime.message import Message
from allrail.runtime.nodes import Calls, Memory, settings_of_group

_A_DAY = "86400 s"
"""A direction may be silent: it is the wait for a message that has a timeout."""
_HEADER = struct.Struct("qq32s")
"""Tag, size in bytes, and the name of the type, which is at most so long."""
_MOST_PAUSE = 0.05
"""How often it is looked whether the other side of a direction has come, s."""


class Messages:
    """The directions that this rank has used.

    Args:
        store: Where two ranks find each other.
        rank: This process in the group.
        ranks: How many there are.
        job: The job, as two ranks see it.
        name: Tells the messages of one group from those of others that use the store.
        patience: After how long a wait for a message warns, and fails; None for that of the job.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        ranks: int,
        job: Job,
        name: str = "",
        *,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._rank = rank
        self._ranks = ranks
        self._job = job
        self._patience = patience or patience_of(job)
        self._lock = threading.Lock()
        self._outgoing: dict[int, _Outgoing] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._box = Inbox(ranks - 1)

    def send(self, memory: Memory, target: int, tag: int = 0, *, dtype: str = "") -> Message:
        """Send bytes to a rank; leave them alone until the message is over.

        Args:
            memory: The bytes.
            target: The rank.
            tag: Tells the message from others to it.
            dtype: The type of its elements; empty where they are bytes to both sides.
        """
        about = f"a message to rank {target}"
        patience = self._patience
        message = Message(memory, tag, self._rank, about=about, patience=patience, dtype=dtype)
        with self._lock:
            if target not in self._outgoing:
                self._outgoing[target] = _Outgoing(self._direction(self._rank, target))
        self._outgoing[target].post(message)
        return message

    def receive(
        self, memory: Memory, source: int | None, tag: int = 0, *, dtype: str = ""
    ) -> Message:
        """Receive as many bytes from a rank, or from any if `source` is None.

        Args:
            memory: Where they go.
            source: The rank.
            tag: That of the message.
            dtype: The type of its elements, which has to be the sender's.
        """
        others = [rank for rank in range(self._ranks) if rank != self._rank]
        about = f"a message from {'any rank' if source is None else f'rank {source}'}"
        patience = self._patience
        message = Message(memory, tag, source, about=about, patience=patience, dtype=dtype)
        with self._lock:
            for one in others if source is None else [source]:
                if one not in self._incoming:
                    self._incoming[one] = _Incoming(self._direction(one, self._rank), self._box)
        self._box.want(message)
        return message

    def close(self) -> None:
        """End all directions; what is under way fails."""
        self._box.close()
        for outgoing in self._outgoing.values():
            outgoing.close()
        for incoming in self._incoming.values():
            incoming.close()

    def _direction(self, source: int, target: int) -> _Direction:
        place = int(self._rank == target)
        return _Direction(self._store, self._job, (source, target), place, self._name)


class _Direction:
    """The connection of a direction; `place` 0 is the sender."""

    def __init__(self, store: Any, job: Job, ends: tuple[int, int], place: int, name: str) -> None:
        self.source, self.target = ends
        self._name = name
        self.closed = threading.Event()
        self._store = store
        self._job = job
        self._place = place
        self._calls: Calls | None = None

    def broadcast(self, memory: Memory) -> None:
        """Exchange bytes with the other side, which connects both first."""
        if self._calls is None:
            self._calls = self._connected()
        calls = self._calls
        calls.finish(calls.begin("broadcast", memory))

    def close(self) -> None:
        self.closed.set()
        if self._calls is not None:
            self._calls.close()

    def _connected(self) -> Calls:
        name = f"{self._name}from {self.source} to {self.target}"
        pair = (self.source, self.target)
        agreement = Agreement(self._store, self._place, 2, name, meets=False, called=pair)
        here = f"allrail/{agreement.name}/here"
        self._store.set(f"{here}/{self._place}", "1")
        pause = 0.001
        while not self._has_come(f"{here}/{1 - self._place}"):
            if self.closed.wait(pause):
                raise self.gone()
            pause = min(1.5 * pause, _MOST_PAUSE)
        settings = settings_of_group(self._job, agreement)
        timeouts = settings.get("timeouts", {}) | {"warn": _A_DAY, "stalled": _A_DAY}
        about = f"messages {name} (of the two, rank 0 sends and rank 1 receives)"
        calls = Calls(settings | {"timeouts": timeouts}, agreement, about=about)
        if self.closed.is_set():
            calls.close()
        return calls

    def _has_come(self, key: str) -> bool:
        if hasattr(self._store, "check"):
            return bool(self._store.check([key]))
        try:
            self._store.get(key)
        except RuntimeError:  # of a store that waits itself, for a while
            return False
        return True

    def gone(self) -> TrainingError:
        return TrainingError(
            f"the group was closed while a message from rank {self.source} to rank {self.target}"
            " was under way",
            hint="wait for all messages before the group is destroyed",
        )


class _Outgoing:
    """What this rank sends to another one, in order."""

    def __init__(self, direction: _Direction) -> None:
        self._direction = direction
        self._changed = threading.Condition()
        self._posted: deque[Message] = deque()
        threading.Thread(target=self._run, name="allrail messages", daemon=True).start()

    def post(self, message: Message) -> None:
        with self._changed:
            self._posted.append(message)
            self._changed.notify()

    def close(self) -> None:
        self._direction.close()
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        failed: Exception | None = None
        while True:
            with self._changed:
                while not self._posted:
                    if self._direction.closed.is_set():
                        return
                    self._changed.wait()
                message = self._posted.popleft()
            try:
                if failed is None:
                    size = message.memory.held.nbytes
                    self._direction.broadcast(_header(message.tag, size, message.dtype))
                    if message.memory.held.nbytes:
                        self._direction.broadcast(message.memory)
            except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                failed = error
            message.end(failed)
            del message


class _Incoming:
    """What another rank sends to this one, in order."""

    def __init__(self, direction: _Direction, box: Inbox) -> None:
        self._direction = direction
        self._box = box
        threading.Thread(target=self._run, name="allrail messages", daemon=True).start()

    def close(self) -> None:
        self._direction.close()

    def _run(self) -> None:
        source = self._direction.source
        while self._is_wanted(source):
            try:
                header = bytearray(_HEADER.size)
                self._direction.broadcast(_memory_of(header))
                tag, size, dtype = _HEADER.unpack(header)
                if not self._receive(source, tag, size, dtype.rstrip(b"\0").decode()):
                    return
            except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                self._box.fail(source, error)
                return

    def _is_wanted(self, source: int) -> bool:
        """Wait until this source is wanted; return whether it ever will be."""
        with self._box.changed:
            self._box.changed.wait_for(lambda: self._box.closed or self._box.wants(source))
            return not self._box.closed

    def _receive(self, source: int, tag: int, size: int, dtype: str) -> bool:
        """Receive what a header was sent ahead of, for whoever wants it."""
        box = self._box
        with box.changed:
            message = box.take(source, tag)
            while message is None and not box.wants(source):
                if box.closed:
                    return False
                box.changed.wait()
                message = box.take(source, tag)
        fits = message is not None and message.memory.held.nbytes == size
        if message is not None and fits and message.dtype == dtype:
            try:
                if size:
                    self._direction.broadcast(message.memory)
            except Exception as error:
                message.end(error)
                raise
            message.source = source
            message.end()
            return True
        room = bytearray(size)
        memory = _memory_of(room)
        if size:
            self._direction.broadcast(memory)
        kept = Kept(source, tag, memory, dtype)
        if message is None:
            box.keep(kept)
        else:
            fill(message, kept)
        return True


def _header(tag: int, size: int, dtype: str) -> Memory:
    """What is sent ahead of a message."""
    return _memory_of(bytearray(_HEADER.pack(tag, size, dtype.encode())))


def _memory_of(room: bytearray) -> Memory:
    return Memory(_core.Memory.of_buffer(room), "uint8")
