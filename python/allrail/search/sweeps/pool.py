"""Workers on this machine: a process each.

Threads would do for long simulations, as the core works without Python's lock; what reads a
scenario and its result holds it, which for simulations of a millisecond is a tenth of the time.
A process that crashes or is killed for its memory costs a piece, not the sweep. Workers end when
their end of the pipe is closed, however this process ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import wait

from allrail.base import leftovers
from allrail.scenario import Scenario
from allrail.search.sweeps.tasks import Piece, Tasks, UnderWay
from allrail.simulation.plugins import loaded

AHEAD = 2
"""Pieces that a worker has, so that it need not wait for the next."""


class _Worker:
    """A process and the pieces that it was given, the one that it works on first.

    Attributes:
        given: The pieces.
        done: How many points of the first one are done.
    """

    def __init__(self, base: Scenario) -> None:
        self.pipe, theirs = Pipe()
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(  # noqa: S603, it is our own
            [sys.executable, "-m", "allrail.search.sweeps.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is this process's to answer
        )
        leftovers.note_process(self._process)
        theirs.close()
        self.given: list[Piece] = []
        self.done = 0.0
        self.pipe.send((base, loaded()))

    def give(self, piece: Piece) -> None:
        self.given.append(piece)
        self.pipe.send(piece)

    def end(self) -> int:
        self.pipe.close()
        self._process.terminate()
        status = self._process.wait()
        leftovers.forget_process(self._process)
        return status


def pooled(
    base: Scenario, tasks: Tasks, *, workers: int, under_way: UnderWay
) -> Iterator[tuple[str, ...]]:
    """Carry out all tasks.

    Args:
        base: What every point changes.
        tasks: What is to be done.
        workers: How many processes.
        under_way: What is told of pieces before they are done.

    Yields:
        Lines of the journal as they come.
    """
    running: list[_Worker] = []
    try:
        while True:
            for worker in running:
                _fill(worker, tasks)
            while len(running) < workers and (piece := tasks.next()) is not None:
                running.append(_Worker(base))
                _send(running[-1], piece)
            busy = {worker.pipe: worker for worker in running if worker.given}
            if not busy:
                return
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    done = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    running.remove(worker)
                    yield from _lost(worker, tasks)
                    continue
                if isinstance(done, float):
                    worker.done = done
                    under_way.tell(sum(one.done for one in running))
                    continue
                piece = worker.given.pop(0)
                worker.done = 0.0
                under_way.points = sum(one.done for one in running)
                _fill(worker, tasks)
                yield tasks.done(piece, done)
    finally:
        for worker in running:
            worker.end()


def _fill(worker: _Worker, tasks: Tasks) -> None:
    while len(worker.given) < AHEAD and (piece := tasks.next()) is not None:
        _send(worker, piece)


def _send(worker: _Worker, piece: Piece) -> None:
    # If it is gone, reading from it says so, and `given` has the piece.
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.give(piece)


def _lost(worker: _Worker, tasks: Tasks) -> Iterator[tuple[str, ...]]:
    status = worker.end()
    why = f"exit status {status}"
    if status < 0:
        why = f"killed by {signal.Signals(-status).name}; is there enough memory?"
    first, *others = worker.given
    yield tasks.lost(first, why)
    for piece in others:
        tasks.give_back(piece)
