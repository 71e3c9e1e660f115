"""What a collective of the backend `allrail` returns: to be waited for, or followed by a future.

Who waits for a work completes it. Only a future needs a thread (`futures.py`), and only one of a
work that is not over when it is asked for.

Two traps of torch shape it. A `Work` that torch makes from a future swallows errors: so this is a
`Work` of our own, whose `wait` raises. Until torch 2.7 (its #146376), of a `Work` that only torch's
C++ holds, as under `DistributedDataParallel` and functional collectives, the half in Python ends at
once, and waiting for the other has no end. There works are kept until they were waited for; those
of several tensors, for each of which torch may wait, for some more works.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta
from typing import Any, Protocol

import torch

from allrail.base.errors import TrainingError
from allrail.torch import private
from allrail.torch.futures import Follower, Future
from allrail.torch.operations import Operation

_FORGOTTEN = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7)
_kept: set[Work] = set()
_lately: deque[Work] = deque(maxlen=64)


class CollectiveTimeoutError(TrainingError, TimeoutError):
    """A collective that is not over after the time that its caller gave it."""


class Owner(Protocol):
    """The process group of a work."""

    follower: Follower
    timeout: float

    def named(self, ranks: list[int]) -> str:
        """These ranks of the group, as people know them: `rank 3`, `ranks 1, 2`."""


class Work(private.Work):
    """An operation that is under way.

    Args:
        operation: What is under way.
        value: The tensors that hold the result.
        group: Its process group.
        kind: What the caller knows it as, such as `all_reduce`.
        timeout: Seconds that `wait` takes at most where it is not told; the group's if None.
    """

    # Until they become something else; one is made for every call.
    _over = False
    _error: Exception | None = None
    _future: Future | None = None
    _timeout: float | None = None

    def __init__(
        self,
        operation: Operation,
        value: Any,
        group: Owner,
        kind: str,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        self._operation = operation
        self._value = value
        self._group = group
        self._kind = kind
        if timeout is not None:
            self._timeout = timeout
        self._lock = threading.Lock()
        if _FORGOTTEN:
            _kept.add(self)

    def complete(self, timeout: float) -> bool:
        """Wait for it; return whether it is over, be it by an error."""
        if self._over:
            return True
        failed = None
        try:
            if not self._operation.wait(timeout):
                return False
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            failed = error
        with self._lock:
            if not self._over:
                self._error = failed or self._delivered()
                self._over = True
        return True

    def _delivered(self) -> Exception | None:
        try:
            self._operation.deliver()
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            return error
        return None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when it is over; raise if it has failed, or takes too long."""
        if timeout:
            seconds = timeout.total_seconds()
        else:
            seconds = self._group.timeout if self._timeout is None else self._timeout
        if not self.complete(seconds):
            raise self._timed_out(seconds)
        if _FORGOTTEN:
            _kept.discard(self)
            if len(self._value) > 1:
                _lately.append(self)
        if self._error is not None:
            raise self._error
        return True

    def _timed_out(self, seconds: float) -> Exception:
        late = self._operation.late()
        who = f": {self._group.named(late)} did not call it" if late else ""
        return CollectiveTimeoutError(
            f"timed out: it is not over after the timeout of {seconds:g} s{who}",
            field=self._kind,
            hint="every rank calls the same collectives in the same order: look at what those ranks"
            " do; `init_process_group(timeout=...)` sets the time",
        )

    @property
    def operation(self) -> Operation:
        """What is under way."""
        return self._operation

    def synchronize(self) -> None:
        """See `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self.complete(0.0)

    def is_success(self) -> bool:
        """Whether it is over without an error."""
        return self.complete(0.0) and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, if it is over."""
        return self._error

    def result(self) -> Any:
        """The tensors that hold the result."""
        return self._value

    def source_rank(self) -> int:
        """Of a message: who has sent it."""
        return int(getattr(self._operation, "source", -1))

    _source_rank = source_rank

    def get_future(self) -> Future:
        """A future of the tensors that hold the result."""
        with self._lock:
            asked, self._future = self._future, self._future or Future(self._operation.name)
        if asked is None:
            if self.complete(0.0):
                self.publish()  # nothing is attached to it yet
            elif (tell := getattr(self._operation, "when_over", None)) is not None:
                tell(self._publish_elsewhere)
            else:
                self._group.follower.follow(self)
        return self._future

    def _publish_elsewhere(self) -> None:
        self.complete(0.0)
        self._group.follower.publish(self)

    def publish(self) -> None:
        """Complete the future, which runs what is attached to it."""
        if self._future is not None:
            if self._error is not None:
                self._future.fail(self._error)
            else:
                self._future.set_result(self._value)
        _kept.discard(self)
