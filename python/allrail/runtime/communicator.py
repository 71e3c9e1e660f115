"""Collectives over arrays of any framework: `allrail.Communicator`.

    import allrail

    with allrail.Communicator() as group:
        handle = group.all_reduce(gradient, op="average")
        ...  # meanwhile, something else
        gradient = handle.wait()

Every rank runs the script, started by `allrail launch`, torchrun, MPI or srun. What the engine
knows of a network decides how an operation is cut and carried; nothing here decides any of it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, Self

from allrail import _core
from allrail.base.arguments import Kind, check
from allrail.base.errors import InputError, TrainingError, did_you_mean, show
from allrail.runtime.agreement import Agreement
from allrail.runtime.arrays import COMBINED, View, made_like, view_of, was_written
from allrail.runtime.environment import place_of
from allrail.runtime.job import Job, JobLike, job_of_all, patience_of
from allrail.runtime.messages import Message, Messages
from allrail.runtime.nodes import Asked, Calls, Memory, settings_of_group
from allrail.runtime.partial import MOST_BEHIND, PartialAverages
from allrail.runtime.uneven import Uneven

SUMMED = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
)
Op = Literal["sum", "average", "max", "min", "product"]
_OPS = ("sum", "average", *COMBINED)

_HALVES = re.compile("[\ud800-\udfff]")
_NUMBER = Kind(lambda value: type(value) is int and -(2**63) <= value < 2**63, "a rank", "0")
_RANKS = Kind(
    lambda value: isinstance(value, (list, tuple, range, set)) and all(map(_NUMBER.is_it, value)),
    "a list of ranks",
    "[0, 1]",
)
_TAG = Kind(_NUMBER.is_it, "a whole number", "0")
_SECONDS = Kind(
    lambda value: isinstance(value, (int, float)) and value >= 0, "a number of seconds", "60.0"
)
_NAME = Kind(lambda value: isinstance(value, str) and not _HALVES.search(value), "a text", '"loss"')

_NAMES = 1024
"""So many uneven gathers of a name have names of their own; then they are used again."""

_A_MOMENT = 5.0
"""So long at most a thread takes to end whose operation is over, s."""

_NOTHING_ELSE = Asked()

_made = 0


class Communicator:
    """The ranks of a job, as a group that exchanges arrays.

    An array is what speaks DLPack, the array interface or the buffer protocol, in host memory; one
    with gaps is copied, and its result copied back. `all_reduce`, `broadcast` and `recv` write
    their result into it, if it may be written to; what frameworks do not let change (JAX) gets a
    new array. The others always make a new one, of the same framework where it can be made of
    memory, else of numpy.

    An operation begins at once, and returns a `Handle`. Until `Handle.wait` has returned, nobody
    else may read or write the array. Operations with a `name` meet those of the same name on the
    other ranks, in whatever order each rank begins them, the first of a name the first, and so on.
    Those without one meet in the order in which each rank begins them.

    Args:
        job: The job file, as a path or a mapping; if None, the one that `ALLRAIL_JOB` names, else
            `allrail.yaml` in the current folder, else defaults, which do where all ranks are on one
            host.
        timeout: Seconds after which an operation that is waited for is given up.

    Attributes:
        rank: This process, from 0.
        ranks: How many there are.
        local_rank: This process among those on its host.
        members: Its ranks, as the whole job counts them.
        pack: Bytes of small arrays that are worth one call: `schedule.tensor.pack` of the job file.

    Raises:
        InputError: No launcher has started this process, or ranks differ in what they are.
    """

    def __init__(self, *, job: JobLike | None = None, timeout: float = 1800.0) -> None:
        global _made  # noqa: PLW0603 - names must be alike on all ranks: they count calls
        if job is not None:
            check("job", job)
        check("timeout", timeout, kind=_SECONDS)
        place = place_of()
        _made += 1
        patience = patience_of(job)
        store, name = place.store(patience=patience), f"communicator{_made}"
        agreement = Agreement(store, place.rank, place.ranks, name, patience=patience)
        agreement.on("ranks", [place.ranks, _core.version()], _alike)
        self.local_rank = place.local_rank
        self._set_up(store, name, agreement, job_of_all(job, agreement), timeout)
        self.members = tuple(range(self.ranks))

    def _set_up(
        self, store: Any, name: str, agreement: Agreement, job: Job, timeout: float
    ) -> None:
        self.rank, self.ranks = agreement.rank, agreement.ranks
        self._timeout = timeout
        self._store, self._name, self._job = store, name, job
        known = settings_of_group(job, agreement)
        self.pack = _core.parse_quantity("size", known["pack"])
        self._calls = Calls(known | {"named_calls": True}, agreement)
        self._messages = Messages(store, self.rank, self.ranks, job.within(2), f"{name} ")
        self._closed = False
        self._thread = 0
        self._open: dict[int, Handle] = {}
        self._parts: Counter[tuple[int, ...]] = Counter()
        self._uneven: Counter[str | None] = Counter()
        self._counting = threading.Lock()
        self._gathers: list[Uneven] = []
        self._numbers = itertools.count()
        self._partial = itertools.count()
        self._averages: list[PartialAverages] = []

    def part(self, ranks: Iterable[int]) -> Communicator:
        """Return a communicator of some of its ranks; each of them calls it, and no other.

        Args:
            ranks: Which, in any order, alike on all of them; this one is among them.
        """
        check("ranks", ranks, kind=_RANKS)
        chosen = tuple(sorted(set(ranks)))
        if self.rank not in chosen or not all(0 <= rank < self.ranks for rank in chosen):
            raise InputError(
                f"they are not of the group's {self.ranks}, or the calling rank is not among them",
                field="ranks",
                value=", ".join(map(str, chosen)),
                hint="name ranks of the group, and call it only on those",
            )
        self._parts[chosen] += 1
        name = f"{self._name} {'-'.join(map(str, chosen))} {self._parts[chosen]}"
        made = Communicator.__new__(Communicator)
        mine, members = chosen.index(self.rank), [self.members[rank] for rank in chosen]
        agreement = Agreement(
            self._store,
            mine,
            len(chosen),
            name,
            patience=patience_of(self._job),
            called=members,
        )
        job = self._job if len(chosen) == self.ranks else self._job.within(len(chosen))
        made.local_rank = self.local_rank
        made.members = tuple(members)
        made._set_up(self._store, name, agreement, job, self._timeout)
        return made

    def partial_averages(
        self,
        like: Sequence[Any],
        *,
        backup_workers: int,
        most_behind: int = MOST_BEHIND,
    ) -> PartialAverages:
        """Return what averages arrays over the ranks that come in time; every rank calls it.

        Args:
            like: Arrays of the shapes and types that ranks bring to each step.
            backup_workers: How many ranks a step does not wait for: fewer than there are.
            most_behind: How many averages a late rank may miss before the others wait for it.
        """
        self._check_open()
        name = f"{self._name} partial {next(self._partial)}"
        agreement = Agreement(
            self._store,
            self.rank,
            self.ranks,
            name,
            patience=patience_of(self._job),
            meets=False,
            called=self.members,
        )
        made = PartialAverages(
            self._store,
            agreement,
            self._job,
            like,
            backup_workers=backup_workers,
            timeout=self._timeout,
            most_behind=most_behind,
        )
        self._averages.append(made)
        return made

    def all_reduce(
        self,
        array: Any,
        *,
        op: Op = "sum",
        name: str | None = None,
        priority: int = 0,
    ) -> Handle:
        """Combine the arrays of all ranks, elementwise.

        Args:
            array: Alike in shape and type on all ranks.
            op: `"sum"`, `"average"`: the sum divided by the number of ranks, `"max"`, `"min"` or
                `"product"`.
            name: What it is called on all ranks.
            priority: Of operations that wait for a link, the highest goes first.

        Returns:
            A handle; its result has the array's shape.
        """
        view = self._summed(array, op)
        into, finish = self._in_place(array, view)
        if op in COMBINED:
            every, _ = self._room(array, view)
            combine = partial(into.combine, every, op)
            asked = Asked("all_reduce", op, view.dtype)
            return self._begin("all_gather", _moved(every), finish, combine, name, priority, asked)
        after = (lambda: into.divide(self.ranks)) if op == "average" else None
        asked = Asked(reduction="" if op == "sum" else op)
        return self._begin("all_reduce", into.memory(), finish, after, name, priority, asked)

    def reduce_scatter(
        self,
        array: Any,
        *,
        op: Op = "sum",
        name: str | None = None,
        priority: int = 0,
    ) -> Handle:
        """Combine the arrays of all ranks, and keep this rank's part.

        Args:
            array: Its first axis is divided evenly among ranks; it stays as it is.
            op: As for `all_reduce`.
            name: As for `all_reduce`.
            priority: As for `all_reduce`.

        Returns:
            A handle; its result is this rank's part of the first axis.
        """
        view = self._summed(array, op)
        rows = self._rows(view)
        whole, _ = made_like(array, view, view.shape)
        whole.copy_from(view, nbytes=view.nbytes)
        part, finish = made_like(array, view, (rows, *view.shape[1:]))
        if op in COMBINED:
            combine = partial(part.combine, whole, op)
            asked = Asked("reduce_scatter", op, view.dtype)
            return self._begin("all_to_all", _moved(whole), finish, combine, name, priority, asked)

        def after() -> None:
            part.copy_from(whole, start=self.rank * part.nbytes, nbytes=part.nbytes)
            if op == "average":
                part.divide(self.ranks)

        asked = Asked(reduction="" if op == "sum" else op)
        return self._begin("reduce_scatter", whole.memory(), finish, after, name, priority, asked)

    def all_gather(
        self, array: Any, *, uneven: bool = False, name: str | None = None, priority: int = 0
    ) -> Handle:
        """Collect the arrays of all ranks.

        Args:
            array: Alike in shape and type on all ranks; it stays as it is.
            uneven: Whether first axes may differ, down to none: ranks then tell each other their
                lengths first, which takes one more small operation.
            name: As for `all_reduce`.
            priority: As for `all_reduce`.

        Returns:
            A handle; its result has the arrays one after the other along the first axis, in the
            order of ranks.
        """
        view = view_of(array)
        if uneven:
            return self._begin_uneven(array, name, priority)
        every, finish = self._room(array, view)
        asked = _moves(view)
        return self._begin("all_gather", _moved(every), finish, None, name, priority, asked)

    def gather(
        self, array: Any, *, root: int = 0, name: str | None = None, priority: int = 0
    ) -> Handle:
        """Collect the arrays of all ranks on one.

        Args:
            array: Alike in shape and type on all ranks; it stays as it is.
            root: Who gets them.
            name: As for `all_reduce`.
            priority: As for `all_reduce`.

        Returns:
            A handle; its result is that of `all_gather` on the root, None on the others.
        """
        self._check_rank(root, "root")
        view = view_of(array)
        every, finish = self._room(array, view)
        finish = finish if self.rank == root else _none
        asked = Asked("gather", dtype=view.dtype)
        return self._begin("all_gather", _moved(every), finish, None, name, priority, asked, root)

    def scatter(
        self, array: Any, *, root: int = 0, name: str | None = None, priority: int = 0
    ) -> Handle:
        """Give each rank its part of what one has.

        Args:
            array: Alike in shape and type on all ranks; the root's counts, and its first axis is
                divided evenly among ranks. It stays as it is.
            root: Whose array it is.
            name: As for `all_reduce`.
            priority: As for `all_reduce`.

        Returns:
            A handle; its result is this rank's part of the first axis.
        """
        self._check_rank(root, "root")
        view = view_of(array)
        rows = self._rows(view)
        whole, _ = made_like(array, view, view.shape)
        whole.copy_from(view, nbytes=view.nbytes)
        part, finish = made_like(array, view, (rows, *view.shape[1:]))
        start = self.rank * part.nbytes
        after = partial(part.copy_from, whole, start=start, nbytes=part.nbytes)
        asked = Asked("scatter", dtype=view.dtype)
        return self._begin("broadcast", _moved(whole), finish, after, name, priority, asked, root)

    def send(self, array: Any, *, to: int, tag: int = 0) -> Handle:
        """Send an array to one rank, which receives it.

        Args:
            array: What is sent; it stays as it is.
            to: The rank that receives it.
            tag: Tells it from other messages to that rank.
        """
        self._check_other(to, "to")
        check("tag", tag, kind=_TAG)
        view = view_of(array)
        message = self._messages.send(view.memory(in_bytes=True), to, tag, dtype=view.dtype)
        return self._message(message, f"message to rank {to}", lambda: array)

    def recv(self, array: Any, *, source: int | None = None, tag: int = 0) -> Handle:
        """Receive an array from one rank, or from whichever sends first.

        Args:
            array: Of the shape and type of what is sent; written to as by `broadcast`.
            source: The rank that sends it; None for any. `Handle.source` says which.
            tag: That of the message.
        """
        if source is not None:
            self._check_other(source, "source")
        self._check_open()
        check("tag", tag, kind=_TAG)
        view = view_of(array)
        into, finish = self._in_place(array, view)
        memory = into.memory(in_bytes=True)
        message = self._messages.receive(memory, source, tag, dtype=view.dtype)
        who = "any rank" if source is None else f"rank {source}"
        return self._message(message, f"message from {who}", finish)

    def broadcast(
        self, array: Any, *, root: int = 0, name: str | None = None, priority: int = 0
    ) -> Handle:
        """Give all ranks what one has.

        Args:
            array: Alike in shape and type on all ranks.
            root: Whose array all get.
            name: As for `all_reduce`.
            priority: As for `all_reduce`.

        Returns:
            A handle; its result has the array's shape.
        """
        self._check_rank(root, "root")
        view = view_of(array)
        into, finish = self._in_place(array, view)
        asked = _moves(view)
        return self._begin("broadcast", _moved(into), finish, None, name, priority, asked, root)

    def all_to_all(self, array: Any, *, name: str | None = None, priority: int = 0) -> Handle:
        """Send each rank its part of the first axis.

        Args:
            array: Its first axis is divided evenly among ranks; it stays as it is.
            name: As for `all_reduce`.
            priority: As for `all_reduce`.

        Returns:
            A handle; its result has, along the first axis, what each rank has sent to this one.
        """
        view = view_of(array)
        self._rows(view)
        into, finish = made_like(array, view, view.shape)
        into.copy_from(view, nbytes=view.nbytes)
        asked = _moves(view)
        return self._begin("all_to_all", _moved(into), finish, None, name, priority, asked)

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        memory = view_of(bytearray(1)).memory()
        self._begin("all_reduce", memory, _none, None, None, 0, Asked("barrier")).wait()

    def close(self) -> None:
        """Wait for all operations that were begun, and leave. Again, it does nothing."""
        self._closed = True
        while self._averages:
            self._averages.pop().close()
        while self._open:
            with contextlib.suppress(TrainingError, InputError, KeyError):
                self._open.popitem()[1].wait()
        self._messages.close()
        self._calls.close()
        for gather in self._gathers:
            gather.thread.join(_A_MOMENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if kind is not None:
            self._open.clear()  # others learn of it by this rank's leaving
            while self._averages:
                self._averages.pop().abandon()
        self.close()

    # -- how

    def _begin(
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
        self._check_call(name, priority)
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

    def _begin_uneven(self, array: Any, name: str | None, priority: int) -> Handle:
        self._check_call(name, priority)
        # The operations that follow have names that all ranks make alike: of calls of one name,
        # and of those without, each rank makes the first first.
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

        place = (self.rank, self.ranks)
        gather = Uneven(self._calls, begin, _moved, array, name=name, base=base, place=place)
        with self._counting:
            self._gathers = [one for one in self._gathers if one.thread.is_alive()] + [gather]
        return self._watched(gather, name or f"uneven all_gather {number}", gather.finish)

    def _check_call(self, name: str | None, priority: int) -> None:
        self._check_open()
        if not _NUMBER.is_it(priority):
            raise InputError(
                "it is no whole number",
                field="priority",
                value=show(priority),
                hint="such as 0",
            )
        if name is None:
            self._check_thread()
        elif not _NAME.is_it(name):
            raise InputError("it is no text", field="name", value=show(name), hint="give a text")

    def _message(self, message: Message, name: str, finish: Callable[[], Any]) -> Handle:
        return self._watched(message, name, finish, message)

    def _watched(
        self,
        under_way: Message | Uneven,
        name: str,
        finish: Callable[[], Any],
        message: Message | None = None,
    ) -> Handle:
        """A handle of what has a thread, and tells when it is over."""
        handle = Handle(under_way.wait, self._timeout, name, finish, None, message)
        number = -1 - next(self._numbers)
        self._open[number] = handle

        def forget() -> None:
            self._open.pop(number, None)

        under_way.when_over(forget)
        return handle

    def _check_open(self) -> None:
        if self._closed:
            raise InputError(
                "it is closed", field="communicator", hint="begin all operations before `close`"
            )

    def _check_rank(self, rank: int, field: str) -> None:
        check(field, rank, kind=_NUMBER)
        if not 0 <= rank < self.ranks:
            raise InputError(
                f"there are {self.ranks} ranks, counted from 0",
                field=field,
                value=str(rank),
                hint=f"one of 0 to {self.ranks - 1}",
            )

    def _check_other(self, rank: int, field: str) -> None:
        self._check_open()
        self._check_rank(rank, field)
        if rank == self.rank:
            raise InputError(
                "it is this rank itself", field=field, value=str(rank), hint="copy the array"
            )

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

    def _summed(self, array: Any, op: str) -> View:
        view = view_of(array)
        if op not in _OPS:
            raise InputError(
                "there is no such operation",
                field="op",
                value=show(op),
                hint=did_you_mean(show(op), _OPS),
            )
        if op in COMBINED:
            if not view.dtype.startswith(("float8", "complex")):
                return view
            raise InputError(
                f"elements of type {view.dtype} have no {op} here",
                field="op",
                value=op,
                hint="cast the array to float32, or ask for the sum",
            )
        if view.dtype not in SUMMED:
            raise InputError(
                f"elements of type {view.dtype} cannot be summed",
                field="array",
                hint=f"cast it to one of {', '.join(SUMMED)}",
            )
        if op == "average" and "int" in view.dtype:
            raise InputError(
                f"the average of elements of type {view.dtype} is none of them",
                field="op",
                value=op,
                hint="cast the array to float32, or ask for the sum",
            )
        return view

    def _rows(self, view: View) -> int:
        """How many rows each rank has."""
        rows = view.shape[0] if view.shape else 0
        if not view.shape or rows % self.ranks:
            raise InputError(
                f"its first axis, of {rows}, cannot be divided among {self.ranks} ranks"
                if view.shape
                else "it has no axis to divide among ranks",
                field="array",
                hint="pad it, or reshape it, so that its first axis is a multiple of the ranks",
            )
        return rows // self.ranks

    def _room(self, array: Any, view: View) -> tuple[View, Callable[[], Any]]:
        """Memory for all ranks' arrays, with this rank's in its place; and the result."""
        first, rest = (view.shape or (1,))[0], view.shape[1:]
        every, finish = made_like(array, view, (first * self.ranks, *rest))
        every.copy_from(view, at=self.rank * view.nbytes, nbytes=view.nbytes)
        return every, finish

    def _in_place(self, array: Any, view: View) -> tuple[View, Callable[[], Any]]:
        """The array itself where it may be written to, else a copy; and what the result is."""
        if not view.writable:
            into, finish = made_like(array, view, view.shape)
            into.copy_from(view, nbytes=view.nbytes)
            return into, finish

        def written() -> Any:
            view.put_back()
            was_written(array)
            return array

        return view, written


class Handle:
    """An operation that is under way."""

    def __init__(
        self,
        under_way: Callable[[float], bool],
        timeout: float,
        name: str,
        finish: Callable[[], Any],
        after: Callable[[], None] | None,
        message: Message | None = None,
    ) -> None:
        self._under_way = under_way
        self._timeout = timeout
        self._name = name
        self._finish = finish
        self._after = after
        self._message = message
        self._lock = threading.Lock()
        self._over = False
        self._result: Any = None

    @property
    def source(self) -> int | None:
        """Of a message: the rank that has sent it; None while that is not known."""
        return None if self._message is None else self._message.source

    def done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        try:
            return self._over or self._under_way(0.0)
        except TrainingError:
            return True

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result, when the operation is over; what was written in place is, too.

        Args:
            timeout: Seconds after which it is given up; that of the communicator if None.

        Raises:
            TrainingError: It never will be: a rank has ended, or begins something else; or it is
                given up. The array may then hold anything.
        """
        if timeout is not None:
            check("timeout", timeout, kind=_SECONDS)
        with self._lock:
            if not self._over:
                self._complete(self._timeout if timeout is None else timeout)
                if self._after is not None:
                    self._after()
                self._result = self._finish()
                self._over = True
            return self._result

    def _complete(self, timeout: float) -> None:
        # Long before, the node warns of whom it waits for, and ends the job at `timeouts.stalled`.
        if self._under_way(timeout):
            return
        raise TrainingError(
            f"it is not over after {timeout:g} s",
            field=self._name,
            hint="look for a rank that does not begin it: each begins the same operations",
        )


def _none() -> None:
    """The result of who gets nothing."""


def _moved(view: View) -> Memory:
    """Memory that is only moved; where elements could be summed, ranks compare their type."""
    return view.memory(in_bytes=view.dtype not in SUMMED)


def _moves(view: View) -> Asked:
    """What ranks compare of memory that is only moved: the type of what counts as bytes there."""
    return Asked(dtype="" if view.dtype in SUMMED else view.dtype)


def _alike(said: list[list[Any]]) -> None:
    """What ranks say of themselves: how many there are, and which allrail this is."""
    for rank, (ranks, version) in enumerate(said):
        if ranks != said[0][0]:
            raise InputError(
                f"rank 0 counts {said[0][0]} ranks, and rank {rank} counts {ranks}",
                field="environment",
                hint="start all ranks of a job by one launcher",
            )
        if version != said[0][1]:
            raise InputError(
                f"rank 0 runs allrail {said[0][1]}, and rank {rank} runs allrail {version}",
                field="allrail",
                hint="install one version on all hosts",
            )
