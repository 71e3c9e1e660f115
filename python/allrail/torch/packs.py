"""Gradients travel in packs: small ones together, a large one alone.

What an exchange costs apart from its bytes (a submission, frames, an order among others) is the
same for eight bytes and for a megabyte. So gradients of one type that become ready one after the
other share a pack, up to a number of bytes. A pack of several tensors has memory of its own:

    | mean of tensor 0 | mean of tensor 1 | ... | share of ranks that used 0 | ... of 1 | ... |

A gradient is copied in when the pack leaves, and the mean is copied back when the pack has
arrived. What a rank has no gradient for it adds as zeros; the shares at the end tell whether any
rank had one, so no rank has to ask. A pack of one tensor is the gradient's own memory, and who
used it is told by `Users`.

While a pack is under way, the parameters of a model whose steps cross passes have no `grad` in
autograd's sense: what a backward pass brings meanwhile stands by itself, and is added to the mean
when that has arrived. `parameter.Watched` shows the mean to whoever reads `grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from allrail.base.errors import TrainingError
from allrail.torch import private
from allrail.torch.parameter import Slot, gradient_of, set_gradient
from allrail.torch.transport import Transport

PACK = 1 << 20
"""Bytes of a pack where nothing else is known."""


@dataclass
class Users:
    """Which parameters some rank had a gradient for in a round: a number above 0 where one had."""

    transport: Transport
    key: int
    counts: torch.Tensor
    generation: int
    _over: bool = False

    def any(self, place: int) -> bool:
        """Whether a rank used the parameter that has this place among those that are counted."""
        self.wait()
        return bool(self.counts[place] > 0)

    def wait(self) -> None:
        """Return when the answer is there."""
        if not self._over:
            self.transport.wait(self.key, self.generation)
            self._over = True


class Pack:
    """Gradients that travel together; all ranks have the same packs.

    Args:
        slots: Of the parameters, all of one type and on one device, in the order in which their
            gradients become ready.
        hides: Whether parameters have no `grad` while it is under way.

    Attributes:
        counted: Of a lone tensor, its place among those whose users are counted; else -1.
        late: Whether a parameter may get several gradients in one pass, so that only its end is
            safe.
        missing: How many gradients the pass that is going on has not brought yet.
        sent: Whether it has left in the round that is open.
        flight: Its last exchange, until that is over.
    """

    __slots__ = (
        "_counts",
        "_hides",
        "_memory",
        "_parameters",
        "_scale",
        "_shapes",
        "_transport",
        "_views",
        "counted",
        "dtype",
        "flight",
        "key",
        "late",
        "missing",
        "sent",
        "slots",
    )

    def __init__(self, slots: Sequence[Slot], *, hides: bool) -> None:
        self.slots = tuple(slots)
        self.late = any(slot.late for slot in slots)
        self.missing = len(slots)
        self.sent = False
        self.flight: Flight | None = None
        self.key = self.counted = -1
        self.dtype = slots[0].parameter.dtype
        self._hides = hides
        self._parameters = [slot.parameter for slot in slots]
        self._shapes = [slot.parameter.shape for slot in slots]
        self._transport: Transport
        self._scale = 1.0
        self._memory: torch.Tensor | None = None
        self._views: list[torch.Tensor] = []
        self._counts: torch.Tensor | None = None
        for position, slot in enumerate(slots):
            slot.pack, slot.position = self, position
            slot.layout = slot.layout_now()

    @property
    def name(self) -> str:
        """What messages call it."""
        others = len(self.slots) - 1
        return self.slots[0].name + (f" and {others} more" if others else "")

    def register(
        self, transport: Transport, places: Sequence[int], group: int | None = None
    ) -> None:
        """Announce it; its priority is that of its most urgent tensor.

        Args:
            transport: What carries it.
            places: Of each parameter of the model, its turn in the forward pass.
            group: What is launched together; None for this pack on its own.
        """
        self._transport = transport
        self._scale = 1.0 / transport.ranks
        place = min(places[slot.index] for slot in self.slots)
        if len(self.slots) == 1:
            layout = self.slots[0].layout_now()
            self.key = transport.register(self.name, *layout, place, group)
            return
        sizes = [parameter.numel() for parameter in self._parameters]
        total = sum(sizes) + len(sizes)
        self.key = transport.register(self.name, self.dtype, (total,), (1,), place, group)
        self._memory = torch.zeros(total, dtype=self.dtype, device=self._parameters[0].device)
        start = 0
        for size, parameter in zip(sizes, self._parameters, strict=True):
            where = (parameter.shape, parameter.stride(), start)
            self._views.append(self._memory.as_strided(*where))
            start += size
        self._counts = self._memory[start:]

    def send(
        self, dense: Callable[[Slot, torch.Tensor], torch.Tensor], users: Users | None
    ) -> None:
        """Begin its exchange, with the gradients that are there.

        Args:
            dense: Gives the gradient to send in the place of a sparse one.
            users: Tells what others used, if this rank may lack the gradient of a lone tensor.
        """
        if self.flight is not None:
            self.flight.finish()
        targets = [gradient_of(parameter) for parameter in self._parameters]
        if any(each is not None and each.layout is not torch.strided for each in targets):
            targets = [
                dense(slot, each) if each is not None and each.layout != torch.strided else each
                for slot, each in zip(self.slots, targets, strict=True)
            ]
        lacks = [place for place, slot in enumerate(self.slots) if not slot.used]
        with torch.no_grad():
            if self._memory is None:
                buffer = self._alone(targets[0], lacks=bool(lacks))
            else:
                buffer = self._together(targets, lacks)
        begin = self._transport.submit
        if len(lacks) == len(targets) and all(each is None for each in targets):
            begin = self._transport.unused
        generation = begin(self.key, buffer)
        self.flight = flight = Flight(self, generation, buffer, targets, lacks, users)
        self.sent = True
        for slot in self.slots:
            slot.flight = flight
            slot.keep, slot.zeroed = True, False
        if self._hides:
            for parameter in self._parameters:
                set_gradient(parameter, None)

    def _alone(self, gradient: torch.Tensor | None, *, lacks: bool) -> torch.Tensor:
        """The one gradient's own memory, unless that must stay as it is."""
        slot, parameter = self.slots[0], self._parameters[0]
        if gradient is None:
            return torch.empty_like(parameter, memory_format=torch.preserve_format)
        if slot.layout_now() != slot.layout or gradient.dtype != self.dtype:
            raise _changed(slot, gradient)
        if gradient.stride() != parameter.stride():
            fitting = torch.empty_like(parameter, memory_format=torch.preserve_format)
            return fitting.copy_(gradient).mul_(self._scale)
        if lacks:
            return gradient.mul(self._scale)
        return gradient.detach().mul_(self._scale)

    def _together(self, targets: list[torch.Tensor | None], lacks: list[int]) -> torch.Tensor:
        """The pack's memory, with all gradients copied in."""
        memory, counts = self._memory, self._counts
        if memory is None or counts is None:
            raise RuntimeError("a pack of several tensors has memory")
        for slot, shape, each in zip(self.slots, self._shapes, targets, strict=True):
            if each is not None and (each.shape != shape or each.dtype is not self.dtype):
                raise _changed(slot, each)
        counts.fill_(1.0)
        if lacks:
            counts[lacks] = 0.0
        views, sources = self._views, targets
        if any(each is None for each in targets):
            for view, each in zip(views, targets, strict=True):
                if each is None:
                    view.zero_()
            have = [place for place, each in enumerate(targets) if each is not None]
            views, sources = [views[place] for place in have], [targets[place] for place in have]
        if views:
            private.foreach_copy_(views, sources)
        return memory.mul_(self._scale)

    def receive(self, flight: Flight) -> None:
        """Its exchange is over: put means where gradients are expected."""
        self._transport.wait(self.key, flight.generation)
        if self.flight is flight:
            self.flight = None
        targets = flight.targets
        with torch.no_grad(), private.DisableTorchFunctionSubclass():
            if self._memory is None:
                target = targets[0]
                if not flight.lacks or flight.users is None or flight.users.any(self.counted):
                    if target is None:
                        targets[0] = flight.buffer
                    elif target.data_ptr() != flight.buffer.data_ptr():
                        target.copy_(flight.buffer)
            else:
                self._copy_back(flight)
            for slot, target in zip(self.slots, targets, strict=True):
                slot.flight = None
                if slot.keep and target is not None and gradient_of(slot.parameter) is None:
                    set_gradient(slot.parameter, target)
                else:
                    show(slot, target)

    def is_done(self, generation: int) -> bool:
        """Whether an exchange is over."""
        return self._transport.is_done(self.key, generation)

    def _copy_back(self, flight: Flight) -> None:
        targets, views = flight.targets, self._views
        if flight.lacks:
            shares = [] if self._counts is None else self._counts.tolist()
            nobody = {place for place in flight.lacks if shares[place] == 0}
            places = [place for place in range(len(targets)) if place not in nobody]
            for place in places:
                if targets[place] is None:
                    targets[place] = torch.empty_like(self._parameters[place])
            targets, views = [targets[one] for one in places], [views[one] for one in places]
        if targets:
            private.foreach_copy_(targets, views)


