"""The optimizer's step, made for each parameter when its gradient is there.

`step()` notes the hyperparameters of the moment and returns. A parameter is stepped by the
optimizer's own `step`, which is shown a view of itself with those hyperparameters and the
parameters that are due; state and `state_dict` stay the optimizer's. What is ready is stepped
together, so that foreach and fused implementations have something to work on.

Not every step can be taken apart: `behaviour.py` finds out, and then `step()` waits for all
gradients and runs the optimizer as it is. It does so, too, where a closure, hooks or a scaler want
a whole view.
"""

from __future__ import annotations

import copy
import operator
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from allrail.base.errors import InputError, TrainingError
from allrail.torch import private
from allrail.torch.barrier import Barriers
from allrail.torch.behaviour import Behaviour, advance, step_of, types_stepped_together
from allrail.torch.gradients import Exchange
from allrail.torch.hooks import run_uncompiled
from allrail.torch.methods import clear
from allrail.torch.parameter import Pending, Slot, Watched, gradient_of, set_gradient
from allrail.torch.states import mark_pending, unwatch_state, watch_state
from allrail.torch.surroundings import plain_surroundings
from allrail.torch.touch import Memory, Unstepped
from allrail.torch.undo import Undo

_FOREACH: tuple[dict[str, Any], ...] = ({}, {"foreach": True})
_MARKS = ("_wrapped_by_lr_sched", "_with_counter")
_making = threading.RLock()
"""Held while steps are made: any thread that touches a parameter makes its step."""


