"""Gradients leave during the backward pass, each as soon as it is complete.

A *round* is the exchange of every parameter's gradient once. It opens with the first gradient of a
backward pass and closes with its end. Whatever a rank's own pass did not bring it adds to the
round as zeros when it closes, without asking anybody; so ranks may use different parameters in
each step, and none waits for another that never comes. One more small tensor counts, per
parameter, the ranks that used it: a parameter that nobody used keeps the gradient it had, and its
optimizer passes it over.

The first round only looks: which parameters get several gradients in one pass (a layer in two
reentrant checkpoints does), and in which order gradients become ready. Ranks agree on both, the
tensors are registered in rank 0's order, and all are exchanged at once. From then on the exchange
of a gradient begins in the hook that brings it.

The end of a pass is told by a callback of the autograd engine. A pass within a pass (a reentrant
checkpoint) has an end of its own, which is told from the outer one by the frames on the stack.
Where only inner passes brought gradients, the round closes when somebody asks for its result.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from allrail.errors import TrainingError
from allrail.torch.barrier import Barriers
from allrail.torch.hooks import run_uncompiled
from allrail.torch.parameter import Flight, Slot, Users, gradient_of, set_gradient
from allrail.torch.sparse import SparseExchange
from allrail.torch.transport import Transport

Agree = Callable[[dict[str, Any]], dict[str, Any]]


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

    Attributes:
        synchronised: Whether backward passes exchange what they bring.
        partial: Whether one since the last round did not.
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
        self._sparse_means = sparse
        self._sparse: SparseExchange | None = None
        self._started = False
        self._open = False
        self._closing = False
        self._task = -1
        self._order: list[Slot] = []
        self._users_key = -1
        self._users: Users | None = None
        for slot in self._slots:
            self._attach(slot)

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
        if self._open and not _in_backward():
            self.close()
        if slot.flight is not None:
            self._barriers.note("gradient", slot.name)
            slot.flight.finish()

    def drop(self, slot: Slot) -> None:
        """Somebody replaces a gradient: what is in flight for it goes on to its end unseen."""
        if self._open and not _in_backward():
            self.close()
        if slot.flight is not None:
            slot.flight.keep = slot.flight.zeroed = False

    def close(self) -> None:
        """Close the round, if one is open: what it still lacks is sent."""
        if not self._open or self._closing:
            return
        self._closing = True
        try:
            if not self._started:
                self._start()
            used = [int(slot.used) for slot in self._slots]
            if not all(used):
                self._still_held([slot.parameter for slot in self._slots if not slot.used])
            missing = [slot for slot in self._order if not slot.sent and not slot.sparse]
            for slot in self._order:
                if not slot.sent:
                    self._make_room(slot)
            users = self._count_users(used)
            for slot in missing:
                gradient = gradient_of(slot.parameter)
                if slot.fires and gradient is not None:
                    self._send(slot, gradient)
                else:
                    self._send_nothing(slot, gradient, users)
            users.generation = self._transport.submit(self._users_key, users.counts)
            if self._sparse is not None:
                self._sparse.send(used, users)
            for slot in self._slots:
                slot.fires, slot.used, slot.sent = 0, False, False
            self._open = self.partial = False
            self.rounds += 1
            self._barriers.next_round()
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
            self._transport.wait(self._users_key, self._users.generation)

    def detach(self) -> None:
        """Take the hooks off the parameters."""
        for slot in self._slots:
            for handle in slot.handles:
                handle.remove()
            slot.handles.clear()

    def _attach(self, slot: Slot) -> None:
        # Autograd holds hooks where the garbage collector does not see them: they must not hold
        # the model.
        exchange, of = weakref.ref(self), weakref.ref(slot)

        def before(gradient: torch.Tensor) -> None:
            del gradient
            if (alive := exchange()) is not None and (slot := of()) is not None:
                alive._before_gradient(slot)

        def after(parameter: torch.Tensor) -> None:
            del parameter
            if (alive := exchange()) is not None and (slot := of()) is not None:
                alive._on_gradient(slot)

        run_uncompiled(before, after, Exchange._pass_is_over)
        parameter = slot.parameter
        slot.handles.append(parameter.register_hook(before))
        slot.handles.append(parameter.register_post_accumulate_grad_hook(after))

    def _before_gradient(self, slot: Slot) -> None:
        """A gradient is about to be added to `grad`, which must not be in flight then."""
        if slot.pending is not None:
            raise TrainingError(
                "it was used in a forward pass before its last step was made, so this gradient"
                " would be that of an old value",
                field=slot.name,
                hint="no module whose forward was seen to use it had been called; call"
                " `allrail.torch.synchronize()` before such a forward pass, or schedule with"
                " `cross_barrier=False`",
            )
        if slot.flight is None:
            return
        if slot.sent:
            raise TrainingError(
                "a second gradient of it came in one backward pass, after the first had left",
                field=slot.name,
                hint="the first backward pass showed one: let it take the same way as later ones,"
                " or use checkpoints with `use_reentrant=False`",
            )
        slot.flight.finish()

    def _on_gradient(self, slot: Slot) -> None:
        """A gradient was added to `grad`."""
        gradient = gradient_of(slot.parameter)
        if gradient is None:
            return
        if gradient.layout != torch.strided and not (
            self._sparse_means == "gather" and self._may_be_sparse(slot)
        ):
            gradient = self._make_dense(slot, gradient)
        slot.used = True
        if not self.synchronised:
            self.partial = True
            return
        self._open = True
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self._pass_is_over)
        slot.fires += 1
        if self._started and not slot.late and not slot.sparse:
            self._send(slot, gradient)
        elif not self._started and slot.fires == 1:
            self._order.append(slot)

    def _pass_is_over(self) -> None:
        self._task = -1
        if not _within_another_pass():
            self.close()

    def _send(self, slot: Slot, gradient: torch.Tensor) -> None:
        buffer = self._fitting(slot, gradient)
        buffer.mul_(1.0 / self._transport.ranks)  # it asks for no gradient: nobody watches
        generation = self._transport.submit(slot.key, buffer)
        slot.flight = Flight(slot, self._transport, generation, buffer, gradient)
        slot.sent = True

    def _send_nothing(self, slot: Slot, target: torch.Tensor | None, users: Users) -> None:
        """Take part for a parameter that this rank did not use; `target` is its old gradient."""
        if target is None:
            buffer = torch.empty_like(slot.parameter, memory_format=torch.preserve_format).detach()
            generation = self._transport.unused(slot.key, buffer)
        else:
            buffer = self._fitting(slot, target).mul(1.0 / self._transport.ranks)
            generation = self._transport.submit(slot.key, buffer)
        slot.flight = Flight(slot, self._transport, generation, buffer, target, users)
        slot.sent = True

    def _make_room(self, slot: Slot) -> None:
        """End what is left of the slot's last round."""
        if slot.pending is not None:
            slot.pending.stepper.make([slot])
        if slot.flight is not None:
            slot.flight.finish()

    def _count_users(self, used: list[int]) -> Users:
        if self._users is not None:
            self._transport.wait(self._users_key, self._users.generation)
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
        for slot in self._order:
            if slot.sparse:
                continue
            slot.layout = slot.layout_now()
            place = agreed["places"][slot.index]
            slot.key = self._transport.register(slot.name, *slot.layout, place)
        count = len(self._slots)
        self._users_key = self._transport.register(
            "which parameters are used", torch.int32, (count,), (1,), count
        )
        if agreed["sparse"]:
            rows = [slot for slot in self._order if slot.sparse]
            self._sparse = SparseExchange(rows, self._transport)
        self._transport.start()
        self._started = True

    def _may_be_sparse(self, slot: Slot) -> bool:
        """What the first round shows holds for all."""
        return slot.sparse or not self._started

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

    def _fitting(self, slot: Slot, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient, detached, in the registered layout: mostly its own memory."""
        parameter = slot.parameter
        if slot.layout_now() != slot.layout or gradient.dtype != parameter.dtype:
            raise TrainingError(
                f"its type, shape or strides are not what was scheduled: its gradient is"
                f" {gradient.dtype} {tuple(gradient.shape)}",
                field=slot.name,
                hint="schedule the model after it has its final type and memory format",
            )
        if gradient.stride() == parameter.stride():
            return gradient.detach()
        fitting = torch.empty_like(parameter, memory_format=torch.preserve_format).detach()
        return fitting.copy_(gradient.detach())


def _is_sparse(slot: Slot) -> bool:
    gradient = gradient_of(slot.parameter)
    return gradient is not None and gradient.layout != torch.strided


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _within_another_pass() -> bool:
    """Whether the backward pass that ends here runs within a node of another one."""
    frame: FrameType | None = sys._getframe(1)
    passes = 0
    while frame is not None:
        # Where device threads run backward passes, the outer one is not on this stack, its node is.
        passes += frame.f_code.co_name == "_engine_run_backward"
        if frame.f_code.co_qualname == "BackwardCFunction.apply":
            return True
        frame = frame.f_back
    return passes > 1
