"""A transport that makes tensors smaller before they travel over another one.

To whoever exchanges gradients it is a transport like any other; to the one below, a tensor with a
channel is as many tensors as its exchange has steps. What a channel does before its first step is
done in `submit`; after its last one, in `wait`.

Between two steps (PowerSGD has two) somebody has to go on when the first sum is there, whether this
rank's script waits for it or not: others wait for what comes next. That is a thread of its own. It
takes tensors in the order of keys, which is that in which gradients become ready, round after
round; matrix products and waits let go of Python's lock, so that it runs beside the backward pass.
All first steps are registered before all second ones, so that a transport with one order for all
ranks has the first of every tensor before the second of any.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from allrail.base.errors import InputError
from allrail.torch.compression import Channel, Compression
from allrail.torch.surroundings import plain_surroundings
from allrail.torch.transport import Transport

# What a channel remembers for its own rank alone.
_OWN = "error"
_A_WHILE = 60.0


@dataclass
class _Entry:
    """A tensor as it was registered; `keys` are those of its steps below."""

    name: str
    layout: tuple[torch.dtype, Sequence[int], Sequence[int]]
    place: int
    group: int | None
    channel: Channel | None
    keys: list[int] = field(default_factory=list)
    submitted: int = 0
    trips: dict[int, _Trip] = field(default_factory=dict)


@dataclass(eq=False)
class _Trip:
    """One exchange of a tensor with a channel; `step` of it is under way below."""

    entry: _Entry
    device: str
    used: bool
    steps: Iterator[torch.Tensor]
    step: int = -1
    generation: int = -1
    last: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class Compressed:
    """See the module; satisfies `allrail.torch.transport.Transport`.

    Args:
        transport: What carries the smaller tensors.
        compression: What makes them smaller.

    Attributes:
        transport: The first argument.
    """

    def __init__(self, transport: Transport, compression: Compression) -> None:
        self.rank = transport.rank
        self.ranks = transport.ranks
        self.transport = self._transport = transport
        self._compression = compression
        self._entries: list[_Entry] = []
        self._rounds = 0
        self._loaded: Mapping[str, Mapping[str, torch.Tensor]] = {}
        self._steps = _Steps(transport)
        self._leave = weakref.finalize(self, self._steps.stop, os.getpid())

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
        channel = self._compression.channel(name, dtype, shape, self.rank, self.ranks)
        if channel is not None and name in self._loaded:
            channel.load(self._loaded[name])
        self._entries.append(_Entry(name, (dtype, shape, strides), place, group, channel))
        return len(self._entries) - 1

    def start(self) -> None:
        """See `Transport.start`."""
        most = max(
            (len(entry.channel.wires) for entry in self._entries if entry.channel), default=1
        )
        for step in range(most):
            for entry in self._entries:
                self._register(entry, step)
        self._transport.start()
        if most > 1:
            self._steps.start(len(self._entries))

    def submit(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.submit`."""
        return self._submit(key, tensor, used=True)

    def unused(self, key: int, tensor: torch.Tensor) -> int:
        """See `Transport.unused`."""
        return self._submit(key, tensor, used=False)

    def wait(self, key: int, generation: int) -> None:
        """See `Transport.wait`."""
        entry = self._entries[key]
        if entry.channel is None:
            self._transport.wait(entry.keys[0], generation)
            return
        trip = entry.trips.get(generation)
        if trip is None:
            return
        trip.last.wait()
        if trip.error is not None:
            raise trip.error
        self._transport.wait(entry.keys[trip.step], trip.generation)
        with plain_surroundings(trip.device):
            next(trip.steps, None)
        del entry.trips[generation]

    def is_done(self, key: int, generation: int) -> bool:
        """See `Transport.is_done`."""
        entry = self._entries[key]
        if entry.channel is None:
            return self._transport.is_done(entry.keys[0], generation)
        trip = entry.trips.get(generation)
        if trip is None or trip.error is not None:
            return True
        return trip.last.is_set() and self._transport.is_done(
            entry.keys[trip.step], trip.generation
        )

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Transport.broadcast`."""
        self._steps.drain()
        self._transport.broadcast(tensors)

    def gather(self, buffer: torch.Tensor) -> int:
        """See `Transport.gather`."""
        return self._transport.gather(buffer)

    def gathered(self, ticket: int) -> None:
        """See `Transport.gathered`."""
        self._transport.gathered(ticket)

    def close(self) -> None:
        """See `Transport.close`."""
        self._leave()
        self._transport.close()

    def bytes_of(self, key: int) -> int:
        """What travels for one exchange of a registered tensor."""
        entry = self._entries[key]
        dtype, shape, _ = entry.layout
        wires = [(dtype, shape)] if entry.channel is None else entry.channel.wires
        return sum(dtype.itemsize * prod(shape) for dtype, shape in wires)

    def state(self) -> dict[str, Any]:
        """What is remembered of all tensors; ask when no exchange is under way."""
        return {
            "compression": self._compression.describe(),
            "rank": self.rank,
            "ranks": self.ranks,
            "tensors": {e.name: e.channel.state() for e in self._entries if e.channel is not None}
            or dict(self._loaded),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, at once or when tensors are registered.

        Raises:
            InputError: It is of another compression.
        """
        mine = self._compression.describe()
        if state.get("compression") != mine:
            raise InputError(
                f"it was saved with {state.get('compression')}, and this is {mine}",
                field="state",
                hint="schedule with the compression that it was saved with, or load no"
                " state: nothing is remembered then",
            )
        tensors: dict[str, dict[str, torch.Tensor]] = state["tensors"]
        if state["ranks"] != self.ranks:
            warnings.warn(
                f"the state is of {state['ranks']} ranks, and {self.ranks} train now: what each had"
                " left out of its gradients is dropped",
                RuntimeWarning,
                stacklevel=3,
            )
            tensors = {
                name: {what: value for what, value in kept.items() if what != _OWN}
                for name, kept in tensors.items()
            }
        self._loaded = tensors
        for entry in self._entries:
            if entry.channel is not None:
                entry.channel.load(tensors.get(entry.name, {}))

    def _register(self, entry: _Entry, step: int) -> None:
        if entry.channel is None:
            if step == 0:
                key = self._transport.register(entry.name, *entry.layout, entry.place, entry.group)
                entry.keys.append(key)
            return
        if step < len(entry.channel.wires):
            dtype, shape = entry.channel.wires[step]
            name = entry.name if step == 0 else f"{entry.name}, exchange {step + 1}"
            strides = torch.empty(shape, device="meta").stride()
            entry.keys.append(
                self._transport.register(name, dtype, shape, strides, entry.place, entry.group)
            )

    def _submit(self, key: int, tensor: torch.Tensor, *, used: bool) -> int:
        entry = self._entries[key]
        if entry.submitted == self._rounds:
            # A transport in one order takes all tensors of a round before any of the next one.
            self._steps.drain()
            self._rounds += 1
        entry.submitted += 1
        if entry.channel is None:
            with self._steps.lock:
                begin = self._transport.submit if used else self._transport.unused
                generation = begin(entry.keys[0], tensor)
            self._steps.later(key, None)
            return generation
        tensor = tensor.detach()
        if not used:
            tensor.zero_()
        trip = _Trip(entry, tensor.device.type, used, entry.channel.carry(tensor, used=used))
        self._steps.begin(trip)
        self._steps.later(key, trip)
        entry.trips[entry.submitted - 1] = trip
        return entry.submitted - 1


class _Steps:
    """Begins the steps of exchanges; a thread begins all but the first ones."""

    def __init__(self, transport: Transport) -> None:
        self.lock = threading.Lock()  # a transport is used from one thread at a time, but to wait
        self._transport = transport
        self._more = threading.Condition()
        self._waiting: list[deque[_Trip | None]] = []
        self._left = 0
        self._ends = False
        self._thread: threading.Thread | None = None

    def start(self, tensors: int) -> None:
        """Run the thread, for so many tensors."""
        self._waiting = [deque() for _ in range(tensors)]
        self._thread = threading.Thread(target=self._run, name="allrail compression", daemon=True)
        self._thread.start()

    def begin(self, trip: _Trip) -> None:
        """Begin the next step of an exchange; the one before, if any, is over."""
        with plain_surroundings(trip.device):
            wire = next(trip.steps)
        trip.step += 1
        key = trip.entry.keys[trip.step]
        last = len(trip.entry.keys) - 1
        with self.lock:
            begin = self._transport.submit if trip.used else self._transport.unused
            trip.generation = begin(key, wire)
        if trip.step == last:
            trip.last.set()

    def later(self, key: int, trip: _Trip | None) -> None:
        """The first step of a tensor's exchange has begun; the thread begins the rest."""
        if self._thread is not None:
            with self._more:
                self._waiting[key].append(trip)
                self._left += 1
                self._more.notify_all()

    def drain(self) -> None:
        """Wait until all steps have begun: what comes then has the same place on every rank."""
        with self._more:
            self._more.wait_for(lambda: not self._left)

    def stop(self, process: int) -> None:
        """Begin what was promised, and end the thread; in a forked child there is none."""
        if self._thread is None or os.getpid() != process:
            return
        with self._more:
            self._ends = True
            self._more.notify_all()
        self._thread.join(_A_WHILE)

    def _run(self) -> None:
        while True:
            for trips in self._waiting:
                with self._more:
                    while not trips and not self._ends:
                        self._more.wait()
                    if not trips:
                        return
                    trip = trips.popleft()
                if trip is not None:
                    self._go_on(trip)
                with self._more:
                    self._left -= 1
                    self._more.notify_all()

    def _go_on(self, trip: _Trip) -> None:
        try:
            while not trip.last.is_set():
                self._transport.wait(trip.entry.keys[trip.step], trip.generation)
                self.begin(trip)
        except Exception as error:  # noqa: BLE001 - raised where somebody waits
            trip.error = error
            trip.last.set()
