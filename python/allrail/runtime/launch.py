"""Ranks as processes of this host: started, heard, ended together; of several, one launcher each.

Each rank is the leader of a process group of its own, so that what it has started ends with it. One
loop reads what all of them print, and looks who has ended; nothing else runs beside it but the
store, by which ranks find each other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO

from allrail.base.arguments import Kind, PathLike, check, checked
from allrail.base.errors import InputError
from allrail.runtime.environment import ADDRESS, OURS, TOKEN
from allrail.runtime.several import Hosts, hosts_of
from allrail.runtime.store import Server

# Seconds that ranks have to end by themselves once they are asked to; of a look at who has ended.
_GRACE = 5.0
_LOOK = 0.05
_LONGEST_LINE = 1 << 16
_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@checked
def launch(
    command: Sequence[str],
    *,
    ranks: int,
    nodes: int = 1,
    node_rank: int | None = None,
    rendezvous: str | None = None,
    token_file: PathLike | None = None,
) -> int:
    """Run a command as several ranks, on this host or on several, and return when all have ended.

    What ranks print is printed line by line, each line behind the rank's number; when one fails,
    the others are told to end.

    Args:
        command: The program and its arguments.
        ranks: Number of ranks on this host.
        nodes: Number of hosts, with the same number of ranks each.
        node_rank: Index of this host, from 0.
        rendezvous: `HOST:PORT` of node 0, the same on every host.
        token_file: File with the job's shared token; else `ALLRAIL_STORE_TOKEN` has it.

    Returns:
        0, or the exit status of the rank that failed first.

    Raises:
        InputError: The command cannot be started, or arguments do not fit each other.

    Example:
        `allrail.launch(["python", "train.py"], ranks=4)`
    """
    check("command", command, kind=COMMAND)
    for name, count in (("ranks", ranks), ("nodes", nodes)):
        if count < 1:
            raise InputError("it is below 1", field=name, value=str(count))
    token = None if token_file is None else Path(token_file)
    hosts = hosts_of(nodes, node_rank, rendezvous, token)
    return run_ranks(command, ranks=ranks, hosts=hosts)


COMMAND = Kind(
    lambda value: (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(one, str) for one in value)
    ),
    "a list of texts",
    '["python", "train.py"]',
)


def run_ranks(command: Sequence[str], *, ranks: int, hosts: Hosts | None = None) -> int:
    """Run a command as so many ranks, and return when all have ended.

    What they print is printed line by line, each line behind the rank's number. When one fails, or
    when this process is told to end, the others are told to; who has not ended after five seconds
    is killed.

    Args:
        command: The program and its arguments.
        ranks: How often it is started on this host.
        hosts: The hosts of the job; None for this one alone.

    Returns:
        0, or the status of the rank that failed first; 128 and a signal's number where that ended
        it, or this process.

    Raises:
        InputError: The command cannot be started.
    """
    if hosts is None:
        token = secrets.token_hex(32)
        server: Server | None = (mine := Server(token))
        address, number, count = mine.address, 0, 1
    else:
        token, address, number, count = hosts.token, hosts.address, hosts.mine, hosts.count
        server = hosts.serve()
    try:
        environment = {ADDRESS: address, TOKEN: token, OURS.ranks: str(count * ranks)}
        job = _Ranks(command, range(number * ranks, (number + 1) * ranks), environment)
        with contextlib.closing(job):
            status = job.run()
        if hosts is not None:
            hosts.end(status)
        return status
    finally:
        if server is not None:
            server.close()


class _Ranks:
    """The processes of a job on this host, from its lowest rank on."""

    def __init__(self, command: Sequence[str], ranks: range, environment: dict[str, str]) -> None:
        self._selector = selectors.DefaultSelector()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._command = command
        self._ranks = ranks
        self._environment = environment
        # What is to be returned, once it is known; and until when ranks may end by themselves.
        self._status: int | None = None
        self._until = float("inf")

    def close(self) -> None:
        """Nothing of any rank is left after it."""
        for process in self._processes:
            self._signal(process, signal.SIGKILL)
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._selector.close()

    def run(self) -> int:
        with self._signals():
            for place in range(len(self._ranks)):
                self._start(place)
            left = set(range(len(self._ranks)))
            while left:
                self._print(_LOOK)
                left -= {place for place in left if self._has_ended(place)}
                if time.monotonic() > self._until:
                    for place in left:
                        self._signal(self._processes[place], signal.SIGKILL)
            # What they have started may still hold their output: it ends with them.
            for process in self._processes:
                self._signal(process, signal.SIGKILL)
            while self._selector.get_map() and self._print(_LOOK):
                pass
            for key in list(self._selector.get_map().values()):
                self._end_of(key)
        return self._status or 0

    def _start(self, place: int) -> None:
        rank = self._ranks[place]
        ours = {OURS.rank: str(rank), OURS.local_rank: str(place)}
        environment = os.environ | self._environment | ours
        # Lines are to come when they are printed, not when the rank ends.
        environment.setdefault("PYTHONUNBUFFERED", "1")
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(
                f"it cannot be started: {error.strerror}",
                field="command",
                value=self._command[0],
                hint="give a program and its arguments: `allrail launch -n 4 python train.py`",
            ) from error
        self._processes.append(process)
        for stream, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                lines = _Lines(f"[{rank}] ", target)
                self._selector.register(stream, selectors.EVENT_READ, lines)

    def _print(self, timeout: float) -> bool:
        """Print what ranks have; return whether there was anything."""
        found = self._selector.select(timeout)
        for key, _ in found:
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]  # as it was registered
            if data := os.read(stream.fileno(), _LONGEST_LINE):
                key.data.take(data)
            else:
                self._end_of(key)
        return bool(found)

    def _end_of(self, key: selectors.SelectorKey) -> None:
        key.data.end()
        self._selector.unregister(key.fileobj)

    def _has_ended(self, place: int) -> bool:
        # It stays a zombie until `close`: so nobody else can get its number, or its group's.
        found = os.waitid(os.P_PID, self._processes[place].pid, _ENDED)
        if found is None:
            return False
        status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if status != 0 and self._status is None:
            how = f"with status {status}" if status > 0 else f"by {signal.Signals(-status).name}"
            print(f"rank {self._ranks[place]} has ended {how}; ending the others", file=sys.stderr)  # noqa: T201
            self._end(status if status > 0 else 128 - status, signal.SIGTERM)
        return True

    def _end(self, status: int, by: int) -> None:
        """Tell all to end; what is to be returned then."""
        self._status = status
        self._until = time.monotonic() + _GRACE
        for process in self._processes:
            self._signal(process, by)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Within it, a signal to end goes to all ranks; again, it kills them."""

        def pass_on(number: int, _: FrameType | None) -> None:
            if self._status is None:
                self._end(128 + number, number)
            else:
                self._until = 0.0

        before: dict[int, Any] = {one: signal.signal(one, pass_on) for one in _PASSED_ON}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: int) -> None:
        # The group has its leader's number, and stays as long as one of it does.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


class _Lines:
    """Puts a prefix before each line of a stream, and never mixes two ranks' lines."""

    def __init__(self, prefix: str, target: TextIO) -> None:
        self._prefix = prefix
        self._target = target
        self._rest = b""

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._target.write(f"{self._prefix}{line.decode(errors='replace')}\n")
        self._target.flush()

    def end(self) -> None:
        """The stream is over: its last line may have no end."""
        if self._rest:
            self.take(b"\n")