class Stepper:
    """Takes the place of one optimizer's `step` and `zero_grad`.

    Args:
        optimizer: The optimizer.
        slots: The slot of each trainable parameter of the model.
        exchange: What brings the gradients.
        barriers: Where waits for a whole view are counted.
        behaviour: How its step can be made.
        settle: Makes all pending steps of the model.
        memory: Knows of aliases of parameters.
        undo: Whether a step that not all parameters can make is taken back.

    Attributes:
        asked: How many steps were asked for.
        pending: Steps that were asked for and are not made yet, in the order of the groups.
        crossed: Whether steps were asked for while their gradients were in flight, since the last
            time that all were made.
        before_step: Called when a step is asked for and all before it are made.
        in_forward: Whether the model's forward pass is going on, which may use any parameter.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        slots: dict[torch.Tensor, Slot],
        exchange: Exchange,
        barriers: Barriers,
        *,
        behaviour: Behaviour,
        settle: Callable[[str], None],
        memory: Memory,
        undo: bool,
    ) -> None:
        self.asked = 0
        self._undo = Undo(optimizer) if undo else None
        self._optimizer = optimizer
        self._slots = slots
        self._device = next(iter(slots)).device.type
        self._exchange = exchange
        self._barriers = barriers
        self._why_whole = behaviour.why_whole
        self._counters = behaviour.counters
        self._settle = settle
        self._memory = memory
        self._class_step = step_of(optimizer)
        # Large ones are stepped as they would be: together they would need memory for all at once.
        self._foreach = types_stepped_together(optimizer)
        self._handles: list[Any] = []
        self._replaced: dict[str, Any] = {}
        self._mine: dict[str, Any] = {}
        self._detached = False
        self.pending: dict[Pending, None] = {}
        self.crossed = False
        self._seen: list[list[torch.Tensor]] = []
        self._together: list[tuple[list[Slot], list[int]]] = []
        self._others: list[tuple[int, torch.Tensor]] = []
        self.before_step: Callable[[], None] = lambda: None
        self.in_forward: Callable[[], bool] = lambda: False
        run_uncompiled(Stepper.make)
        self._attach()

    def make(self, pendings: Iterable[Pending]) -> None:
        """Make steps that are pending, waiting for their gradients."""
        with _making:
            rounds: dict[int, list[Pending]] = {}
            for pending in pendings:
                if pending in self.pending:
                    rounds.setdefault(id(pending.settings), []).append(pending)
            for together in rounds.values():
                with plain_surroundings(self._device):
                    self._make_together(together)

    def touch(self, slots: Sequence[Slot]) -> None:
        """Somebody reads or writes these parameters: make their steps first."""
        self._touch({slot.pending: None for slot in slots if slot.pending is not None})

    def _touch(self, pendings: dict[Pending, None]) -> None:
        for pending in pendings:
            if pending.crossed and not self.in_forward():
                self._barriers.note("parameter", pending.slots[0].name)
                break
        self.make(list(pendings))

    def make_all(self) -> None:
        """Make all pending steps of this optimizer."""
        if self.pending:
            self.make(list(self.pending))
        self.crossed = False

    def steps(self) -> dict[str, int]:
        """Return how many steps each of its parameters has made."""
        slots = (
            self._slots[parameter]
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if parameter in self._slots
        )
        return {
            slot.name: self.asked - (slot.pending is not None and slot.pending.stepper is self)
            for slot in slots
        }

    def detach(self) -> None:
        """Give the optimizer its own methods back."""
        for handle in self._handles:
            handle.remove()
        self._detached = True
        unwatch_state(self._optimizer)
        for name, mine in self._mine.items():
            if vars(self._optimizer).get(name) is not mine:
                continue  # wrapped since, by a learning rate scheduler perhaps: it passes on
            del vars(self._optimizer)[name]
            if name in self._replaced:
                vars(self._optimizer)[name] = self._replaced[name]

    def _attach(self) -> None:
        optimizer = self._optimizer
        for name in ("step", "zero_grad"):
            if name in vars(optimizer):
                self._replaced[name] = vars(optimizer)[name]

        # Learning rate schedulers bind `optimizer.step.__func__` again, so both are methods of it.
        # Within a compiled function they run as they are.
        @private.disable_dynamo
        def step(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
            del optimizer
            if self._detached:
                return self._before("step")(closure)
            return self._step(closure)

        @private.disable_dynamo
        def zero_grad(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's signature
            del optimizer
            if self._detached:
                self._before("zero_grad")(set_to_none)
            else:
                self._zero_grad(set_to_none=set_to_none)

        for mark in _MARKS:
            if hasattr(optimizer.step, mark):
                setattr(step, mark, True)
        self._mine = {
            "step": types.MethodType(step, optimizer),
            "zero_grad": types.MethodType(zero_grad, optimizer),
        }
        vars(optimizer).update(self._mine)
        if self._why_whole:
            return  # nothing is ever pending; and what wraps an optimizer may have no hooks
        self._handles = [
            optimizer.register_step_pre_hook(self._own_step),
            optimizer.register_state_dict_pre_hook(lambda *_: self._settle("state_dict")),
            optimizer.register_load_state_dict_pre_hook(lambda *_: self._settle("load_state_dict")),
        ]

    def _step(self, closure: Any) -> Any:
        optimizer = self._optimizer
        if self._why_whole:
            self._check_groups()
            return self._step_whole(closure)
        loss = None
        if closure is not None:
            self._settle("closure")
            with torch.enable_grad():
                loss = closure()
        self._exchange.close()
        self._check_groups()
        own = private.step_pre_hooks(optimizer)
        for hook in (*private.global_pre_hooks.values(), *own.values()):
            if hook != self._own_step:
                hook(optimizer, (), {})
        self._note_steps()
        if self.pending and getattr(optimizer, "found_inf", None) is not None:
            self._barriers.note("scaler")
            self.make_all()
        own = private.step_post_hooks(optimizer)
        hooks = (*own.values(), *private.global_post_hooks.values())
        if hooks:
            self._barriers.note("step hook")
            self.make_all()
        for hook in hooks:
            hook(optimizer, (), {})
        self._count()
        return loss

    @private.disable_dynamo
    def _own_step(self, *_: Any) -> None:
        """The step of the optimizer's class is called past ours: a compiled one, mostly."""
        self._exchange.finish()
        self._barriers.note("own step")
        self.make_all()
        self.asked += 1

    def _step_whole(self, closure: Any) -> Any:
        """Wait for everything, then let the optimizer do as it would."""
        self._exchange.finish()
        self.before_step()
        self._barriers.note("optimizer", self._why_whole)
        step = self._before("step")
        with self._barriers.explained():
            loss = step() if closure is None else step(closure)
        self.asked += 1
        self._count()
        return loss

    def _before(self, name: str) -> Callable[..., Any]:
        """What stood in the optimizer under this name."""
        method = self._replaced.get(name)
        if method is None:
            method = types.MethodType(getattr(type(self._optimizer), name), self._optimizer)
        return method

    def _note_steps(self) -> None:
        """Mark every parameter that has a gradient, or gets one, as to be stepped."""
        settings = [
            {name: _kept(value) for name, value in group.items() if name != "params"}
            for group in self._optimizer.param_groups
        ]
        for group in self._optimizer.param_groups:
            advance(group, self._counters)
        # What no forward pass has asked for since the last step still has that step before it.
        self.make(list(self.pending))
        self.before_step()
        self.asked += 1
        for slots, groups in self._together:
            if (pending := self._note(settings, slots, groups)) is not None:
                self.pending[pending] = None
                self.crossed = self.crossed or pending.crossed
        ready: list[Pending] = []
        waiting: list[Pending] = []
        for pending in self.pending:
            (ready if pending.is_done() else waiting).append(pending)
        for pending in waiting:
            self._memory.look(pending.slots)
        for pending in waiting:
            if alias := next(filter(self._memory.has_others, pending.slots), None):
                self._barriers.note("alias", alias.name)
                ready.append(pending)
                continue
            for slot in pending.slots:
                slot.parameter.__class__ = Unstepped
        watch_state(self._optimizer, lambda: self._touch(self.pending))
        self.make(ready)
        mark_pending(self._optimizer, pending=bool(self.pending))

    def _note(
        self, settings: list[dict[str, Any]], slots: list[Slot], groups: list[int]
    ) -> Pending | None:
        """Note the steps of the parameters of one pack."""
        flight = slots[0].flight
        if flight is not None:
            if all(slot.keep for slot in slots):
                return Pending(self, settings, slots, groups, (), flight)
            flight.finish()  # the script has put other gradients in the place of some
        gradients = [gradient_of(slot.parameter) for slot in slots]
        if any(gradient is None for gradient in gradients):
            have = [place for place, gradient in enumerate(gradients) if gradient is not None]
            if not have:
                return None
            slots, groups = [slots[place] for place in have], [groups[place] for place in have]
            gradients = [gradients[place] for place in have]
        return Pending(self, settings, slots, groups, gradients, None)

    def _make_together(self, pendings: Sequence[Pending]) -> None:
        """Make steps that were asked for at once."""
        try:
            final = [pending.final_gradients() for pending in pendings]
        except TrainingError as error:
            raise self._unmade(error) from None
        for pending in pendings:
            for slot in pending.slots:
                slot.parameter.__class__ = nn.Parameter  # as the optimizer knows it
            pending.check_unwritten()
        groups: dict[tuple[int, bool], list[torch.Tensor]] = {}
        gradients: list[tuple[Slot, torch.Tensor]] = []
        for pending, each in zip(pendings, final, strict=True):
            del self.pending[pending]
            first = pending.slots[0].parameter
            small = len(pending.slots) > 1 and first.dtype in self._foreach
            for slot, group, gradient in zip(pending.slots, pending.groups, each, strict=True):
                slot.pending = None
                if gradient is not None:
                    groups.setdefault((group, small), []).append(slot.parameter)
                    gradients.append((slot, gradient))
        mark_pending(self._optimizer, pending=False)
        if gradients:
            settings = pendings[0].settings
            view = [
                {**settings[place], "params": groups[place, small]} | _FOREACH[small]
                for place, small in sorted(groups)
            ]
            if self._undo is not None:
                self._undo.keep(slot for slot, _ in gradients)
            self._run(view, gradients)
        for pending in pendings:
            for slot in pending.slots:
                slot.parameter.__class__ = Watched
        mark_pending(self._optimizer, pending=bool(self.pending))
        if self._undo is not None and not self.pending:
            self._undo.forget()

    def _unmade(self, error: TrainingError) -> TrainingError:
        """The last step cannot be made by all parameters: say which have, or take it back."""
        made, left = self.asked, sum(len(pending.slots) for pending in self.pending)
        if self._undo is not None:
            mark_pending(self._optimizer, pending=False)
            for group in self._optimizer.param_groups:
                advance(group, {name: -each for name, each in self._counters.items()})
            for pending in self.pending:
                for slot in pending.slots:
                    slot.pending = None
                    slot.parameter.__class__ = Watched
            self.pending.clear()
            self._undo.take_back()  # its reads of the state make no steps any more
            self.crossed = False
            self.asked -= 1
            state = f"all parameters are those of step {self.asked} again"
        else:
            state = (
                f"{left} parameters have made {made - 1} steps and the others {made}; go on from a"
                " checkpoint, or schedule with `undo=True`"
            )
        hint = f"{error.hint}; {state}" if error.hint else state
        return TrainingError(error.why, field=error.field, hint=hint)

    def _run(self, view: list[dict[str, Any]], gradients: list[tuple[Slot, torch.Tensor]]) -> None:
        """Run the optimizer's step on a view of its groups."""
        optimizer = self._optimizer
        groups = optimizer.param_groups
        shown = []
        for slot, gradient in gradients:
            parameter = slot.parameter
            if (now := gradient_of(parameter)) is not gradient:
                shown.append((parameter, now))
                set_gradient(parameter, gradient)
        optimizer.param_groups = view
        try:
            self._class_step(optimizer)
        finally:
            optimizer.param_groups = groups
            for parameter, now in shown:
                set_gradient(parameter, now)

    def _zero_grad(self, *, set_to_none: bool) -> None:
        self._exchange.close()
        if self._why_whole:
            clear_all = self._before("zero_grad")  # of what wraps an optimizer it may do more
            clear_all() if set_to_none else clear_all(set_to_none=False)
            return
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        clear(parameters, self._slots, set_to_none=set_to_none)

    def _check_groups(self) -> None:
        """Look whether the groups are those of the last step; refuse what nobody exchanges."""
        now = [group["params"] for group in self._optimizer.param_groups]
        if len(now) != len(self._seen) or not all(map(_same, now, self._seen)):
            self._look_at_groups(now)
        for place, parameter in self._others:
            if gradient_of(parameter) is not None:
                raise InputError(
                    "it has a parameter with a gradient that was not there, or frozen, when the"
                    " model was scheduled: nobody exchanges it",
                    field=f"param_groups[{place}]",
                    hint="add every parameter, and let it require gradients, before"
                    " `allrail.torch.schedule`; it may be frozen after",
                )

    def _look_at_groups(self, now: list[list[torch.Tensor]]) -> None:
        """Sort parameters by what they travel in."""
        packs: dict[int, tuple[list[Slot], list[int]]] = {}
        self._others = []
        for place, parameters in enumerate(now):
            for parameter in parameters:
                slot = self._slots.get(parameter)
                if slot is None:
                    self._others.append((place, parameter))
                    continue
                alone = slot.pack is None
                slots, groups = packs.setdefault(id(slot if alone else slot.pack), ([], []))
                slots.append(slot)
                groups.append(place)
        self._together = list(packs.values())
        # Before the first round nothing is known of packs: look again then.
        self._seen = [list(each) for each in now] if self._exchange.packs else []

    def _count(self) -> None:
        """Tell learning rate schedulers that a step was asked for."""
        counts_itself = bool(self._why_whole) or "step" not in self._replaced
        private.count_step(self._optimizer, whole=counts_itself)


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _kept(value: Any) -> Any:
    """A hyperparameter as it is now, whatever is written to it later."""
    return value.clone() if isinstance(value, torch.Tensor) else copy.copy(value)