class Flight:
    """The exchange of one pack.

    Attributes:
        buffer: The tensor that is summed in place.
        targets: Of each parameter, where its mean belongs: its gradient when the pack left, or
            None if it had none. When it is over, the mean; None if no rank has one.
        lacks: The positions of parameters that this rank's own pass did not use.
        users: Tells whether any rank used a lone one.
        over: Whether means are where they belong.
    """

    __slots__ = ("buffer", "generation", "lacks", "over", "pack", "targets", "users")

    def __init__(
        self,
        pack: Pack,
        generation: int,
        buffer: torch.Tensor,
        targets: list[torch.Tensor | None],
        lacks: list[int],
        users: Users | None,
    ) -> None:
        self.pack = pack
        self.generation = generation
        self.buffer = buffer
        self.targets = targets
        self.lacks = lacks
        self.users = users
        self.over = False

    def is_done(self) -> bool:
        """Whether `finish` would return at once, as far as that is known."""
        return self.over or self.pack.is_done(self.generation)

    def finish(self) -> list[torch.Tensor | None]:
        """Wait for the exchange; return the mean gradients, None where no rank has one."""
        if not self.over:
            self.pack.receive(self)
            self.over = True
        return self.targets


def show(slot: Slot, mean: torch.Tensor | None) -> None:
    """Put a mean below what came for its parameter since, unless that is no longer asked for."""
    now = gradient_of(slot.parameter)
    if slot.keep:
        if now is None or mean is None or now is mean:
            if mean is not None:
                set_gradient(slot.parameter, mean)
        else:
            set_gradient(slot.parameter, mean.add_(now))
    elif slot.zeroed and now is None and mean is not None:
        set_gradient(slot.parameter, torch.zeros_like(mean))


