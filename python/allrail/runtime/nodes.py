"""Nodes of the native transport: how they are made and ended; operations without a name over one.

A child that is forked, such as a data loader's worker, has its parent's connections, and lets go
of them: else others would not see the parent end.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from allrail import _core
from allrail._core import Node, RuntimeFault
from allrail.base.errors import InputError, TrainingError
from allrail.base.foreign import printable
from allrail.runtime.agreement import Agreement
from allrail.runtime.environment import local_rank
from allrail.runtime.handover import hand_over
from allrail.runtime.job import Job, find_job
from allrail.runtime.job_agreed import settings_of_all

_A_WHILE = 1800.0
_LOOK = 1.0
"""How often it is looked for warnings, s."""

_SIGNS = 1.1
"""Within so many seconds each rank gives a sign of life, unless the job file says otherwise."""

_open: dict[int, Node] = {}


def settings_of(
    rank: int, ranks: int, agreement: Agreement, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of a node of this rank, with a secret that all ranks share.

    Args:
        rank: This process.
        ranks: How many there are.
        agreement: How ranks hand round the secret.
        settings: What differs from those of a job without a file, on one machine.
    """
    known = find_job({"schema_version": 1}).settings(rank=rank, ranks=ranks) | (settings or {})
    if known.get("secret") is None:
        known |= {"secret": hand_over(agreement)}
    return known | {"rank": rank, "ranks": ranks, "job": agreement.name}


def settings_of_group(job: Job, agreement: Agreement) -> dict[str, Any]:
    """Return the settings of a node of a group, as the job file says.

    Args:
        job: The job, as this group sees it.
        agreement: Among the ranks of the group.

    Raises:
        InputError: The file does not fit this group, or one of its hosts.
    """
    if "schedule.order" in job.one_order:
        raise job.at_place(
            InputError(
                "operations meet by their names, and ranks agree on no order of them",
                field="schedule.order",
                value=str(job.schedule["order"]),
                hint="write `planned`, or leave it out",
            )
        )
    rank, ranks = agreement.rank, agreement.ranks
    settings = settings_of_all(
        job,
        agreement,
        rank=rank,
        ranks=ranks,
        one_host=same_machine(agreement),
        local_rank=local_rank(),
    )
    return settings | {"job": agreement.name}


def same_machine(agreement: Agreement) -> bool:
    """Whether all ranks reach each other over the loopback interface."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        mine = [boot, str(Path("/proc/self/ns/net").readlink())]
    except OSError:
        mine = []
    return bool(
        agreement.on("machine", mine, lambda said: bool(mine) and said.count(mine) == len(said))
    )


def connected(settings: dict[str, Any], agreement: Agreement, topic: str) -> Node:
    """Return a node that is connected with those of all ranks, and not started."""

    def bound() -> Node:
        with as_ours:
            return Node(json.dumps(settings))

    def tells(node: Node) -> dict[str, Any]:
        return {"addresses": node.addresses(), "settings": _common(settings)}

    node, addresses = agreement.together(
        f"addresses of {topic}", bound, tells=tells, decide=_addresses
    )
    with as_ours:
        node.connect(addresses)
    _open[id(node)] = node
    return node


_ALIKE = (
    "policy",
    "order",
    "chunks",
    "smallest_chunk",
    "threshold",
    "algorithms",
    "programs",
    "tensor",
    "partition",
    "tensor_keys",
    "coordination",
    "pack",
    "plans",
    "frame_checks",
)
_OWN = ("interface", "port")
_NO_TENSORS: dict[str, Any] = {"tensor": "bytescheduler", "partition": None, "tensor_keys": {}}
"""Settings of a node that has calls alone: no policy of tensors holds them back."""


def _common(settings: dict[str, Any]) -> dict[str, Any]:
    """What all ranks must have in common, or would decide differently with."""
    common = {key: settings.get(key) for key in _ALIKE}
    if plans := settings.get("plans"):
        text = json.dumps(plans, sort_keys=True)
        common["plan"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    for place, one in enumerate(settings.get("dimensions", ())):
        alike = {key: value for key, value in one.items() if key not in _OWN}
        common |= {f"dimensions[{place}].{key}": value for key, value in alike.items()}
    return common


def _addresses(said: list[dict[str, Any]]) -> list[list[str]]:
    """All addresses; nodes find out themselves that a rank differs, but not each of them which."""
    first = said[0]["settings"]
    for rank, one in enumerate(said):
        for key in sorted({*first, *one["settings"]}):
            mine, theirs = first.get(key), one["settings"].get(key)
            if mine != theirs:
                raise InputError(
                    f"rank {rank} has {_shown(theirs)}, rank 0 has {_shown(mine)}",
                    field=key,
                    hint="give every rank the same plan and the same settings",
                )
    return [one["addresses"] for one in said]


def _shown(value: Any) -> str:
    return "its default" if value is None else f"`{value}`"


def warn_of(node: Node, about: str = "") -> None:
    """Warn of exchanges that wait for ranks which answer and do not submit."""
    for text in node.take_warnings():
        said = printable(f"{about}: {text}" if about else text)
        warnings.warn(said, RuntimeWarning, stacklevel=4)


def is_open(node: Node) -> bool:
    """Whether a node is this process' own, and not closed."""
    return id(node) in _open


