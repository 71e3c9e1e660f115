"""Futures of collectives, and the threads that complete them.

What is attached to a future is a user's code, which may wait for another collective: torch's own
PowerSGD hook does. So whichever thread completes a future stops watching first, and another one
watches: there are as many threads as callbacks wait at once, and one where none does. Those of one
future run one after the other, as torch runs them.

Ranks pair collectives by the order in which they are begun, which callbacks do not have: on one
rank they run before the next gradient is ready, on another one after it. Collectives that a
callback begins are paired by name instead: that of the future's collective, which callback of it,
and which collective of that. So `Future` is a class of its own, which knows what is attached.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import torch

from allrail.torch import private

_IDLE = 30.0
"""A thread that has had nothing to do for so long ends, s."""
_LOOK = 1.0
"""How long completions are waited for at once, s."""

_begun_in: dict[int, Iterator[str]] = {}
"""The names of the next collectives, of threads that run a callback."""


def name_here(thread: int) -> str | None:
    """What a collective that this thread begins is called; None outside of callbacks."""
    names = _begun_in.get(thread)
    return next(names) if names is not None else None


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """Within it, collectives of this thread are called after the callback of this name."""
    thread = threading.get_ident()
    before = _begun_in.pop(thread, None)
    if name:
        _begun_in[thread] = (f"{name}, call {number}" for number in itertools.count())
    try:
        yield
    finally:
        _begun_in.pop(thread, None)
        if before is not None:
            _begun_in[thread] = before


class Future(torch.futures.Future[Any]):
    """The future of a collective.

    Args:
        name: What the collective is called on all ranks; empty if it has no name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._attached = itertools.count()
        self._line: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._runner: int | None = None

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """Run a callback when it is complete; return the future of what that returns."""
        name = self._next()
        child = Future(name and f"{name}, result")

        def run() -> None:
            try:
                with _inside(name):
                    result = callback(self)
            except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                child.fail(error)
            else:
                child.set_result(result)

        self._attach(run)
        return child

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Run a callback when it is complete."""
        name = self._next()

        def run() -> None:
            with _inside(name):
                callback(self)

        self._attach(run)

    def fail(self, error: Exception) -> None:
        """Complete it with an error, which every reader raises.

        `set_exception` would have C++ look for tensors in the error, find none, and read one:
        under `DistributedDataParallel` that ends the process.
        """
        private.set_unwrap(self, _Failed.reveal)
        self.set_result(_Failed(error))

    def _attach(self, run: Callable[[], None]) -> None:
        """Have a callback run after all that were attached before it.

        torch runs one that is attached to a complete future at once, beside those that its
        completion still runs.
        """
        with self._lock:
            self._line.append(run)
        super().add_done_callback(self._run_all)

    def _run_all(self, _: object) -> None:
        """The future is complete: run what is attached, unless another thread is about it."""
        thread = threading.get_ident()
        with self._lock:
            if self._runner not in (None, thread):
                return
            outermost, self._runner = self._runner is None, thread
        failed: Exception | None = None
        while True:
            with self._lock:
                if not self._line:
                    if outermost:
                        self._runner = None
                    break
                run = self._line.popleft()
            try:
                run()
            except Exception as error:  # noqa: BLE001 - torch logs what is raised
                failed = error
        if failed is not None:
            raise failed

    def _next(self) -> str:
        return f"{self._name}, callback {next(self._attached)}" if self._name else ""


class _Failed:
    """Stands for tensors that are not there; C++, which pickles it to find some, gets the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def reveal(self) -> NoReturn:
        raise self._error

    def __reduce__(self) -> NoReturn:
        raise self._error

    def __repr__(self) -> str:
        """What went wrong: C++ that takes it for a tensor says this, and no more."""
        return str(self._error)


class Watched(Protocol):
    """What a follower completes."""

    def complete(self, timeout: float) -> bool:
        """Wait for it, up to a number of seconds; return whether it is over."""

    def publish(self) -> None:
        """Complete its future, which runs what is attached."""


class Follower:
    """Completes the futures of works.

    At most one thread watches. One that publishes runs a user's code and counts as busy, so that
    another one is there for whatever comes.

    Args:
        wait: Waits, up to a number of seconds, until some collective may be over.
    """

    def __init__(self, wait: Callable[[float], object]) -> None:
        self._wait = wait
        self._changed = threading.Condition()
        self._under_way: list[Watched] = []
        self._over: deque[Watched] = deque()
        self._is_watched = False
        self._threads = 0
        self._busy = 0
        self._closed = False

    def follow(self, work: Watched) -> None:
        """Watch a work, and publish it once it is over."""
        with self._changed:
            self._under_way.append(work)
        # If it is over by now, its end may have been noticed before it was in the list.
        if work.complete(0.0):
            self._move([work])
        with self._changed:
            self._summon()

    def publish(self, work: Watched) -> None:
        """Publish a work that is over, on a thread that may wait."""
        with self._changed:
            self._over.append(work)
            self._summon()

    def close(self) -> None:
        """Let all threads end, once nothing is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _summon(self) -> None:
        """See to it that all that is to be done has a thread; called with the lock."""
        wanted = len(self._over) + bool(self._under_way)
        self._changed.notify(wanted)
        for _ in range(wanted - (self._threads - self._busy)):
            self._threads += 1
            threading.Thread(target=self._run, name="allrail futures", daemon=True).start()

    def _move(self, works: list[Watched]) -> None:
        """These are over."""
        with self._changed:
            for work in works:
                if any(one is work for one in self._under_way):
                    self._under_way = [one for one in self._under_way if one is not work]
                    self._over.append(work)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._over and (self._is_watched or not self._under_way):
                    ended = not self._under_way and self._closed
                    if ended or not self._changed.wait(_IDLE):
                        self._threads -= 1
                        self._summon()
                        return
                work = self._over.popleft() if self._over else None
                if work is None:
                    self._is_watched = True
                else:
                    self._busy += 1
                    self._summon()
            if work is None:
                self._watch()
            else:
                work.publish()
                del work  # not kept until the next one
                with self._changed:
                    self._busy -= 1

    def _watch(self) -> None:
        """Wait until some work is over."""
        while True:
            with self._changed:
                works = list(self._under_way)
            over = [work for work in works if work.complete(0.0)]
            self._move(over)
            if over or not works:
                break
            self._wait(_LOOK)
        with self._changed:
            self._is_watched = False
            self._summon()
