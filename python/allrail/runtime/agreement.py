"""What ranks tell each other once, through a store: texts of JSON, no pickle.

Rank 0 collects what every rank says about a topic, decides, and tells all. Keys carry the run and
its restart, since the store of an elastic job survives both.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from allrail.base.errors import InputError, TrainingError

T = TypeVar("T")

_GRACE = 3.0
_LOOK = 0.5
"""How often it is looked whether a rank that is waited for has left, s."""
_NAMED = 8


class Store(Protocol):
    """Keeps texts under keys, for all ranks; that of torch.distributed is one."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a text, from now on."""

    def get(self, key: str, /) -> str | bytes:
        """Return a text, once some rank has set it; a `RuntimeError` after a while without."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all these keys are set."""

    def compare_set(self, key: str, expected: str, value: str, /) -> str | bytes:
        """Keep a text if the key is not set and `""` is expected; return what is kept then."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long ranks wait for each other, in seconds.

    Attributes:
        connect: For all ranks to come to their first meeting.
        warn: For a rank at any later one, until a warning says so.
        stalled: For a rank at any later one.
    """

    connect: float = 60.0
    warn: float = 60.0
    stalled: float = 1800.0


_TOKEN = secrets.token_hex(8)


def _me() -> dict[str, str]:
    """What tells this process from others that claim the same rank."""
    process = os.getpid()
    return {"by": f"process {process} on {socket.gethostname()}", "token": f"{process} {_TOKEN}"}


