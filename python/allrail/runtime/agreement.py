"""What ranks tell each other once, through a store: texts of JSON, no pickle.

Rank 0 collects what every rank says about a topic, decides, and tells all. Keys carry the run and
its restart, since the store of an elastic job survives both.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from allrail.errors import InputError, TrainingError

T = TypeVar("T")


class Store(Protocol):
    """Keeps texts under keys, for all ranks; that of torch.distributed is one."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a text, from now on."""

    def get(self, key: str, /) -> str | bytes:
        """Return a text, once some rank has set it; a `RuntimeError` after a while without."""


def _hear_signals_until_set(store: Any, key: str) -> None:
    """Wait as torch's stores do, but by asking: while their `get` waits, no Ctrl-C is heard.

    A store that cannot be asked hears signals itself.
    """
    if not hasattr(store, "check"):
        return
    until = time.monotonic() + store.timeout.total_seconds()
    pause = 0.001
    while not store.check([key]):
        if time.monotonic() > until:
            raise RuntimeError(f"nobody has set `{key}` for {store.timeout}")
        time.sleep(pause)
        pause = min(1.5 * pause, 0.1)


class Agreement:
    """Agrees on topics, each once, among the processes of a job.

    Args:
        store: Where they find what each says.
        rank: This process.
        ranks: How many there are.
        name: Tells this one from others of the same processes; alike on all ranks.

    Attributes:
        name: The same, with the run and its restart.
        rank: This process.
    """

    def __init__(self, store: Store, rank: int, ranks: int, name: str) -> None:
        run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.name = f"{run}/{restart}/{name}"
        self._prefix = f"allrail/{self.name}"
        self._store = store
        self.rank = rank
        self.ranks = ranks

    def on(self, topic: str, mine: Any, decide: Callable[[list[Any]], Any]) -> Any:
        """Tell the others, and return what rank 0 decides.

        Args:
            topic: What it is about; once for each topic.
            mine: What this rank says; anything that JSON holds.
            decide: Called on rank 0 with what each rank says. An `InputError` that it raises is
                raised on every rank.
        """
        prefix = f"{self._prefix}/{topic}"
        self._store.set(f"{prefix}/{self.rank}", json.dumps(mine))
        if self.rank == 0:
            said = [self._get(f"{prefix}/{rank}", rank) for rank in range(self.ranks)]
            try:
                answer = {"decided": decide(said)}
            except InputError as error:
                answer = {"why": error.why, "field": error.field, "hint": error.hint}
            self._store.set(f"{prefix}/decided", json.dumps(answer))
        answer = self._get(f"{prefix}/decided", 0)
        if "why" in answer:
            raise InputError(answer["why"], field=answer["field"], hint=answer["hint"])
        return answer["decided"]

    def together(
        self,
        topic: str,
        make: Callable[[], T],
        *,
        tells: Callable[[T], Any] = lambda _: None,
        decide: Callable[[list[Any]], Any] = lambda _: None,
    ) -> tuple[T, Any]:
        """Do what may be refused on one rank; then it is refused on all.

        Args:
            topic: What it is about; once for each topic.
            make: May raise an `InputError`.
            tells: What of its result the other ranks are told.
            decide: As of `on`.

        Returns:
            What `make` has returned on this rank, and what rank 0 decides.

        Raises:
            InputError: This rank's own, or that of the first rank that was refused.
        """
        try:
            made = make()
        except InputError as error:
            refused = {"why": error.message, "hint": error.hint}
            with contextlib.suppress(InputError):
                self.on(topic, refused, _first_refused)
            raise

        def judge(said: list[Any]) -> Any:
            _first_refused(said)
            return decide([one["tells"] for one in said])

        return made, self.on(topic, {"tells": tells(made)}, judge)

    def _get(self, key: str, rank: int) -> Any:
        try:
            _hear_signals_until_set(self._store, key)
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


def _first_refused(said: list[Any]) -> None:
    for rank, one in enumerate(said):
        if "why" in one:
            raise InputError(f"on rank {rank}, {one['why']}", hint=one["hint"])
