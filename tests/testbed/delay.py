"""A switch whose cables are long: it takes frames in, keeps each for a while, and hands them on.

No kernel here has a queue that delays. So where a network has a delay, a process takes the place of
its bridge: it reads what comes out of every cable, whole as the sender's TCP made it (64 KiB and
more, cut into packets by nobody on the way), and writes it into the cable of whom it is for once
its time has come. Rates are those of the cables, as on any network. Nothing is dropped here: who
sends more than a cable carries is held back at its own end of it, and in the queue at the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import time
from collections import deque

_ALL_PROTOCOLS = 0x0003  # ETH_P_ALL
_SOL_PACKET = 263
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23
_SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

_HEADER = 10
"""What the kernel says of a frame before it: how it is to be cut, which checksum is missing."""

_LARGEST = 1 << 17
_BUFFER = 64 << 20
_AT_ONCE = 64
"""So many frames are read before it is looked whether others are due."""


def start_relay(ports: list[str], seconds: float) -> int:
    """Fork a process that joins these devices of this namespace; return its number.

    It ends with the process that started it.

    Args:
        ports: Names of the devices, this end of each cable.
        seconds: For how long each frame is kept.

    Raises:
        OSError: The kernel does not let us.
    """
    joined = [_open(port) for port in ports]
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        try:
            library = ctypes.CDLL(None)
            library.prctl(_SET_TIMER_SLACK, 1000, 0, 0, 0)
            library.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == parent:
                _relay(joined, seconds)
        finally:
            os._exit(1)
    for one in joined:
        one.close()
    return process


def _open(port: str) -> socket.socket:
    """Everything that comes out of a cable, and a way into it."""
    # Bound before it hears of any protocol: else it would hear of every device for a moment.
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    one.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    one.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    for option in (32, 33):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE: as large as asked for
        with contextlib.suppress(PermissionError):  # without root, as large as is allowed
            one.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    one.setblocking(False)
    one.bind((port, _ALL_PROTOCOLS))
    return one


def _relay(ports: list[socket.socket], seconds: float) -> None:
    """Hand frames on, for ever."""
    at: dict[bytes, socket.socket] = {}  # which cable an address was last heard on
    kept: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        left = max(0.0, kept[0][0] - time.monotonic()) if kept else None
        heard, _, _ = select.select(ports, [], [], left)
        now = time.monotonic()
        for port in heard:
            for _ in range(_AT_ONCE):
                try:
                    frame = port.recv(_LARGEST)
                except BlockingIOError:
                    break
                at[frame[_HEADER + 6 : _HEADER + 12]] = port
                kept.append((now + seconds, port, frame))
        while kept and kept[0][0] <= now:
            _, source, frame = kept.popleft()
            known = at.get(frame[_HEADER : _HEADER + 6])
            for port in ports if known is None else (known,):
                if port is not source:
                    _put(port, frame)


def _put(port: socket.socket, frame: bytes) -> None:
    # Its queue is full, the device is down, or its other end has gone.
    with contextlib.suppress(OSError):
        port.send(frame)
