"""How ranks on one host come to share a secret: over a local socket that knows its peer's user.

Rank 0 draws the secret and listens at an abstract Unix address, which the network namespace has and
no folder. Through the store goes the address alone. Either side asks the kernel for the user of the
other (`SO_PEERCRED`) and goes on with its own only, so it does not matter who can read or change
the store, nor whether ranks see the same files: containers that share a network will do.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Self

from allrail.base.errors import InputError
from allrail.runtime.agreement import Agreement

_DIGITS = 64
_PATIENCE = 10.0
_PREFIX = "allrail secret "
_BACKLOG = 4096
_HINT = (
    "run all ranks on a host as one user, or name a file in `secret`: `openssl rand -hex 32 >"
    " job.secret && chmod 600 job.secret`"
)


def hand_over(agreement: Agreement, *, or_by_store: bool = False) -> str:
    """Return a secret that rank 0 has drawn, the same on all ranks of this host.

    Args:
        agreement: Among ranks that share a network namespace.
        or_by_store: Whether it goes through the store, with a warning, where a rank cannot have it
            otherwise; what rank 0 says counts.

    Raises:
        InputError: A rank cannot have it; it is raised on all ranks.
    """
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(_Giver()) if agreement.rank == 0 else None
        name = agreement.on("secret at", mine and mine.name, lambda said: said[0])
        secret, why = (mine.secret, None) if mine else _take(name)
        # The giver stays until all have it.
        why = agreement.on("secret taken", why, _first)
    if why is None:
        return secret
    drawn_here = secrets.token_hex(_DIGITS // 2) if agreement.rank == 0 and or_by_store else None
    if drawn_here is not None:
        warnings.warn(
            f"the secret of this job cannot be handed over on this host: {why}; it goes through the"
            f" job's store, which others may read. To keep it from them, {_HINT}",
            RuntimeWarning,
            stacklevel=2,
        )
    # As rank 0 says: what a rank reads in the store must not make another write its secret there.
    drawn: str | None = agreement.on("drawn", drawn_here, lambda said: said[0])
    if drawn is None:
        why = f"it cannot be handed over on this host: {why}"
        raise InputError(why, field="secret", hint=_HINT)
    return drawn


def _first(said: list[str | None]) -> str | None:
    return next((f"rank {rank}: {why}" for rank, why in enumerate(said) if why is not None), None)


class _Giver:
    """Gives a secret to every process of this user that asks; within it."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(_DIGITS // 2)
        self.name = _PREFIX + secrets.token_hex(16)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(_BACKLOG)
        self._thread = threading.Thread(target=self._give, name="allrail secret", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _give(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return  # it is over
            with peer, contextlib.suppress(OSError):
                if _stranger(peer) is None:
                    peer.settimeout(0.0)  # so few bytes have room
                    peer.sendall(self.secret.encode())


def _take(name: object) -> tuple[str, str | None]:
    """Return the secret that is given there, or why there is none."""
    if not isinstance(name, str) or not name.startswith(_PREFIX):
        return "", "the store holds no address of rank 0"
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.settimeout(_PATIENCE)
                peer.connect(f"\0{name}")
                if (why := _stranger(peer)) is not None:
                    return "", why
                with peer.makefile("rb") as words:
                    text = words.read(_DIGITS + 1).decode("ascii", "replace")
        except BlockingIOError:  # too many wait there
            if time.monotonic() < until:
                time.sleep(0.01)
                continue
            return "", "rank 0 does not answer"
        except (OSError, ValueError) as error:
            return "", getattr(error, "strerror", None) or str(error)
        # Hung up on, where the other side takes this one for another user's.
        return (text, None) if len(text) == _DIGITS else ("", "rank 0 has not given it")


def _stranger(peer: socket.socket) -> str | None:
    """Return why a peer is not of this process' user; None where it is."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    mine = os.geteuid()
    if user != mine:
        return (
            f"user {user} runs rank 0, or another process at its address, and this is user {mine}"
        )
    if mine == _nobody() and not _knows_all_users():
        return f"user {mine} stands for all users that this user namespace does not know"
    return None


def _nobody() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 65534


def _knows_all_users() -> bool:
    """Whether no user is shown as another one."""
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    return sum(int(line.split()[2]) for line in lines) >= 2**32 - 1
