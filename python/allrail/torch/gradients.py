"""Gradients leave during the backward pass, each pack as soon as it is complete.

A *round* is the exchange of every parameter's gradient once. It opens with the first gradient of a
backward pass and closes with its end. Whatever a rank's own pass did not bring it adds to the
round as zeros when it closes, without asking anybody; so ranks may use different parameters in
each step, and none waits for another that never comes. A parameter that nobody used keeps the
gradient it had, and its optimizer passes it over (`packs.py` says how that is known).

The first round only looks: which parameters get several gradients in one pass (a layer in two
reentrant checkpoints does), and in which order gradients become ready. Ranks agree on both, packs
are cut and registered in rank 0's order, and all are exchanged at once. From then on a pack leaves
in the hook that brings its last gradient.

The end of a pass is told by a callback of the autograd engine. A pass within a pass (a reentrant
checkpoint) has an end of its own; there, the thread is still within a node of the outer pass. Where
only inner passes brought gradients, the round closes when somebody asks for its result.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from allrail.base.errors import TrainingError
from allrail.runtime.record import USERS
from allrail.torch import private
from allrail.torch.barrier import Barriers
from allrail.torch.hooks import run_uncompiled
from allrail.torch.packs import PACK, Pack, Users, cut
from allrail.torch.parameter import Slot, gradient_of, set_gradient
from allrail.torch.sparse import SparseExchange
from allrail.torch.transport import Transport

Agree = Callable[[dict[str, Any]], dict[str, Any]]

_pass_now = private.current_graph_task


@dataclass(frozen=True, slots=True)
class Grouping:
    """What gradients are sent as.

    Attributes:
        pack: How many bytes of small gradients travel together; 0 sends each alone.
        groups: How many groups of packs are launched together, complete or not at all; 0: each pack
            on its own.
        whole: Whether the tensor scheduler sends tensors whole, in an order of its own.
    """

    pack: int = PACK
    groups: int = 0
    whole: bool = False

    def group_of(self, number: int, packs: int) -> int | None:
        """Return the group of a pack; neighbours are together, groups differ by a pack at most.

        Args:
            number: The pack's, from 0, in the order in which they become ready.
            packs: How many there are.
        """
        return number * min(self.groups, packs) // packs if self.groups else None


class Exchange:
    """Exchanges the gradients of one model.

    Args:
        slots: Its trainable parameters.
        transport: What carries them.
        barriers: Where waits for a whole view are counted.
        places: Gives, once the first forward pass is over, each slot's turn in it.
        agree: Called with what this rank saw in the first round; returns what all ranks go by.
        still_held: Called with parameters that brought no gradient; raises if the model has others.
        wait_at_end: Whether every backward pass ends with all gradients reduced.
        sparse: What becomes of sparse gradients: `refuse`, `densify` or `gather`.
        grouping: What gradients are sent as.
        round_over: Called when a round was closed.

    Attributes:
        synchronised: Whether backward passes exchange what they bring.
        partial: Whether one since the last round did not.
        packs: What gradients travel in, once the first round has shown it.
        rounds: How many rounds were closed; alike on all ranks between two steps.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        transport: Transport,
        barriers: Barriers,
        *,
        places: Callable[[], list[int]],
        agree: Agree,
        still_held: Callable[[list[torch.Tensor]], None],
        wait_at_end: bool,
        sparse: str,
        grouping: Grouping,
        round_over: Callable[[], None],
    ) -> None:
        self.synchronised = True
        self.partial = False
        self.rounds = 0
        self._slots = list(slots)
        self._transport = transport
        self._barriers = barriers
        self._places = places
        self._agree = agree
        self._still_held = still_held
        self._wait_at_end = wait_at_end
        # Where a pass ends with all of them, nothing comes meanwhile.
        self._hides = not wait_at_end
        self._sparse_means = sparse
        self._grouping = grouping
        self._round_over = round_over
        self.packs: list[Pack] = []
        self._sparse: SparseExchange | None = None
        self._started = False
        self._open = False
        self._closing = False
        self._task = -1
        self._order: list[Slot] = []
        self._counted: list[Slot] = []
        self._users_key = -1
        self._users: Users | None = None
        for slot in self._slots:
            self._attach(slot)
        # `torch.utils.swap_tensors` would take the hooks along. It refuses what somebody refers to
        # weakly; a `Watched` parameter refuses it itself, and says more.
        self._unswapped = [weakref.ref(slot.parameter) for slot in slots if wait_at_end]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward passes add to the gradients of this rank only."""
        before, self.synchronised = self.synchronised, False
        try:
            yield
        finally:
            self.synchronised = before

    def read(self, slot: Slot) -> None:
        """Somebody reads a gradient: make it complete first."""
        if self._closing:
            return
        if self._open and _pass_now() == -1:
            self.close()
        if slot.flight is not None:
            self._barriers.note("gradient", slot.name)
            slot.flight.finish()

    def drop(self, slot: Slot) -> None:
        """Somebody replaces a gradient: what is in flight for it goes on to its end unseen."""
        if self._open and _pass_now() == -1:
            self.close()
        slot.keep = slot.zeroed = False

    def close(self) -> None:
        """Close the round, if one is open: what it still lacks is sent."""
        if not self._open or self._closing:
            return
        self._closing = True
        try:
            if not self._started:
                self._start()
            if unused := [slot.parameter for slot in self._slots if not slot.used]:
                self._still_held(unused)
            users = self._count_users() if self._counted else None
            for pack in self.packs:
                if not pack.sent:
                    self._make_room(pack.slots)
                    pack.send(self._make_dense, users)
            if users is not None:
                users.generation = self._transport.submit(self._users_key, users.counts)
                if self._sparse is not None:
                    self._make_room(slot for slot in self._order if slot.sparse)
                    self._sparse.send(users)
            for pack in self.packs:
                pack.missing, pack.sent = len(pack.slots), False
            for slot in self._order:
                slot.fires, slot.used = 0, False
            self._open = self.partial = False
            self.rounds += 1
            self._barriers.next_round()
            self._round_over()
        finally:
            self._closing = False
        if self._wait_at_end:
            self.finish()

    def finish(self) -> None:
        """Close the round and wait for all gradients."""
        self.close()
        for slot in self._slots:
            if slot.flight is not None:
                slot.flight.finish()
        if self._users is not None:
            self._users.wait()

    def detach(self) -> None:
        """Take the hooks off the parameters."""
        for slot in self._slots:
            for handle in slot.handles:
                handle.remove()
            slot.handles.clear()
        self._unswapped.clear()

    def _attach(self, slot: Slot) -> None:
        # Autograd holds hooks where the garbage collector does not see them: they must not hold
        # the model.
        exchange, of = weakref.ref(self), weakref.ref(slot)

        def after(parameter: torch.Tensor) -> None:
            del parameter
            if (alive := exchange()) is not None and (slot := of()) is not None:
                alive._on_gradient(slot)

        run_uncompiled(after, Exchange._pass_is_over)
        slot.handles.append(slot.parameter.register_post_accumulate_grad_hook(after))

    def _on_gradient(self, slot: Slot) -> None:
        """A gradient was added to `grad`."""
        pack = slot.pack
        if slot.pending is not None:
            raise _too_late(slot)
        if slot.fires and pack is not None and pack.sent:
            raise _second(slot)
        if slot.flight is not None:
            slot.flight.finish()
        slot.used = True
        if pack is None or not self.synchronised:
            self._look_at(slot)
            if not self.synchronised:
                self.partial = True
                return
        slot.fires += 1
        self._open = True
        if (task := _pass_now()) != self._task:
            self._task = task
            private.execution_engine.queue_callback(self._pass_is_over)
        if slot.fires > 1:
            return
        if pack is None:
            if not self._started:
                self._order.append(slot)
            return
        pack.missing -= 1
        if pack.missing == 0 and not pack.late:
            pack.send(self._make_dense, None)

    def _look_at(self, slot: Slot) -> None:
        """Make a sparse gradient dense, unless rows travel."""
        gradient = gradient_of(slot.parameter)
        if gradient is None or gradient.layout == torch.strided:
            return
        if self._sparse_means != "gather" or (self._started and not slot.sparse):
            self._make_dense(slot, gradient)

    def _pass_is_over(self) -> None:
        self._task = -1
        # Within a node of another pass, that one is not over.
        if private.current_autograd_node() is None:
            self.close()

    def _make_room(self, slots: Iterable[Slot]) -> None:
        """End what is left of the last round."""
        for slot in slots:
            if slot.pending is not None:
                slot.pending.stepper.make([slot.pending])
            if slot.flight is not None:
                slot.flight.finish()

    def _count_users(self) -> Users:
        if self._users is not None:
            self._users.wait()
        used = [int(slot.used) for slot in self._counted]
        counts = torch.tensor(used, dtype=torch.int32, device=self._slots[0].parameter.device)
        self._users = Users(self._transport, self._users_key, counts, -1)
        return self._users

    def _start(self) -> None:
        """The first round is over here: agree on what it showed, and register the tensors."""
        ready = [slot.index for slot in self._order]
        ready += [slot.index for slot in self._slots if not slot.fires]
        late = [slot.index for slot in self._slots if slot.fires > 1]
        sparse = [slot.index for slot in self._slots if _is_sparse(slot)]
        agreed = self._agree(
            {"ready": ready, "late": late, "sparse": sparse, "places": self._places()}
        )
        self._order = [self._slots[index] for index in agreed["ready"]]
        for index in agreed["late"]:
            self._slots[index].late = True
        for index in agreed["sparse"]:
            self._slots[index].sparse = True
        rows = [slot for slot in self._order if slot.sparse]
        dense = [slot for slot in self._order if not slot.sparse]
        self.packs = cut(dense, self._grouping.pack, hides=self._hides)
        whole = self._grouping.whole
        places = [place + whole for place in agreed["places"]]
        for number, pack in enumerate(self.packs):
            group = self._grouping.group_of(number, len(self.packs))
            pack.register(self._transport, places, group)
        alone = [pack for pack in self.packs if len(pack.slots) == 1]
        self._counted = [*rows, *(pack.slots[0] for pack in alone)]
        for place, pack in enumerate(alone, len(rows)):
            pack.counted = place
        if count := len(self._counted):
            # It is ready when a pass is over: last, so that it holds back nothing.
            place = 0 if whole else len(self._slots)
            self._users_key = self._transport.register(USERS, torch.int32, (count,), (1,), place)
        if rows:
            self._sparse = SparseExchange(rows, self._transport, hides=self._hides)
        self._transport.start()
        self._started = True

    def _make_dense(self, slot: Slot, gradient: torch.Tensor) -> torch.Tensor:
        if self._sparse_means == "gather":
            raise TrainingError(
                "its gradient is sparse, and no rank's was in the first step",
                field=slot.name,
                hint="use it in the first step, on one rank at least",
            )
        if self._sparse_means == "refuse":
            raise TrainingError(
                "its gradient is sparse",
                field=slot.name,
                hint="schedule with `sparse='gather'`, which exchanges rows, or with `'densify'`;"
                " or build the embedding with `sparse=False`",
            )
        dense = gradient.to_dense()
        set_gradient(slot.parameter, dense)
        return dense


def _is_sparse(slot: Slot) -> bool:
    gradient = gradient_of(slot.parameter)
    return gradient is not None and gradient.layout != torch.strided


def _too_late(slot: Slot) -> TrainingError:
    return TrainingError(
        "it was used in a forward pass before its last step was made, so this gradient"
        " would be that of an old value",
        field=slot.name,
        hint="no module whose forward was seen to use it had been called; call"
        " `allrail.torch.synchronize()` before such a forward pass, or schedule with"
        " `cross_barrier=False`",
    )


def _second(slot: Slot) -> TrainingError:
    return TrainingError(
        "a second gradient of it came in one backward pass, after the first had left",
        field=slot.name,
        hint="the first backward pass showed one: let it take the same way as later ones,"
        " or use checkpoints with `use_reentrant=False`",
    )


def agreed_order(said: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all ranks go by after the first round.

    Rank 0's order holds; what any rank saw late, or sparse, is so on all.

    Args:
        said: What each rank has seen of that round.
    """
    late = sorted({index for theirs in said for index in theirs["late"]})
    sparse = sorted({index for theirs in said for index in theirs["sparse"]})
    ready, places = said[0]["ready"], said[0]["places"]
    return {"ready": ready, "places": places, "late": late, "sparse": sparse}
