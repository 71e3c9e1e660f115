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

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

from allrail import _core
from allrail.base.arguments import check
from allrail.base.errors import InputError
from allrail.runtime.agreement import Agreement
from allrail.runtime.arrays import in_place, made_like, view_of
from allrail.runtime.environment import place_of
from allrail.runtime.handle import SECONDS, Handle
from allrail.runtime.job import Job, JobLike, patience_of
from allrail.runtime.job_agreed import job_of_all
from allrail.runtime.messages import Messages
from allrail.runtime.nodes import Asked, Calls, settings_of_group
from allrail.runtime.operands import RANKS, TAG, Op, check_rank, moved, moves, rows_of, summed
from allrail.runtime.partial import MOST_BEHIND, PartialAverages
from allrail.runtime.under_way import UnderWay
from allrail.runtime.view import COMBINED, View

_numbers = itertools.count(1)
"""Of the communicators of this process: names that are the same on all ranks."""


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
        if job is not None:
            check("job", job)
        check("timeout", timeout, kind=SECONDS)
        place = place_of()
        patience = patience_of(job)
        store, name = place.store(patience=patience), f"communicator{next(_numbers)}"
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
        calls = Calls(known | {"named_calls": True}, agreement)
        self._under_way = UnderWay(calls, self.rank, self.ranks, timeout)
        self._begin = self._under_way.begin
        self._messages = Messages(store, self.rank, self.ranks, job.within(2), f"{name} ")
        self._parts: Counter[tuple[int, ...]] = Counter()
        self._partial = itertools.count()
        self._averages: list[PartialAverages] = []

    def part(self, ranks: Iterable[int]) -> Communicator:
        """Return a communicator of some of its ranks; each of them calls it, and no other.

        Args:
            ranks: Which, in any order, alike on all of them; this one is among them.
        """
        check("ranks", ranks, kind=RANKS)
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
        self._under_way.check_open()
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
        view = summed(array, op)
        into, finish = in_place(array, view)
        if op in COMBINED:
            every, _ = self._room(array, view)
            combine = partial(into.combine, every, op)
            asked = Asked("all_reduce", op, view.dtype)
            return self._begin("all_gather", moved(every), finish, combine, name, priority, asked)
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
        view = summed(array, op)
        whole, part, finish = self._divided(array, view)
        if op in COMBINED:
            combine = partial(part.combine, whole, op)
            asked = Asked("reduce_scatter", op, view.dtype)
            return self._begin("all_to_all", moved(whole), finish, combine, name, priority, asked)

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
            return self._under_way.gather_unevenly(array, name, priority)
        every, finish = self._room(array, view)
        asked = moves(view)
        return self._begin("all_gather", moved(every), finish, None, name, priority, asked)

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
        check_rank(root, self.ranks, "root")
        view = view_of(array)
        every, finish = self._room(array, view)
        finish = finish if self.rank == root else _none
        asked = Asked("gather", dtype=view.dtype)
        return self._begin("all_gather", moved(every), finish, None, name, priority, asked, root)

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
        check_rank(root, self.ranks, "root")
        view = view_of(array)
        whole, part, finish = self._divided(array, view)
        start = self.rank * part.nbytes
        after = partial(part.copy_from, whole, start=start, nbytes=part.nbytes)
        asked = Asked("scatter", dtype=view.dtype)
        return self._begin("broadcast", moved(whole), finish, after, name, priority, asked, root)

    def send(self, array: Any, *, to: int, tag: int = 0) -> Handle:
        """Send an array to one rank, which receives it.

        Args:
            array: What is sent; it stays as it is.
            to: The rank that receives it.
            tag: Tells it from other messages to that rank.
        """
        self._check_other(to, "to")
        check("tag", tag, kind=TAG)
        view = view_of(array)
        message = self._messages.send(view.memory(in_bytes=True), to, tag, dtype=view.dtype)
        return self._under_way.watch(message, f"message to rank {to}", lambda: array, message)

    def recv(self, array: Any, *, source: int | None = None, tag: int = 0) -> Handle:
        """Receive an array from one rank, or from whichever sends first.

        Args:
            array: Of the shape and type of what is sent; written to as by `broadcast`.
            source: The rank that sends it; None for any. `Handle.source` says which.
            tag: That of the message.
        """
        if source is not None:
            self._check_other(source, "source")
        self._under_way.check_open()
        check("tag", tag, kind=TAG)
        view = view_of(array)
        into, finish = in_place(array, view)
        memory = into.memory(in_bytes=True)
        message = self._messages.receive(memory, source, tag, dtype=view.dtype)
        who = "any rank" if source is None else f"rank {source}"
        return self._under_way.watch(message, f"message from {who}", finish, message)

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
        check_rank(root, self.ranks, "root")
        view = view_of(array)
        into, finish = in_place(array, view)
        asked = moves(view)
        return self._begin("broadcast", moved(into), finish, None, name, priority, asked, root)

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
        rows_of(view, self.ranks)
        into, finish = made_like(array, view, view.shape)
        into.copy_from(view, nbytes=view.nbytes)
        asked = moves(view)
        return self._begin("all_to_all", moved(into), finish, None, name, priority, asked)

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        memory = view_of(bytearray(1)).memory()
        self._begin("all_reduce", memory, _none, None, None, 0, Asked("barrier")).wait()

    def close(self) -> None:
        """Wait for all operations that were begun, and leave. Again, it does nothing."""
        while self._averages:
            self._averages.pop().close()
        self._under_way.finish()
        self._messages.close()
        self._under_way.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if kind is not None:
            self._under_way.drop()  # others learn of it by this rank's leaving
            while self._averages:
                self._averages.pop().abandon()
        self.close()

    # -- how

    def _check_other(self, rank: int, field: str) -> None:
        self._under_way.check_open()
        check_rank(rank, self.ranks, field)
        if rank == self.rank:
            raise InputError(
                "it is this rank itself", field=field, value=str(rank), hint="copy the array"
            )

    def _divided(self, array: Any, view: View) -> tuple[View, View, Callable[[], Any]]:
        """A copy of an array, memory for one rank's part of it, and the result in that."""
        rows = rows_of(view, self.ranks)
        whole, _ = made_like(array, view, view.shape)
        whole.copy_from(view, nbytes=view.nbytes)
        return whole, *made_like(array, view, (rows, *view.shape[1:]))

    def _room(self, array: Any, view: View) -> tuple[View, Callable[[], Any]]:
        """Memory for all ranks' arrays, with this rank's in its place; and the result."""
        first, rest = (view.shape or (1,))[0], view.shape[1:]
        every, finish = made_like(array, view, (first * self.ranks, *rest))
        every.copy_from(view, at=self.rank * view.nbytes, nbytes=view.nbytes)
        return every, finish


def _none() -> None:
    """The result of who gets nothing."""


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
