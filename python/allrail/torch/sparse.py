"""Sparse gradients, such as those of `nn.Embedding(sparse=True)`: rows travel with their places.

How many rows a rank has differs from rank to rank and from step to step. So a round has two
exchanges for them. When the backward pass is over, ranks sum a small tensor in which each has
written how many rows it brings of each parameter, and wait for it; then everybody's rows are
gathered, padded to the longest, while the script goes on. The mean is the concatenation, coalesced:
ranks' rows in the order of ranks, alike on all.

A parameter that a rank did not use brings no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from allrail.torch import private
from allrail.torch.packs import Users, show
from allrail.torch.parameter import Slot, gradient_of, set_gradient
from allrail.torch.transport import Transport


@dataclass
class SparseFlight:
    """The exchange of one sparse gradient; a `Flight` to whoever waits for it.

    Attributes:
        tickets: Of the gathers of places and values; None where nobody brings a row.
        targets: The gradient that stands where the mean belongs, or None; afterwards the mean.
        users: Tells whether any rank used the parameter; None where this rank did.
        place: The parameter's place among those whose users are counted.
    """

    slot: Slot
    transport: Transport
    counts: list[int]
    places: torch.Tensor
    rows: torch.Tensor
    tickets: tuple[int, int] | None
    targets: list[torch.Tensor | None]
    users: Users | None
    place: int
    over: bool = False

    def is_done(self) -> bool:
        """Whether `finish` would return at once, as far as that is known."""
        return self.over

    def finish(self) -> list[torch.Tensor | None]:
        """Wait for the exchange; return the mean gradient, None if no rank has one."""
        if self.over:
            return self.targets
        if self.tickets is not None:
            for ticket in self.tickets:
                self.transport.gathered(ticket)
        self.over = True
        slot = self.slot
        if slot.flight is self:
            slot.flight = None
        if self.users is None or self.users.any(self.place):
            self.targets = [self._mean()]
        with torch.no_grad(), private.DisableTorchFunctionSubclass():
            show(slot, self.targets[0])
        return self.targets

    def _mean(self) -> torch.Tensor:
        places = [row[:count] for row, count in zip(self.places, self.counts, strict=True)]
        rows = [row[:count] for row, count in zip(self.rows, self.counts, strict=True)]
        shape = self.slot.parameter.shape
        with torch.no_grad():
            whole = torch.sparse_coo_tensor(torch.cat(places)[None], torch.cat(rows), shape)
            return whole.coalesce()


class SparseExchange:
    """Exchanges the sparse gradients of a model, once in every round.

    Args:
        slots: The parameters that have them, in an order that all ranks have.
        transport: What carries them.
        hides: Whether parameters have no `grad` while it is under way.
    """

    def __init__(self, slots: Sequence[Slot], transport: Transport, *, hides: bool) -> None:
        self._slots = list(slots)
        self._hides = hides
        self._transport = transport
        self._shape = (transport.ranks, len(self._slots))
        strides = (len(self._slots), 1)
        name = "rows of sparse gradients"
        self._key = transport.register(name, torch.int64, self._shape, strides, place=0)

    def send(self, users: Users) -> None:
        """Begin the exchange of all of them; returns when the numbers of rows are known.

        Args:
            users: Tells what others used; these parameters are the first that it counts.
        """
        device = self._slots[0].parameter.device
        gradients = [gradient_of(slot.parameter) for slot in self._slots]
        mine = [self._rows(gradient) for gradient in gradients]
        counts = torch.zeros(self._shape, dtype=torch.int64, device=device)
        brought = [0 if own is None else own[0].numel() for own in mine]
        counts[self._transport.rank] = torch.tensor(brought, device=device)
        self._transport.wait(self._key, self._transport.submit(self._key, counts))
        of_slots = counts.t().tolist()
        for place, slot in enumerate(self._slots):
            others = None if slot.used else users
            slot.keep, slot.zeroed = True, False
            slot.flight = self._begin(
                slot, mine[place], of_slots[place], gradients[place], others, place
            )
            if self._hides:
                set_gradient(slot.parameter, None)

    def _begin(
        self,
        slot: Slot,
        own: tuple[torch.Tensor, torch.Tensor] | None,
        counts: list[int],
        target: torch.Tensor | None,
        users: Users | None,
        place: int,
    ) -> SparseFlight:
        parameter, transport = slot.parameter, self._transport
        shape = (transport.ranks, max(counts))
        places = torch.zeros(shape, dtype=torch.int64, device=parameter.device)
        rows = torch.zeros(
            (*shape, *parameter.shape[1:]), dtype=parameter.dtype, device=parameter.device
        )
        if own is not None:
            places[transport.rank, : own[0].numel()] = own[0]
            rows[transport.rank, : own[0].numel()] = own[1]
        tickets = None
        if max(counts):
            tickets = transport.gather(places), transport.gather(rows)
        return SparseFlight(slot, transport, counts, places, rows, tickets, [target], users, place)

    def _rows(self, gradient: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor] | None:
        """This rank's part of the mean: places and values."""
        if gradient is None:
            return None
        with torch.no_grad():
            if gradient.layout == torch.strided:  # another layer gave a dense one to it, too
                gradient = gradient.to_sparse(1)
            whole = gradient.detach().coalesce()
            return whole.indices()[0], whole.values() * (1.0 / self._transport.ranks)
