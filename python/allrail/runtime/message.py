"""A message between two ranks, as whoever waits for it sees it, on either side."""

from __future__ import annotations

import time
import warnings

from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Patience
from allrail.runtime.nodes import Memory
from allrail.runtime.over import Over

ANY = -1
"""A tag, or a rank, that is none in particular."""


class Message(Over):
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
        super().__init__()
        self.dtype = dtype
        self._about = about
        self._patience = patience or Patience()
        self._began = time.monotonic()
        self._warned = False
        self.memory = memory
        self.tag = tag
        self.source = source
        self._error: Exception | None = None

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
        tag = f" with tag {self.tag}" if self.tag != ANY else ""
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

    def end(self, error: Exception | None = None) -> None:
        """It is over."""
        self._error = error
        self.tell_over()
