"""What is seen of a scheduled model while it trains, and what is told of it.

`Watched` stands between a model's hooks and its transport, and marks when gradients leave and how
long the script waits for them; `Scheduled` marks passes and entries of modules. A mark is one
append to a bounded list. When the model is released, or the interpreter ends, a record of it is
written where `ALLRAIL_TRACE` or the job file says.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
import weakref
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch

from allrail.base.errors import InputError, TrainingError
from allrail.runtime import record as records
from allrail.runtime.record import USERS, Mark, Marks, Record, TensorRow
from allrail.torch.barrier import Barriers, depth_of_script
from allrail.torch.compression.compressed import Compressed
from allrail.torch.parameter import Together
from allrail.torch.transport import Transport
from allrail.torch.uneven import Passes

_now = time.monotonic_ns

ADVISED_AFTER = 64
"""Rounds after which waits are looked at."""
MUCH = 1 / 3
"""Of the time: waiting for more of it is worth a word."""


class Watched:
    """A transport that marks what is asked of it; see `allrail.torch.transport.Transport`.

    Args:
        transport: What does the work.
        marks: Where marks go.
        passes: What explains its errors.

    Attributes:
        tensors: What was registered: packs by the name of their first tensor.
        places: Of each key, its place among them.
    """

    def __init__(self, transport: Transport, marks: Marks, passes: Passes) -> None:
        self.rank, self.ranks = transport.rank, transport.ranks
        self.tensors: list[TensorRow] = []
        self.places: dict[int, int] = {}
        self._transport = transport
        self._passes = passes
        self._add = marks.add
        self._users = -1

    def register(
        self,
        name: str,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
        place: int,
        group: int | None = None,
    ) -> int:
        """See `Transport.register`."""
        key = self._transport.register(name, dtype, shape, strides, place, group)
        self.places[key] = len(self.tensors)
        size = dtype.itemsize * prod(shape)
        if name == USERS:
            self._users = key
        self.tensors.append({"name": name, "bytes": size, "place": place})
        return key

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.submit`."""
        return self._mark(key, self._transport.submit, tensor)

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.unused`."""
        return self._mark(key, self._transport.unused, tensor)

    def wait(self, key: int, generation: int) -> None:
        """See `Transport.wait`."""
        start = _now()
        try:
            self._transport.wait(key, generation)
        except TrainingError as error:
            raise self._passes.explain(error, self._passes.number(generation)) from None
        self._add(("wait", self.places[key], start, _now()))

    def start(self) -> None:
        """See `Transport.start`."""
        if isinstance(self._transport, Compressed):
            for key, place in self.places.items():
                self.tensors[place]["bytes"] = self._transport.bytes_of(key)
        self._transport.start()

    def is_done(self, key: int, generation: int) -> bool:
        """See `Transport.is_done`; asked often, and of no interest."""
        return self._transport.is_done(key, generation)

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Transport.broadcast`."""
        try:
            self._transport.broadcast(tensors)
        except RuntimeError as error:  # a backend's own, of another transport
            raise self._passes.explain(error, self._passes.opening()) from None

    def gather(self, buffer: torch.Tensor) -> int:
        """See `Transport.gather`."""
        try:
            return self._transport.gather(buffer)
        except RuntimeError as error:
            raise self._passes.explain(error) from None

    def gathered(self, ticket: int) -> None:
        """See `Transport.gathered`."""
        try:
            self._transport.gathered(ticket)
        except RuntimeError as error:
            raise self._passes.explain(error) from None

    def close(self) -> None:
        """See `Transport.close`."""
        self._transport.close()

    def _mark(self, key: int, submit: Any, tensor: torch.Tensor) -> int:
        start = _now()
        try:
            generation: int = submit(key, tensor)
        except TrainingError as error:
            mine = error.field == self.tensors[self.places[key]]["name"]
            raise self._passes.explain(error, self._passes.made + 1 if mine else None) from None
        if key != self._users:
            self._add(("submit", self.places[key], start, _now()))
        return generation


class Observed:
    """What is seen of one scheduled model.

    Args:
        transport: What carries its gradients.
        barriers: Where waits for a whole view are counted.
        model: A name for files.
        crosses: Whether steps may be made as late as the next forward pass.
        trace: The folder that the record is written to at the end, if any.
        passes: What explains errors of the transport.

    Attributes:
        running: What the module that was entered last uses, while a forward pass goes on.
    """

    def __init__(
        self,
        transport: Transport,
        barriers: Barriers,
        *,
        model: str,
        crosses: bool,
        trace: Path | None,
        passes: Passes,
    ) -> None:
        self.marks = Marks()
        self.watched = Watched(transport, self.marks, passes)
        self._parts = (transport, self.watched, self.marks, barriers, model, crosses)
        self.running: Together | None = None
        self._forward = 0
        self.write = (
            _nothing
            if trace is None
            else weakref.finalize(self, _write, os.getpid(), trace, self._parts)
        )

    def record(self) -> Record:
        """Return what was seen so far."""
        return _record(*self._parts)

    def round_over(self) -> None:
        """Mark the end of a backward pass that has brought gradients."""
        now = _now()
        self.marks.add(("round", -1, now, now))

    def advise(self) -> None:
        """Say once, on rank 0, if much of a step is spent waiting, and what may be done about it.

        What is seen is how long the script waits, not how long another way would take: that only a
        trial tells, which the advice names.
        """
        if self.watched.rank != 0:
            return
        share = waiting(self.marks.all())
        if share > MUCH:
            warnings.warn(
                f"this script waits for gradients in {100 * share:.0f} % of its time: little of"
                " their exchange is hidden. With `exchange: auto` in allrail.yaml, allrail tries"
                " the ways it has, that of `DistributedDataParallel` among them, for 48 steps and"
                " keeps the fastest. This is said once",
                RuntimeWarning,
                stacklevel=depth_of_script(),
            )

    def enter(self, pack: Together | None, start: int) -> None:
        """Mark a module's entry, with all that was waited for and stepped since `start`."""
        self.running = pack
        place = -1 if pack is None else self.watched.places.get(pack.key, -1)
        if place >= 0:
            self.marks.add(("enter", place, start, _now()))

    def forward_begins(self) -> None:
        """Mark the beginning of a forward pass of the whole model."""
        self._forward = _now()

    def forward_ends(self) -> None:
        """Mark its end."""
        self.running = None
        if self._forward:
            self.marks.add(("forward", -1, self._forward, _now()))
            self._forward = 0


