"""Messages from one rank to another: a node of two for each direction, made when it is first used.

A message is a header (its tag, size and type) and its bytes, both broadcasts of the sender. A
direction has a thread on either side, which does one message after the other: so two ranks that
both send first do not wait for each other, and no call waits for a connection.

A message goes to the first receive, in the order in which they were asked for, that takes its
source and its tag. Of what a source sends, nothing is read before something of it is wanted. What
is in the way of what is wanted, as it has another tag, is kept until someone wants it.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Agreement, Patience
from allrail.runtime.job import Job, patience_of
from allrail.runtime.nodes import Calls, Memory, settings_of_group

_A_DAY = "86400 s"
"""A direction may be silent: it is the wait for a message that has a timeout."""
_ANY = -1
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
        self._box = _Box(ranks - 1)

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


class Message:
    """A message, on either side.

    Args:
        memory: Its bytes, which are read or written.
        tag: Tells it from others of the same direction.
        source: Who sends it; None where that may be anyone.
        about: What people call it, with the other side.
        patience: After how long a wait for it warns, and fails; None for that of a job file.
        dtype: The type of its elements; empty where they are bytes to both sides.
    """

    def __init__(
        self,
        memory: Memory,
        tag: int,
        source: int | None,
        *,
        about: str = "a message",
        patience: Patience | None = None,
        dtype: str = "",
    ) -> None:
        self.dtype = dtype
        self._about = about
        self._patience = patience or Patience()
        self._began = time.monotonic()
        self._warned = False
        self.memory = memory
        self.tag = tag
        self.source = source
        self._over = threading.Event()
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._told: list[Callable[[], None]] = []

    def wait(self, timeout: float) -> bool:
        """Wait, up to a number of seconds; return whether it is over, and raise if it failed."""
        end = time.monotonic() + timeout
        while not self._over.wait(max(0.0, min(end, self._due()) - time.monotonic())):
            if time.monotonic() >= self._due():
                self._is_late()
            if time.monotonic() >= end:
                return False
        if self._error is not None:
            raise self._error
        return True

    def _due(self) -> float:
        """When something is to be said of a wait that goes on."""
        patience = self._patience
        return self._began + (patience.stalled if self._warned else patience.warn)

    def _is_late(self) -> None:
        waited = time.monotonic() - self._began
        tag = f" with tag {self.tag}" if self.tag != _ANY else ""
        late = f"{self._about}{tag} waits for the other side for {waited:.0f} s"
        if self._warned:
            raise TrainingError(
                late,
                hint="look at what that rank does: every `send` needs a `recv` of its source and"
                " tag; or raise `timeouts.stalled`",
            )
        self._warned = True
        ends = f"it fails after {self._patience.stalled:.0f} s"
        warnings.warn(f"{late}; {ends}", RuntimeWarning, stacklevel=4)

    def when_over(self, told: Callable[[], None]) -> None:
        """Have something called, at once if it is over."""
        with self._lock:
            if not self._over.is_set():
                self._told.append(told)
                return
        told()

    def end(self, error: Exception | None = None) -> None:
        """It is over."""
        self._error = error
        with self._lock:
            self._over.set()
        for told in self._told:
            told()


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


@dataclass
class _Kept:
    """Bytes that came before anyone wanted them."""

    source: int
    tag: int
    memory: Memory
    dtype: str


class _Box:
    """What is wanted of all sources, and what has come too early."""

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self.changed = threading.Condition()
        self._wanted: list[Message] = []
        self._kept: list[_Kept] = []
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
                    _ANY if self.closed or message.source is None else message.source
                )
                if error is None:
                    self._wanted.append(message)
                    self.changed.notify_all()
                    return
                message.end(error)
                return
        _fill(message, one)

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

    def keep(self, kept: _Kept) -> None:
        """Bytes have come that nobody wants so far."""
        with self.changed:
            message = self.take(kept.source, kept.tag)
            if message is None:
                self._kept.append(kept)
                return
        _fill(message, kept)

    def fail(self, source: int, error: Exception) -> None:
        """Nothing comes of this source any more."""
        with self.changed:
            self._failed[source] = error
            if len(self._failed) == self._sources:
                self._failed[_ANY] = error
            ended = {source, None} if _ANY in self._failed else {source}
            self._end(lambda message: message.source in ended, error)

    def close(self) -> None:
        """Nothing is received any more."""
        error = TrainingError(
            "the group was closed while it was waited for a message",
            hint="wait for all messages before the group is destroyed",
        )
        with self.changed:
            self.closed = True
            self._failed[_ANY] = error
            self._end(lambda _: True, error)
            self.changed.notify_all()

    def _end(self, concerned: Callable[[Message], bool], error: Exception) -> None:
        ended = [message for message in self._wanted if concerned(message)]
        self._wanted = [message for message in self._wanted if not concerned(message)]
        for message in ended:
            message.end(error)


class _Incoming:
    """What another rank sends to this one, in order."""

    def __init__(self, direction: _Direction, box: _Box) -> None:
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
        kept = _Kept(source, tag, memory, dtype)
        if message is None:
            box.keep(kept)
        else:
            _fill(message, kept)
        return True


def _fill(message: Message, kept: _Kept) -> None:
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


def _header(tag: int, size: int, dtype: str) -> Memory:
    """What is sent ahead of a message."""
    return _memory_of(bytearray(_HEADER.pack(tag, size, dtype.encode())))


def _memory_of(room: bytearray) -> Memory:
    return Memory(_core.Memory.of_buffer(room), "uint8")
