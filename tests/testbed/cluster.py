"""Workers, forked from this process into namespaces of their own.

A process in between, the *switch*, has a namespace with one bridge a network and no route out of
it; each worker has one with a device a network. They are forked, so a parent that has imported a
heavy package gives it to all of them at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from testbed.delay import start_relay
from testbed.namespaces import configure, enter_new
from testbed.network import Network


class WorkerFailedError(RuntimeError):
    """A worker raised, or is gone; the text has its traceback."""


@dataclass(frozen=True)
class Ran:
    """What came of a run.

    Attributes:
        results: What each worker returned.
        died: Workers that left without an answer, where that was allowed.
        setup: Seconds until the workers could begin.
    """

    results: list[Any]
    died: list[int]
    setup: float


@dataclass(frozen=True)
class Cluster:
    """So many workers, each with a cable to every network.

    Attributes:
        workers: How many.
        networks: The switches. Worker `i` has the address `address(i, n)` in the `n`-th.
        congestion_control: TCP's, where the kernel lets us choose; some defaults pace on their own.
    """

    workers: int
    networks: Sequence[Network]
    congestion_control: str = "cubic"

    @staticmethod
    def address(worker: int, network: int = 0) -> str:
        """Return a worker's address in one of the networks.

        Args:
            worker: From 0.
            network: From 0.
        """
        return f"10.77.{network + 1}.{worker + 1}"

    @staticmethod
    def device(network: int = 0) -> str:
        """Return the name of a worker's device in one of the networks.

        Args:
            network: From 0.
        """
        return f"net{network + 1}"

    def run(
        self, work: Callable[[int], Any], *, timeout: float = 300.0, may_die: bool = False
    ) -> Ran:
        """Run a function in every worker, side by side.

        Args:
            work: Called with the worker's number. What it returns must pickle.
            timeout: Seconds after which a worker is ended.
            may_die: A worker that is killed is no error.

        Raises:
            WorkerFailedError: A worker raised, hung or died; or the networks could not be made.
        """
        read, write = os.pipe()
        switch = _fork()
        if switch == 0:
            os.close(read)
            _answer(write, lambda: self._switch(work, timeout))
        os.close(write)
        answer = _read(read)
        os.waitpid(switch, 0)
        if answer is None:
            raise WorkerFailedError("the process that holds the networks is gone")
        if isinstance(answer, str):
            raise WorkerFailedError(answer)
        setup, answers = answer
        died = [worker for worker, one in enumerate(answers) if one is None]
        failed = [f"worker {i}: {one}" for i, one in enumerate(answers) if isinstance(one, str)]
        if not may_die:
            failed += [f"worker {worker} is gone" for worker in died]
        if failed:
            raise WorkerFailedError("\n".join(failed))
        return Ran([None if one is None else one[0] for one in answers], died, setup)

    def _switch(self, work: Callable[[int], Any], timeout: float) -> tuple[float, list[Any]]:
        begun = time.monotonic()
        enter_new()
        networks = range(len(self.networks))
        bridged = [n for n in networks if not self.networks[n].delay]
        bridges = ((f"link add bridge{n} type bridge", f"link set bridge{n} up") for n in bridged)
        configure("ip", ["link set lo up", *(line for pair in bridges for line in pair)])
        workers = [_Worker.fork(i, self, work, timeout) for i in range(self.workers)]
        for worker in workers:
            worker.wait_for(b"namespace")
        configure(
            "ip",
            [
                line
                for i, worker in enumerate(workers)
                for n in networks
                for line in (
                    _cable(f"port{i}.{n}", self.device(n), worker.process),
                    f"link set port{i}.{n} {f'master bridge{n}' if n in bridged else ''} up",
                )
            ],
        )
        shaped = (
            self.networks[n].shaped(f"port{i}.{n}") for i in range(self.workers) for n in networks
        )
        configure("tc", [line for lines in shaped for line in lines])
        for n in networks:
            if n not in bridged:
                ports = [f"port{i}.{n}" for i in range(self.workers)]
                start_relay(ports, self.networks[n].delay)
        for stage in (b"devices", b"work"):
            for worker in workers:
                worker.tell(stage)
            if stage == b"devices":
                for worker in workers:
                    worker.wait_for(b"devices")
        setup = time.monotonic() - begun
        return setup, [worker.answer() for worker in workers]

    def _join(self, worker: int) -> None:
        """In a worker: its devices get addresses, a rate and a congestion control."""
        networks = range(len(self.networks))
        lines = (
            (
                f"addr add {self.address(worker, n)}/24 dev {self.device(n)}",
                f"link set {self.device(n)} up",
            )
            for n in networks
        )
        configure("ip", ["link set lo up", *(line for pair in lines for line in pair)])
        shaped = (self.networks[n].shaped(self.device(n)) for n in networks)
        configure("tc", [line for lines in shaped for line in lines])
        with contextlib.suppress(OSError):  # without root the kernel keeps its own
            control = Path("/proc/sys/net/ipv4/tcp_congestion_control")
            control.write_text(self.congestion_control)


@dataclass(frozen=True)
class _Worker:
    """As the switch sees it: its process, and pipes to it and from it."""

    process: int
    to: int
    events: int
    result: int

    @classmethod
    def fork(
        cls, number: int, cluster: Cluster, work: Callable[[int], Any], timeout: float
    ) -> _Worker:
        told, to = os.pipe()
        events, event = os.pipe()
        result, answer = os.pipe()
        process = _fork()
        if process == 0:
            for end in (to, events, result):
                os.close(end)

            def run() -> tuple[Any]:
                enter_new()
                os.write(event, b"namespace\n")
                _line(told)
                cluster._join(number)
                os.write(event, b"devices\n")
                _line(told)
                signal.setitimer(signal.ITIMER_REAL, timeout)
                return (work(number),)

            _answer(answer, run)
        for end in (told, event, answer):
            os.close(end)
        return cls(process, to, events, result)

    def tell(self, stage: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.to, stage + b"\n")

    def wait_for(self, stage: bytes) -> None:
        if _line(self.events) != stage:
            answer = self.answer()
            raise WorkerFailedError(answer if isinstance(answer, str) else "a worker is gone")

    def answer(self) -> Any:
        answer = _read(self.result)
        os.waitpid(self.process, 0)
        return answer


def _cable(port: str, device: str, process: int) -> str:
    """The command of `ip` that puts one end here and the other into a process's namespace."""
    return f"link add {port} type veth peer name {device} netns {process}"


def _fork() -> int:
    """As `os.fork`; what was printed and not written yet is written once."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        # What the parent has dropped is not for a child to end: threads are not here to be joined.
        gc.freeze()
    return process


def _answer(pipe: int, work: Callable[[], Any]) -> NoReturn:
    """Write what `work` returns, or its traceback, and end this process."""
    try:
        answer = work()
    except BaseException:  # noqa: BLE001  it must not go on in the parent's code
        answer = traceback.format_exc()
    try:
        data = pickle.dumps(answer)
    except Exception:  # noqa: BLE001  pickle raises what it likes
        data = pickle.dumps(traceback.format_exc())
    with os.fdopen(pipe, "wb") as file:
        file.write(data)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _read(pipe: int) -> Any:
    """What was written into a pipe until its end; `None` if that was nothing."""
    with os.fdopen(pipe, "rb") as file:
        data = file.read()
    return pickle.loads(data) if data else None  # from our own child


def _line(pipe: int) -> bytes:
    """The next line from a pipe; shorter at its end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(pipe, 1)
        if not byte:
            break
        line += byte
    return line.rstrip(b"\n")