def close(node: Node) -> None:
    """Close a node, unless it is closed or belongs to the process that this one was forked from."""
    if _open.pop(id(node), None) is not None:
        node.close()


def _abandon() -> None:
    """This is a forked child: leave the parent's nodes alone."""
    for node in _open.values():
        node.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_abandon)


class Memory(NamedTuple):
    """Contiguous memory of this host, and what lies there.

    Attributes:
        held: The memory, which a node keeps until the operation is over.
        dtype: The type of its elements, such as `float32`.
    """

    held: _core.Memory
    dtype: str


SUMMED = tuple(_core.summed_dtypes())
"""Types whose elements a node sums."""


class Asked(NamedTuple):
    """What a caller has asked for, where it is carried out as something else.

    Ranks compare it, and an error names it: its words are those of `crates/engine/src/asked.rs`.

    Attributes:
        word: Such as `gather`, which is carried out as an all-gather; empty for the kind itself.
        reduction: By what elements are combined, such as `max`; empty for a sum, or none.
        dtype: The type of its elements, where they travel as bytes; else empty.
        sizes: How many elements each rank's part has, where they differ; else empty.
    """

    word: str = ""
    reduction: str = ""
    dtype: str = ""
    sizes: Sequence[int] = ()


class Calls:
    """A node for operations that are not registered.

    Those without a name meet in the order in which each rank begins them; those with one meet
    others of the same name.

    Args:
        settings: Of the node, as `settings_of` returns them.
        agreement: How ranks tell each other where they listen.
        about: What its operations are for, where what it warns of would not say.
    """

    def __init__(self, settings: dict[str, Any], agreement: Agreement, *, about: str = "") -> None:
        self._about = about
        self._ranks: int = settings["ranks"]
        self._node = connected(settings | _NO_TENSORS, agreement, "calls")
        self._node.start()
        self._held: dict[int, _core.Memory] = {}
        self.close = weakref.finalize(self, close, self._node)

    def begin(
        self,
        kind: str,
        memory: Memory,
        *,
        root: int = 0,
        priority: int = 0,
        name: str | None = None,
        asked: Asked | None = None,
    ) -> int:
        """Begin an operation in place; return its ticket.

        Of one without elements ranks exchange a byte each, and compare that it has none: or it
        would be over here at once, and a rank that has some would wait in vain.

        Args:
            kind: Which, such as `all_reduce`.
            memory: What it is about.
            root: Of a broadcast: whose memory all get.
            priority: Of several that wait for a link, the highest goes first.
            name: What it is called on all ranks.
            asked: What the caller has asked for, where that is more than `kind` and `memory` say.
        """
        if not memory.held.nbytes:
            asked = asked or Asked()
            asked = asked._replace(dtype=asked.dtype or memory.dtype, sizes=asked.sizes or (0,))
            memory = Memory(_core.Memory.of_buffer(bytearray(self._ranks)), "uint8")
        with as_ours:
            ticket = self._node.call(
                kind,
                memory.held,
                memory.dtype,
                root=root,
                priority=priority,
                name=name,
                asked=asked,
            )
        self._held[ticket] = memory.held
        return ticket

    def wait(self, ticket: int, timeout: float) -> bool:
        """Wait for it, up to `timeout` seconds; return whether it is over."""
        with as_ours:
            over = self._node.wait_call(ticket, min(timeout, _LOOK))
            end = time.monotonic() + timeout
            while not over and (left := end - time.monotonic()) > 0:
                warn_of(self._node, self._about)
                over = self._node.wait_call(ticket, min(left, _LOOK))
        if over and (held := self._held.pop(ticket, None)) is not None:
            check_current(held)
        return over

    def is_over(self, ticket: int) -> bool:
        """Whether `wait` would return or raise at once."""
        try:
            return self._node.wait_call(ticket, 0.0)
        except RuntimeFault:
            return True  # `wait` has to say what is wrong

    def finished(self, timeout: float = 0.0) -> list[int]:
        """Let go of the memory of what is over since this was asked last; return its tickets.

        Args:
            timeout: Seconds to wait for the first.
        """
        with contextlib.suppress(RuntimeFault):  # whoever waits is told
            tickets = [ticket for ticket, _ in self._node.next_completions(timeout)]
            for ticket in tickets:
                self._held.pop(ticket, None)
            return tickets
        return []

    def watch(self, timeout: float) -> None:
        """Wait until some operation may be over, up to a number of seconds."""
        if not self.finished(timeout):
            warn_of(self._node, self._about)
            time.sleep(0.001)  # a node that has failed does not wait

    def check(self) -> None:
        """Raise what has ended the job, if anything has."""
        warn_of(self._node, self._about)
        with as_ours:
            self._node.next_completions(0.0)

    def late(self, ticket: int) -> list[int]:
        """Which ranks have not come to an operation, as their next signs of life tell."""
        time.sleep(_SIGNS)  # or those that have just come would be blamed
        waits = json.loads(self._node.report()).get("waits_for", [])
        found = [one["ranks"] for one in waits if one["tensor"].split(" (")[0] == f"call {ticket}"]
        return list(found[0]) if found else []

    def finish(self, ticket: int) -> None:
        """Wait for it, however long."""
        while not self.wait(ticket, _A_WHILE):
            pass


def check_current(held: _core.Memory) -> None:
    """Check that an array still has the memory that an exchange has written to.

    Raises:
        TrainingError: It was given another memory meanwhile, which has no result.
    """
    if not held.is_current():
        raise TrainingError(
            "its memory was exchanged for another while its exchange was under way",
            hint="wait for an exchange before `tensor.data = ...`, `set_` or `resize_`",
        )


class _AsOurs:
    """Within it, what a node says is wrong is raised as an error of ours."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, (RuntimeFault, ValueError)):
            raise_from(error)


as_ours = _AsOurs()


def raise_from(error: Exception) -> NoReturn:
    """Raise what a node says as an error of ours."""
    try:
        said = json.loads(str(error.args[0]))
    except (ValueError, IndexError):
        raise error from None
    if "field" in said:
        raise InputError(
            said["why"], field=said["field"], value=str(said["value"]), hint=said["hint"]
        ) from None
    raise TrainingError(
        said["what"],
        field=said.get("tensor") or "",
        hint=said.get("hint") or "",
        kind=said.get("kind") or "",
        rank=said.get("rank"),
    ) from None
