"""What a communicator has begun and nobody has waited for."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from allrail.base.errors import InputError, TrainingError, show
from allrail.runtime.handle import Handle
from allrail.runtime.message import Message
from allrail.runtime.nodes import Asked, Calls, Memory
from allrail.runtime.operands import NAME, NUMBER
from allrail.runtime.uneven import Uneven

_NAMES = 1024
"""So many uneven gathers of a name have names of their own; then they are used again."""

_A_MOMENT = 5.0
"""So long at most a thread takes to end whose operation is over, s."""

_NOTHING_ELSE = Asked()


class UnderWay:
    """The operations of one communicator, from `begin` until each is waited for.

    Args:
        calls: What carries them.
        rank: This process in the group.
        ranks: How many there are.
        timeout: Seconds after which one that is waited for is given up.
    """

    def __init__(self, calls: Calls, rank: int, ranks: int, timeout: float) -> None:
        self._calls = calls
        self._rank, self._ranks = rank, ranks
        self._timeout = timeout
        self._closed = False
        self._thread = 0
        self._open: dict[int, Handle] = {}
        self._uneven: Counter[str | None] = Counter()
        self._counting = threading.Lock()
        self._gathers: list[Uneven] = []
        self._numbers = itertools.count()

    def begin(
        self,
        kind: str,
        memory: Memory,
        finish: Callable[[], Any],
        after: Callable[[], None] | None,
        name: str | None,
        priority: int,
        asked: Asked,
        root: int = 0,
    ) -> Handle:
        """Begin an operation.

        Args:
            kind: Which, such as `all_reduce`.
            memory: What it is about.
            finish: Returns the result.
            after: What is done once it is over, before `finish`, if anything.
            name: What it is called on all ranks, if anything.
            priority: Of several that wait for a link, the highest goes first.
            asked: What the caller has asked for.
            root: Of a broadcast: whose memory all get.
        """
        self._check(name, priority)
        ticket = self._calls.begin(
            kind,
            memory,
            root=root,
            priority=priority,
            name=name,
            asked=None if asked == _NOTHING_ELSE else asked,
        )
        wait = partial(self._calls.wait, ticket)
        handle = Handle(wait, self._timeout, name or f"{kind} {ticket}", finish, after)
        self._open[ticket] = handle
        for over in self._calls.finished():
            self._open.pop(over, None)
        return handle

    def gather_unevenly(self, array: Any, name: str | None, priority: int) -> Handle:
        """Begin an all-gather of arrays whose first axes differ.

        Args:
            array: This rank's.
            name: As of `begin`.
            priority: As of `begin`.
        """
        self._check(name, priority)
        # The operations that follow have the same names on all ranks: of calls of one name, and of
        # those without, each rank makes the first first.
        with self._counting:
            number = self._uneven[name]
            self._uneven[name] = (number + 1) % _NAMES
        base = f"{'unnamed all_gather' if name is None else name} (rows {number})"

        def begin(
            kind: str, memory: Memory, root: int, name: str | None, asked: Asked | None = None
        ) -> int:
            return self._calls.begin(
                kind, memory, root=root, priority=priority, name=name, asked=asked
            )

        place = (self._rank, self._ranks)
        gather = Uneven(self._calls, begin, array, name=name, base=base, place=place)
        with self._counting:
            self._gathers = [one for one in self._gathers if one.thread.is_alive()] + [gather]
        return self.watch(gather, name or f"uneven all_gather {number}", gather.finish)

    def _check(self, name: str | None, priority: int) -> None:
        self.check_open()
        if not NUMBER.is_it(priority):
            raise InputError(
                "it is no whole number",
                field="priority",
                value=show(priority),
                hint="such as 0",
            )
        if name is None:
            self._check_thread()
        elif not NAME.is_it(name):
            raise InputError("it is no text", field="name", value=show(name), hint="give a text")

    def watch(
        self,
        under_way: Message | Uneven,
        name: str,
        finish: Callable[[], Any],
        message: Message | None = None,
    ) -> Handle:
        """Return a handle of what has a thread, and tells when it is over.

        Args:
            under_way: What it is of.
            name: What errors call it.
            finish: Returns the result.
            message: The message, if it is one.
        """
        handle = Handle(under_way.wait, self._timeout, name, finish, None, message)
        number = -1 - next(self._numbers)
        self._open[number] = handle

        def forget() -> None:
            self._open.pop(number, None)

        under_way.when_over(forget)
        return handle

    def check_open(self) -> None:
        """Refuse to begin anything once it is closed."""
        if self._closed:
            raise InputError(
                "it is closed", field="communicator", hint="begin all operations before `close`"
            )

    def finish(self) -> None:
        """Begin nothing more, and wait for what was begun."""
        self._closed = True
        while self._open:
            with contextlib.suppress(TrainingError, InputError, KeyError):
                self._open.popitem()[1].wait()

    def drop(self) -> None:
        """Wait for nothing that was begun."""
        self._open.clear()

    def close(self) -> None:
        """Leave: what is still under way fails."""
        self._calls.close()
        for gather in self._gathers:
            gather.thread.join(_A_MOMENT)

    def _check_thread(self) -> None:
        """Operations of two threads have no order of their own, so they need names."""
        mine = threading.get_ident()
        self._thread = self._thread or mine
        if self._thread != mine:
            raise InputError(
                "operations without a name come from two threads, and have no order there",
                field="name",
                hint="give each operation a name, alike on all ranks, or begin all in one thread",
            )
