"""Connections to a server that have proved nothing yet: few, and newcomers take their places.

A request is a head, which ends with an empty line, and what follows. Until a head is there and was
found right, a connection costs some bytes here and no thread. Of such connections no more than
`STRANGERS` are kept; one too many is hung up on: of whoever has most of them, the oldest. Whoever
is known sends its head with its connection, which is read as it comes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

STRANGERS = 128
_LONGEST_HEAD = 1 << 14
_BACKLOG = 4096
# Connections that are taken in before those that are there are looked after.
_AT_ONCE = 256
_END = b"\r\n\r\n"


class Known(NamedTuple):
    """A connection whose head was found right.

    Attributes:
        peer: It blocks, up to the time that the door's guests have.
        head: What it has said, up to the empty line.
        rest: What has come behind it.
    """

    peer: socket.socket
    head: bytes
    rest: bytes


class _Guest(NamedTuple):
    source: str
    until: float
    said: bytearray


class Door:
    """See the module; one thread at a time.

    Args:
        host: Where to listen.
        port: The port; any free one if 0.
        is_right: Whether a head is of someone who is known.
        refusal: What others are told.
        patience: Seconds until a connection that has proved nothing is hung up on.

    Attributes:
        port: The port.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        is_right: Callable[[bytes], bool],
        *,
        refusal: bytes = b"",
        patience: float = 5.0,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)  # noqa: FBT003 - as sockets have it
        self.port: int = self._listener.getsockname()[1]
        self._is_right, self._refusal, self._patience = is_right, refusal, patience
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        # Oldest first; and of each source.
        self._guests: dict[socket.socket, _Guest] = {}
        self._crowds: dict[str, dict[socket.socket, None]] = {}

    def close(self) -> None:
        """Hang up on everyone who is still there."""
        for peer in list(self._guests):
            self._leave(peer)
        self._selector.close()
        self._listener.close()

    def wait(self, timeout: float) -> Iterator[Known]:
        """Yield who has proved to be known, within some seconds.

        Args:
            timeout: Seconds.
        """
        for key, _ in self._selector.select(timeout):
            peer = key.fileobj
            if peer is self._listener:
                yield from self._accept()
            elif isinstance(peer, socket.socket) and peer in self._guests:
                yield from self._look_at(peer)
        now = time.monotonic()
        while self._guests:
            peer, guest = next(iter(self._guests.items()))
            if guest.until > now:
                break
            self._leave(peer)

    def _accept(self) -> Iterator[Known]:
        for _ in range(_AT_ONCE):
            try:
                peer, (source, *_) = self._listener.accept()
            except OSError:
                return
            peer.setblocking(False)  # noqa: FBT003
            self._guests[peer] = _Guest(source, time.monotonic() + self._patience, bytearray())
            self._crowds.setdefault(source, {})[peer] = None
            self._selector.register(peer, selectors.EVENT_READ)
            yield from self._look_at(peer)
            if len(self._guests) > STRANGERS:
                crowd = max(self._crowds.values(), key=len)
                self._leave(next(iter(crowd)))

    def _look_at(self, peer: socket.socket) -> Iterator[Known]:
        said = self._guests[peer].said
        try:
            more = peer.recv(_LONGEST_HEAD)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            more = b""
        said += more
        if not more or (_END not in said and len(said) > _LONGEST_HEAD):
            self._leave(peer)
        elif _END in said:
            head, _, rest = bytes(said).partition(_END)
            if self._is_right(head):
                self._forget(peer)
                peer.settimeout(self._patience)
                yield Known(peer, head, rest)
            else:
                with contextlib.suppress(OSError):
                    peer.send(self._refusal)
                self._leave(peer)

    def _leave(self, peer: socket.socket) -> None:
        self._forget(peer)
        peer.close()

    def _forget(self, peer: socket.socket) -> None:
        self._selector.unregister(peer)
        source = self._guests.pop(peer).source
        crowd = self._crowds[source]
        del crowd[peer]
        if not crowd:
            del self._crowds[source]
