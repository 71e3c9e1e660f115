"""`torch.distributed.monitored_barrier`: a barrier that says which rank has not come.

It goes by the group's store, so it works where the group itself is stuck.
"""

from __future__ import annotations

import time
from typing import Any

from allrail.base.errors import TrainingError

_MOST_PAUSE = 0.05


class Monitored:
    """The monitored barriers of a group.

    Args:
        store: The group's.
        rank: This process in the group.
        size: How many it has.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._count = 0

    def barrier(self, timeout: float, *, all_ranks: bool) -> None:
        """Return when all ranks have come.

        Args:
            timeout: Seconds that rank 0 waits for the others, and they for it.
            all_ranks: Whether all that are missing are named, not only the first.

        Raises:
            TrainingError: Some have not come; rank 0 says which.
        """
        here = f"monitored/{self._count}"
        self._count += 1
        until = time.monotonic() + timeout
        if self._rank:
            self._store.set(f"{here}/{self._rank}", "1")
            if not self._wait(f"{here}/0", until) or self._store.get(f"{here}/0") != b"1":
                raise TrainingError(
                    f"Rank {self._rank} successfully reached monitoredBarrier, but received errors"
                    " while waiting for send/recv from rank 0",
                    hint="rank 0 says which rank has not come",
                )
            return
        missing: list[int] = []
        for rank in range(1, self._size):
            if not self._wait(f"{here}/{rank}", until):
                missing.append(rank)
                if not all_ranks:
                    break
        self._store.set(f"{here}/0", "0" if missing else "1")
        if missing:
            self._refuse(missing, timeout)

    def _refuse(self, missing: list[int], timeout: float) -> None:
        named = ", ".join(map(str, missing))
        who = f"Ranks {named}" if len(missing) > 1 else f"Rank {named}"
        at_once = "Rank 0 timed out in monitoredBarrier: " if timeout <= 0 else ""
        raise TrainingError(
            f"{at_once}{who} failed to pass monitoredBarrier in {1000 * timeout:.0f} ms",
            hint="look at what those ranks do: they have not called it",
        )

    def _wait(self, key: str, until: float) -> bool:
        pause = 0.001
        while not self._store.check([key]):
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, _MOST_PAUSE)
        return True