class Agreement:
    """Agrees on topics, each once, among the processes of a job.

    Args:
        store: Where they find what each says.
        rank: This process.
        ranks: How many there are.
        name: Tells this one from others of the same processes; alike on all ranks.
        patience: How long ranks wait for each other; None for the defaults of a job file.
        meets: Whether its first topic is where ranks meet first, within `Patience.connect`.
        called: What people call these ranks; None for their numbers from 0.

    Attributes:
        name: The same, with the run and its restart.
        rank: This process.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        ranks: int,
        name: str,
        *,
        patience: Patience | None = None,
        meets: bool = True,
        called: Sequence[int] | None = None,
    ) -> None:
        run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.name = f"{run}/{restart}/{name}"
        self._prefix = f"allrail/{self.name}"
        self._store = store
        self.patience = patience or Patience()
        self._meets = meets
        self._called = called or range(ranks)
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
        self._say(f"{prefix}/{self.rank}", mine)
        if self.rank == 0:
            answer: dict[str, Any] = {}
            try:
                self._await(topic, [f"{prefix}/{rank}" for rank in range(self.ranks)])
                said = [self._get(f"{prefix}/{rank}")["said"] for rank in range(self.ranks)]
                answer = {"decided": decide(said)}
            except InputError as error:
                answer = {"why": error.why, "field": error.field, "hint": error.hint}
            except LateError as error:
                answer = {
                    "late": error.why,
                    "hint": error.hint,
                    "kind": error.kind,
                    "rank": error.rank,
                }
            self._store.set(f"{prefix}/decided", json.dumps(answer))
        else:
            self._await(topic, [f"{prefix}/decided"])
            answer = self._get(f"{prefix}/decided")
        self._meets = False
        if "late" in answer:
            kind, late = answer["kind"], answer["rank"]
            raise LateError(answer["late"], hint=answer["hint"], kind=kind, rank=late)
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

    def leave(self, made: int) -> None:
        """Tell the others that this rank takes part no more, if the store is still there.

        Args:
            made: How many rounds of what they agree about it has taken part in.
        """
        with contextlib.suppress(Exception):  # the job is over; stores raise errors of their own
            self._store.set(f"{self._prefix}/left/{self.rank}", json.dumps(made))

    def left(self, ranks: Iterable[int] | None = None) -> dict[int, int] | None:
        """Return which ranks take part no more, and what each has made; None without a store.

        Args:
            ranks: Of which it is asked; None for all others.
        """
        others = range(self.ranks) if ranks is None else ranks
        keys = {rank: f"{self._prefix}/left/{rank}" for rank in others if rank != self.rank}
        try:
            return {rank: self._get(key) for rank, key in keys.items() if self._store.check([key])}
        except Exception:  # noqa: BLE001 - whatever a store that has ended raises
            return None

    def _say(self, key: str, mine: Any) -> None:
        """Say it once: who finds that another process has said it claims another's rank."""
        text = json.dumps({**_me(), "said": mine})
        try:
            kept = json.loads(self._store.compare_set(key, "", text))
        except (AttributeError, NotImplementedError):  # some of torch's stores cannot
            self._store.set(key, text)
            return
        if kept.get("token") != _me()["token"]:
            raise InputError(
                f"two processes claim rank {self._called[self.rank]} of {self.ranks}:"
                f" {kept.get('by')}, and this one, {_me()['by']}",
                field="rank",
                hint="give each process a rank of its own, and end what is left of an earlier"
                " start",
            )

    def _await(self, topic: str, keys: list[str]) -> None:
        """Wait until all keys are set, by asking: while a store waits, no Ctrl-C is heard.

        Who waits for rank 0's word gives it some seconds more, to say who has not come.
        """
        first, patience = self._meets, self.patience
        most = patience.connect if first else patience.stalled
        grace = 0.0 if self.rank == 0 else _GRACE
        begun = time.monotonic()
        warned, pause, looked = first, 0.001, 0.0
        while not self._store.check(keys):
            waited = time.monotonic() - begun
            if waited > most + grace:
                raise self._late(topic, most)
            if waited > looked + _LOOK:
                looked = waited
                self._check_left(topic)
            if not warned and waited > patience.warn:
                warned = True
                late = self._late(topic, patience.warn)
                warnings.warn(
                    f"{late.why}; the job ends after {patience.stalled:.0f} s",
                    RuntimeWarning,
                    stacklevel=4,
                )
            time.sleep(pause)
            pause = min(1.5 * pause, 0.1)

    def _check_left(self, topic: str) -> None:
        """Raise if a rank that is waited for takes part no more; rank 0 asks after all others.

        Whoever has left may have come before, or rank 0 have decided before.
        """
        left = self.left(None if self.rank == 0 else [0]) or {}
        for rank in left:
            if self._has_come(topic, rank if self.rank == 0 else "decided"):
                continue
            raise LateError(
                f"rank {self._called[rank]} has left, and this rank waits for it (`{topic}` of"
                f" {self.name.rsplit('/', 1)[-1]})",
                hint="every rank makes as many backward passes; look at that rank's first error",
                kind="left",
                rank=rank,
            )

    def _has_come(self, topic: str, rank: int | str) -> bool:
        return self._store.check([f"{self._prefix}/{topic}/{rank}"])

    def _late(self, topic: str, seconds: float) -> LateError:
        """Who has not come, as the store knows."""
        missing = [rank for rank in range(self.ranks) if not self._has_come(topic, rank)]
        named = ", ".join(str(self._called[rank]) for rank in missing[:_NAMED])
        if len(missing) > _NAMED:
            named += f" and {len(missing) - _NAMED} more"
        who = f"{'rank' if len(missing) == 1 else 'ranks'} {named}"
        if not missing:
            return LateError(
                f"rank {self._called[0]} has not decided about `{topic}` within {seconds:g} s",
                hint="look at that rank's first error",
            )
        has = "has" if len(missing) == 1 else "have"
        if self._meets:
            return LateError(
                f"{len(missing)} of {self.ranks} ranks {has} not come within {seconds:g} s: {who}",
                hint=f"look whether {who} runs, and at its first error; where ranks start slowly,"
                " raise `timeouts.connect` in the job file",
            )
        return LateError(
            f"{who} {has} not come to where this rank is (`{topic}` of"
            f" {self.name.rsplit('/', 1)[-1]}) within {seconds:g} s",
            hint="every rank calls what all take part in as often and in the same order:"
            " `allrail.torch.schedule` and backward passes, `allrail.Communicator`; look at that"
            " rank's first error",
            kind="stalled",
            rank=missing[0],
        )

    def _get(self, key: str) -> Any:
        return json.loads(self._store.get(key))


class LateError(TrainingError):
    """A rank has not come in time."""


def same(field: str, hint: str) -> Callable[[list[Any]], Any]:
    """Return a `decide` of `Agreement.on` for what all ranks must say: that of rank 0.

    Args:
        field: Of the error where a rank says something else.
        hint: Of that error.
    """

    def decide(said: list[Any]) -> Any:
        for rank, theirs in enumerate(said):
            if theirs != said[0]:
                raise InputError(
                    f"rank {rank} has {theirs}, rank 0 {said[0]}", field=field, hint=hint
                )
        return said[0]

    return decide


def _first_refused(said: list[Any]) -> None:
    for rank, one in enumerate(said):
        if "why" in one:
            raise InputError(f"on rank {rank}, {one['why']}", hint=one["hint"])