def waiting(marks: Sequence[Mark]) -> float:
    """Return in which share of the time a script waits, from the first end of a pass to the last.

    Args:
        marks: What was seen, by its end.
    """
    rounds = [mark.end for mark in marks if mark.kind == "round"]
    if len(rounds) < 2 or rounds[0] == rounds[-1]:
        return 0.0
    spent = sum(
        mark.end - max(mark.start, rounds[0])
        for mark in marks
        if mark.kind == "wait" and rounds[0] < mark.end <= rounds[-1]
    )
    return spent / (rounds[-1] - rounds[0])


def _nothing() -> None:
    """No trace is made."""


def _record(
    transport: Transport,
    watched: Watched,
    marks: Marks,
    barriers: Barriers,
    model: str,
    crosses: bool,  # noqa: FBT001 - it is one of `Observed._parts`
) -> Record:
    # A transport over a node of ours tells more.
    carrier = transport.transport if isinstance(transport, Compressed) else transport
    settings = getattr(carrier, "settings", None)
    timeline = getattr(carrier, "timeline", None)
    report = getattr(carrier, "report", None)
    return {
        "schema_version": records.SCHEMA_VERSION,
        "rank": watched.rank,
        "ranks": watched.ranks,
        "model": model,
        "transport": type(carrier).__name__,
        "crosses": crosses,
        "tensors": list(watched.tensors),
        "marks": marks.all(),
        "settings": settings,
        "timeline": None if timeline is None else timeline(),
        "report": None if report is None else report(),
        "barriers": dict(barriers.counts),
    }


def _write(process: int, where: Path, parts: Any) -> None:
    """Write a record, unless this is a fork of the process that it is of."""
    if os.getpid() == process:
        try:
            records.write(_record(*parts), where)
        except (InputError, OSError) as error:  # the job is over, and went well
            print(f"warning: no record of this rank: {error}", file=sys.stderr)  # noqa: T201
