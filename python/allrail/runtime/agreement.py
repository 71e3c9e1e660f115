"""What ranks tell each other once, through a store: texts of JSON, no pickle.

Rank 0 collects what every rank says about a topic, decides, and tells all. Keys carry the run and
its restart, since the store of an elastic job survives both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Protocol

from allrail.errors import InputError, TrainingError


class Store(Protocol):
    """Keeps texts under keys, for all ranks; that of torch.distributed is one."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a text, from now on."""

    def get(self, key: str, /) -> str | bytes:
        """Return a text, once some rank has set it; a `RuntimeError` after a while without."""


class Agreement:
    """Agrees on topics, each once, among the processes of a job.

    Args:
        store: Where they find what each says.
        rank: This process.
        ranks: How many there are.
        name: Tells this one from others of the same processes; alike on all ranks.

    Attributes:
        name: The same, with the run and its restart.
    """

    def __init__(self, store: Store, rank: int, ranks: int, name: str) -> None:
        run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.name = f"{run}/{restart}/{name}"
        self._prefix = f"allrail/{self.name}"
        self._store = store
        self._rank = rank
        self._ranks = ranks

    def on(self, topic: str, mine: Any, decide: Callable[[list[Any]], Any]) -> Any:
        """Tell the others, and return what rank 0 decides.

        Args:
            topic: What it is about; once for each topic.
            mine: What this rank says; anything that JSON holds.
            decide: Called on rank 0 with what each rank says. An `InputError` that it raises is
                raised on every rank.
        """
        prefix = f"{self._prefix}/{topic}"
        self._store.set(f"{prefix}/{self._rank}", json.dumps(mine))
        if self._rank == 0:
            said = [self._get(f"{prefix}/{rank}", rank) for rank in range(self._ranks)]
            try:
                answer = {"decided": decide(said)}
            except InputError as error:
                answer = {"why": error.why, "field": error.field, "hint": error.hint}
            self._store.set(f"{prefix}/decided", json.dumps(answer))
        answer = self._get(f"{prefix}/decided", 0)
        if "why" in answer:
            raise InputError(answer["why"], field=answer["field"], hint=answer["hint"])
        return answer["decided"]

    def _get(self, key: str, rank: int) -> Any:
        try:
            return json.loads(self._store.get(key))
        except TrainingError:
            raise  # the store is gone
        except RuntimeError as error:
            raise TrainingError(
                f"rank {rank} has not come to where this rank is",
                hint="every rank calls what all take part in as often and in the same order:"
                " `allrail.torch.schedule` and backward passes, `allrail.Communicator`; look at"
                " that rank's first error",
            ) from error