def _changed(slot: Slot, gradient: torch.Tensor) -> TrainingError:
    return TrainingError(
        f"its type, shape or strides are not what was scheduled: its gradient is"
        f" {gradient.dtype} {tuple(gradient.shape)}",
        field=slot.name,
        hint="schedule the model after it has its final type and memory format",
    )


def cut(slots: Iterable[Slot], size: int, *, hides: bool) -> list[Pack]:
    """Share parameters out to packs.

    Each goes into the last pack of its kind (type, device, whether it may get several gradients)
    that has room, so that a pack is full before the next one begins.

    Args:
        slots: In the order in which their gradients become ready.
        size: How many bytes a pack holds; a tensor that is larger goes alone. 0 packs nothing.
        hides: As of `Pack`.

    Returns:
        Packs, by when they are full.
    """
    packs: list[list[Slot]] = []
    open_ones: dict[tuple[torch.dtype, torch.device, bool], tuple[list[Slot], int]] = {}
    turns: dict[int, int] = {}
    for turn, slot in enumerate(slots):
        turns[slot.index] = turn
        parameter = slot.parameter
        bytes_ = prod(parameter.shape) * parameter.element_size()
        kind = (parameter.dtype, parameter.device, slot.late)
        pack, taken = open_ones.get(kind, ([], 0))
        if not pack or taken + bytes_ > size:
            pack, taken = [], 0
            packs.append(pack)
        pack.append(slot)
        if bytes_ <= size:
            open_ones[kind] = pack, taken + bytes_
    packs.sort(key=lambda pack: turns[pack[-1].index])
    return [Pack(pack, hides=hides) for pack in packs]


def broadcast(transport: Transport, tensors: Sequence[torch.Tensor], size: int) -> None:
    """Give all ranks what rank 0 has, small tensors together.

    Args:
        transport: What carries them.
        tensors: What is overwritten.
        size: As of `cut`.
    """
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    apart: list[torch.Tensor] = []
    for tensor in tensors:
        if tensor.numel() * tensor.element_size() > size // 4:
            apart.append(tensor)
        else:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    together = [
        (torch.cat([each.detach().reshape(-1) for each in some]), some) for some in kinds.values()
    ]
    transport.broadcast([*apart, *(flat for flat, _ in together)])
    if transport.rank == 0:
        return
    for flat, some in together:
        views = flat.split([each.numel() for each in some])
        private.foreach_copy_(
            [each.detach() for each in some],
            [view.view(each.shape) for view, each in zip(views, some, strict=True)],
        )
