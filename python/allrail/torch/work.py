"""What a collective of the backend `allrail` returns: to be waited for, or followed by a future.

Two traps of torch shape it. `Future.set_exception` under `DistributedDataParallel` ends the
process with a segmentation fault: so a plain future is completed, and what is handed out is
`then` of it, which raises. A `Work` that torch makes from a future swallows errors: so this is a
`Work` of our own, whose `wait` raises.

Who waits for it completes it. Only a future needs a thread that waits: one per process group,
which starts with the first.

A third one until torch 2.7 (its #146376): of a `Work` that only torch's C++ holds, as under
`DistributedDataParallel` and functional collectives, the half in Python ends at once, and waiting
for the other has no end. There works are kept until they were waited for; those of several tensors,
for each of which torch may wait, for some more works.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

Finish = Callable[[float], bool]

_FORGOTTEN = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7)
_kept: set[Work] = set()
_lately: deque[Work] = deque(maxlen=64)


class Work(dist._Work):
    """An operation that is under way.

    Args:
        finish: Waits for it, up to a number of seconds, and says whether it is over; raises if it
            has failed. Called by one thread at a time, and not again once it is over.
        value: The tensors that hold the result.
        follower: Completes futures.
        timeout: Seconds that `wait` takes at most where it is not told.
    """

    # Until they become something else; one is made for every call.
    _over = False
    _error: Exception | None = None
    _future: Any = None

    def __init__(self, finish: Finish, value: Any, follower: Follower, timeout: float) -> None:
        super().__init__()
        self._finish = finish
        self._value = value
        self._follower = follower
        self._timeout = timeout
        self._lock = threading.Lock()
        if _FORGOTTEN:
            _kept.add(self)

    def complete(self, timeout: float) -> bool:
        """Wait for it; return whether it is over, be it by an error."""
        with self._lock:
            if not self._over:
                try:
                    self._over = self._finish(timeout)
                except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                    self._over, self._error = True, error
            return self._over

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when it is over; raise if it has failed, or takes too long."""
        seconds = timeout.total_seconds() if timeout else self._timeout
        if not self.complete(seconds):
            raise TimeoutError(f"a collective is not over after {seconds:.0f} s")
        if _FORGOTTEN:
            _kept.discard(self)
            if len(self._value) > 1:
                _lately.append(self)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """See `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return self._over or self.complete(0.0)

    def is_success(self) -> bool:
        """Whether it is over without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, if it is over."""
        return self._error

    def result(self) -> Any:
        """The tensors that hold the result."""
        return self._value

    def get_future(self) -> Any:
        """A future of the tensors that hold the result."""
        if self._future is None:
            base = torch.futures.Future()
            self._future = base.then(self._outcome)
            self._follower.follow(self, base)
        return self._future

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Follower:
    """Completes the futures of works, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def follow(self, work: Work, future: Any) -> None:
        """Complete the future when the work is over."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="allrail futures", daemon=True)
            self._thread.start()
        self._queue.put((work, future))

    def close(self) -> None:
        """End the thread, when all futures are complete."""
        self._queue.put(None)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            work, future = entry
            while not work.complete(3600.0):
                pass
            future.set_result(None)
            _kept.discard(work)
            del entry, work, future
