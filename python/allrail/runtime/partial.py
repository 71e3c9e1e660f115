"""Averages over the ranks that come in time: backup workers, by a partial all-reduce.

A step goes on once all but `backup_workers` ranks have brought their arrays (Chen, Pan, Monga,
Bengio, Jozefowicz, "Revisiting distributed synchronous SGD", 2016). Its average is over those that
were there; what comes later is dropped. So that no rank has to be there, a thread beside the
training takes part in each all-reduce, with zeros where its rank has brought nothing (Li et al.,
"Taming unbalanced training workloads in deep learning with partial collective operations", PPoPP
2020), and another array counts who came.

Rank 0 hears from every rank that has come to a step, and tells all when it begins: a message of 24
bytes each way. All ranks see the same averages in the same order. A rank that was late is handed
all averages that it has missed at once, so that its next arrays are of the step that the others are
at.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import queue
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from allrail import _core
from allrail.base.errors import InputError, TrainingError, show
from allrail.runtime.agreement import Agreement, Patience
from allrail.runtime.arrays import made_like, view_of
from allrail.runtime.job import Job
from allrail.runtime.messages import Messages
from allrail.runtime.nodes import Calls, Memory, settings_of_group
from allrail.runtime.view import View

MOST_BEHIND = 8
"""How many averages a late rank may miss before the others wait for it: it keeps them all."""
_LOOK = 1.0
"""How often it is looked whether the job still stands, s."""
_LAST_WORDS = 60.0
"""How long the last messages may take, s."""
_FOREVER = Patience(warn=float("inf"), stalled=float("inf"))
_BEGIN, _COME, _AT, _LEAVE, _END = range(5)


@dataclass(frozen=True)
class Average:
    """What a step has averaged.

    Attributes:
        step: Its number, from 0.
        arrays: The averages, in the order and of the shapes and types of what was brought.
        came: The ranks whose arrays are in it, ascending.
        numbers: What each of them has said beside its arrays, in that order.
    """

    step: int
    arrays: tuple[Any, ...]
    came: tuple[int, ...]
    numbers: tuple[tuple[float, ...], ...] = ()


def check_backup_workers(value: Any, ranks: int | None = None) -> int:
    """Return how many ranks a step does not wait for.

    Args:
        value: What was asked for.
        ranks: How many there are; None where that is not known yet.

    Raises:
        InputError: It is no such number.
    """
    if type(value) is not int or value < 0:
        raise InputError(
            "it is no number of ranks",
            field="backup_workers",
            value=show(value),
            hint="0 waits for all, 1 goes on without the last one",
        )
    if ranks is not None and value >= ranks:
        raise InputError(
            f"there are {ranks} ranks, and a step needs one at least",
            field="backup_workers",
            value=str(value),
            hint=f"0 to {ranks - 1}",
        )
    return value


class PartialAverages:
    """Averages arrays step by step over the ranks that come in time; see the module.

    Every rank makes one, brings arrays with `exchange`, and ends it with `close`, which returns
    when all ranks have called it: until then this rank takes part in what the others average.

        averages = group.partial_averages([gradient], backup_workers=1)
        while averages.step < 1000:
            for average in averages.exchange([gradient_of(next(batches))]):
                parameters -= rate * average.arrays[0]
        averages.close()

    Args:
        store: Where ranks find each other.
        agreement: Among the ranks of the group.
        job: The job, as the group sees it.
        like: Arrays of the shapes and types that all ranks bring; floating-point.
        backup_workers: How many ranks a step does not wait for.
        timeout: Seconds after which a wait for a step is given up.
        most_behind: How many averages a late rank may miss before the others wait for it.
        numbers: How many numbers a rank says beside its arrays.
        first: Contiguous arrays that become those of rank 0.

    Attributes:
        step: How many averages this rank has taken.
        dropped: How often what this rank brought was too late.

    Raises:
        InputError: The numbers are wrong, or ranks differ in them.
    """

    def __init__(
        self,
        store: Any,
        agreement: Agreement,
        job: Job,
        like: Sequence[Any],
        *,
        backup_workers: int,
        timeout: float = 1800.0,
        most_behind: int = MOST_BEHIND,
        numbers: int = 0,
        first: Sequence[Any] = (),
    ) -> None:
        self._rank, self._ranks = agreement.rank, agreement.ranks
        backup = check_backup_workers(backup_workers, self._ranks)
        if type(most_behind) is not int or most_behind < 1:
            raise InputError(
                "it is no number of averages",
                field="most_behind",
                value=show(most_behind),
                hint=f"such as {MOST_BEHIND}",
            )
        self._like = [(one, view_of(one)) for one in like]
        shapes = [[view.dtype, list(view.shape)] for _, view in self._like]
        for _, view in self._like:
            if not view.dtype.startswith(("float", "bfloat")):
                raise InputError(
                    f"elements of type {view.dtype} have no average",
                    field="like",
                    hint="bring float16, bfloat16, float32 or float64",
                )
        agreement.on("partial averages", [backup, most_behind, [numbers, *shapes]], _same)
        self._row = 1 + numbers
        self._needed = self._ranks - backup
        self._most_behind = most_behind
        self._timeout = timeout
        self.step = self.dropped = 0
        self._begun = 0
        self._mine: tuple[list[View], Sequence[float]] | None = None
        self._results: list[Average] = []
        self._failed: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._calls = Calls(settings_of_group(job, agreement), agreement)
        for one in first:
            memory = view_of(one).memory(in_bytes=True)
            self._calls.finish(self._calls.begin("broadcast", memory))
        name = f"{agreement.name} partial "
        self._messages = Messages(
            store, self._rank, self._ranks, job.within(2), name, patience=_FOREVER
        )
        # At rank 0: what ranks say, and what is to be done here.
        self._said: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._threads = [self._thread(self._serve)]
        if self._rank == 0:
            self._threads += [self._thread(self._coordinate), self._thread(self._listen)]
        atexit.register(self._at_exit)

    def exchange(self, arrays: Sequence[Any], numbers: Sequence[float] = ()) -> list[Average]:
        """Bring this rank's arrays to the step it is at; return the averages from there on.

        If it comes in time, that is one average with its arrays in it. If it is late its arrays
        are dropped, and it gets all averages that have begun meanwhile. Apply them in this order.

        Args:
            arrays: As many as, and alike in shape and type to, those that it was made with.
            numbers: As many as it was made for.

        Raises:
            InputError: They are not.
            TrainingError: A rank is lost, or too few come within the timeout.
        """
        views = [view_of(one) for one in arrays]
        mine = [(view.dtype, view.shape) for view in views]
        wanted = [(view.dtype, view.shape) for _, view in self._like]
        if mine != wanted or len(numbers) != self._row - 1:
            raise InputError(
                f"they are {_words(mine)}, and {_words(wanted)} are averaged",
                field="arrays",
                hint="bring arrays of the shapes and types that it was made with",
            )
        with self._changed:
            if self._closed:
                raise InputError("it is closed", field="arrays", hint="exchange before `close`")
            self._check()
            late = self._begun > self.step
            self._mine = None if late else (views, numbers)
            self.dropped += late
        if not late:
            self._tell_coordinator(_COME, self.step)
        with self._changed:
            there = self._changed.wait_for(self._are_there, self._timeout)
            self._check()
            if not there:
                self._mine = None
                raise TrainingError(
                    f"step {self.step} has not begun after {self._timeout:g} s: fewer than"
                    f" {self._needed} of {self._ranks} ranks have come",
                    field="partial average",
                    hint="look for ranks that do not call `exchange`, and what they do",
                )
            found, self._results = self._results, []
            self.step += len(found)
        if late:
            self._tell_coordinator(_AT, self.step)
        return found

    def close(self) -> None:
        """Leave; returns once all ranks have. Steps need no more ranks than there are left."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._at_exit)
        if self._failed is None:
            self._tell_coordinator(_LEAVE, self.step)
            for thread in self._threads[:2]:
                thread.join()
        self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # -- how

    def _thread(self, body: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001 - handed on to whoever waits
                self._fail(error)

        thread = threading.Thread(target=guarded, name="allrail partial averages", daemon=True)
        thread.start()
        return thread

    def _are_there(self) -> bool:
        begun = self._begun - self.step
        return self._failed is not None or 0 < begun == len(self._results)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failed is None:
                self._failed = error
            self._changed.notify_all()
        self._told.put((_END, 0))
        self._said.put((_END, 0, 0))
        if not self._closed:
            self._calls.close()  # the others learn of it

    def _shut(self) -> None:
        self._messages.close()
        self._calls.close()

    def abandon(self) -> None:
        """Leave at once: to the others this rank is lost."""
        self._closed = True
        atexit.unregister(self._at_exit)
        self._fail(TrainingError("this rank has left", field="partial average"))
        self._shut()

    def _at_exit(self) -> None:
        if hasattr(sys, "last_value"):
            self.abandon()
        else:
            with contextlib.suppress(TrainingError):
                self.close()

    def _tell_coordinator(self, what: int, step: int) -> None:
        if self._rank == 0:
            self._said.put((what, 0, step))
        else:
            self._messages.send(_memory(what, self._rank, step), 0)

    def _serve(self) -> None:
        """Take part in every step, whatever the training beside it does."""
        while True:
            what, step = self._next()
            if what == _END:
                return
            self._average(step)

    def _next(self) -> tuple[int, int]:
        if self._rank == 0:
            while True:
                with contextlib.suppress(queue.Empty):
                    return self._told.get(timeout=_LOOK)
                self._calls.check()
        what, _, step = self._received(0)
        return what, step

    def _received(self, source: int | None) -> tuple[int, int, int]:
        numbers = array.array("q", [0, 0, 0])
        message = self._messages.receive(_held(numbers), source)
        while not message.wait(_LOOK):
            self._calls.check()
        what, rank, step = numbers
        return what, rank, step

    def _average(self, step: int) -> None:
        with self._changed:
            mine, self._mine = self._mine, None
            self._begun += 1
        # Each rank that comes writes a row of its own, so that the sum has them all.
        said = array.array("d", bytes(8 * self._ranks * self._row))
        if mine is not None:
            start = self._rank * self._row
            said[start : start + self._row] = array.array("d", [1.0, *mine[1]])
        made = [made_like(one, view, view.shape) for one, view in self._like]
        for place, (into, _) in enumerate(made):
            if mine is None:
                ctypes.memset(into.pointer, 0, into.nbytes)
            else:
                into.copy_from(mine[0][place], nbytes=into.nbytes)
        del mine
        tickets = [self._calls.begin("all_reduce", _held(said, "float64"))]
        tickets += [self._calls.begin("all_reduce", into.memory()) for into, _ in made]
        for ticket in tickets:
            self._calls.finish(ticket)
        rows = [
            said[place : place + self._row].tolist() for place in range(0, len(said), self._row)
        ]
        ranks = tuple(rank for rank, row in enumerate(rows) if row[0])
        for into, _ in made:
            into.divide(len(ranks))
        averages = tuple(finish() for _, finish in made)
        result = Average(step, averages, ranks, tuple(tuple(rows[rank][1:]) for rank in ranks))
        with self._changed:
            # Who has left takes no more.
            if not self._closed:
                self._results.append(result)
            self._changed.notify_all()

    def _listen(self) -> None:
        """At rank 0: hear what the others say."""
        left = self._ranks - 1
        while left:
            said = self._received(None)
            left -= said[0] == _LEAVE
            self._said.put(said)

    def _coordinate(self) -> None:
        """At rank 0: say when steps begin."""
        brought = [0] * self._ranks
        there = set(range(self._ranks))
        step = 0
        while there:
            what, rank, number = self._said.get()
            if what == _END:
                return
            if what == _LEAVE:
                there.discard(rank)
            else:
                # Of who is only there, nothing is in this step.
                brought[rank] = number + (what == _COME)
            needed = min(self._needed, len(there))
            come = sum(brought[rank] == step + 1 for rank in there)
            kept = max((step - brought[rank] for rank in there), default=0)
            if there and come >= needed and kept <= self._most_behind:
                self._tell_all(_BEGIN, step)
                step += 1
        self._tell_all(_END, step)

    def _tell_all(self, what: int, step: int) -> None:
        sent = [self._messages.send(_memory(what, 0, step), rank) for rank in range(1, self._ranks)]
        if what == _END:
            until = time.monotonic() + _LAST_WORDS
            for message in sent:
                message.wait(max(0.0, until - time.monotonic()))
        self._told.put((what, step))


def _memory(*numbers: int) -> Memory:
    return _held(array.array("q", numbers))


def _held(numbers: array.array[Any], dtype: str = "uint8") -> Memory:
    return Memory(_core.Memory.of_buffer(numbers), dtype)


def _words(shapes: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for dtype, shape in shapes[:4]) or "none"


def _same(said: list[list[Any]]) -> None:
    for rank, theirs in enumerate(said):
        for name, mine, other in zip(
            ("backup_workers", "most_behind", "like"), said[0], theirs, strict=True
        ):
            if mine != other:
                raise InputError(
                    f"rank {rank} has {show(other)}, rank 0 has {show(mine)}",
                    field=name,
                    hint="give all ranks the same",
                )
