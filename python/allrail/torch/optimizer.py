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

import contextlib
import copy
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import _disable_current_modes

from allrail.errors import InputError, TrainingError
from allrail.torch.barrier import Barriers
from allrail.torch.behaviour import Behaviour, advance, step_of
from allrail.torch.gradients import Exchange
from allrail.torch.hooks import run_uncompiled
from allrail.torch.parameter import Pending, Slot, Watched, gradient_of, set_gradient
from allrail.torch.states import mark_pending, unwatch_state, watch_state
from allrail.torch.touch import Memory, Unstepped
from allrail.torch.undo import Undo

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
        pending: The slots whose step was asked for and is not made yet, by their index.
        crossed: Whether steps were asked for while their gradients were in flight, since the last
            time that all were made.
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
        self._handles: list[Any] = []
        self._replaced: dict[str, Any] = {}
        self._mine: dict[str, Any] = {}
        self._detached = False
        self.pending: dict[int, Slot] = {}
        self.crossed = False
        run_uncompiled(Stepper.make)
        self._attach()

    def make(self, slots: Iterable[Slot]) -> None:
        """Make the pending steps of these slots, waiting for their gradients."""
        with _making:
            due = [slot for slot in slots if slot.pending is not None]
            while due:
                settings = due[0].pending.settings  # type: ignore[union-attr]
                together = [
                    s for s in due if s.pending is not None and s.pending.settings is settings
                ]
                due = [slot for slot in due if slot not in together]
                with plain_surroundings(self._device):
                    self._make_together(together)

    def touch(self, slots: Sequence[Slot]) -> None:
        """Somebody reads or writes these parameters: make their steps first."""
        if any(slot.pending is not None and slot.pending.crossed for slot in slots):
            self._barriers.note("parameter", slots[0].name)
        self.make(slots)

    def make_all(self) -> None:
        """Make all pending steps of this optimizer."""
        self.make(list(self.pending.values()))
        self.crossed = False

    def steps(self) -> dict[str, int]:
        """Return how many steps each of its parameters has made."""
        slots = (
            self._slots[parameter]
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if parameter in self._slots
        )
        return {slot.name: self.asked - (slot.index in self.pending) for slot in slots}

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
        @torch._disable_dynamo
        def step(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
            del optimizer
            if self._detached:
                return self._before("step")(closure)
            return self._step(closure)

        @torch._disable_dynamo
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
        self._check_groups()
        if self._why_whole:
            return self._step_whole(closure)
        loss = None
        if closure is not None:
            self._settle("closure")
            with torch.enable_grad():
                loss = closure()
        self._exchange.close()
        before = getattr(torch_optimizer, "_global_optimizer_pre_hooks", {})
        for hook in (*before.values(), *optimizer._optimizer_step_pre_hooks.values()):
            if hook != self._own_step:
                hook(optimizer, (), {})
        self._note_steps()
        if self.pending and getattr(optimizer, "found_inf", None) is not None:
            self._barriers.note("scaler")
            self.make_all()
        after = getattr(torch_optimizer, "_global_optimizer_post_hooks", {})
        hooks = (*optimizer._optimizer_step_post_hooks.values(), *after.values())
        if hooks:
            self._barriers.note("step hook")
            self.make_all()
        for hook in hooks:
            hook(optimizer, (), {})
        self._count()
        return loss

    @torch._disable_dynamo
    def _own_step(self, *_: Any) -> None:
        """The step of the optimizer's class is called past ours: a compiled one, mostly."""
        self._exchange.finish()
        self._barriers.note("own step")
        self.make_all()
        self.asked += 1

    def _step_whole(self, closure: Any) -> Any:
        """Wait for everything, then let the optimizer do as it would."""
        self._exchange.finish()
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
        optimizer = self._optimizer
        settings = [
            {name: _kept(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        parameters = [
            (place, parameter)
            for place, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
            if parameter in self._slots
        ]
        for group in optimizer.param_groups:
            advance(group, self._counters)
        # What no forward pass has asked for since the last step still has that step before it.
        self.make([self._slots[parameter] for _, parameter in parameters])
        self.asked += 1
        ready = []
        for place, parameter in parameters:
            slot = self._slots[parameter]
            gradient = gradient_of(parameter)
            if gradient is None and slot.flight is None:
                continue
            version, crossed = parameter._version, slot.flight is not None
            slot.pending = Pending(self, place, settings, gradient, slot.flight, version, crossed)
            self.pending[slot.index] = slot
            if slot.pending.is_done():
                ready.append(slot)
            elif self._memory.has_others(slot):
                self._barriers.note("alias", slot.name)
                ready.append(slot)
            else:
                parameter.__class__ = Unstepped
            self.crossed = self.crossed or crossed
        watch_state(optimizer, lambda: self.touch(list(self.pending.values())))
        self.make(ready)
        mark_pending(optimizer, pending=bool(self.pending))

    def _make_together(self, slots: Sequence[Slot]) -> None:
        """Step parameters whose steps were asked for at once."""
        pendings = [(slot, slot.pending) for slot in slots if slot.pending is not None]
        try:
            final = [pending.final_gradient() for _, pending in pendings]
        except TrainingError as error:
            raise self._unmade(error) from None
        for slot, pending in pendings:
            slot.parameter.__class__ = nn.Parameter  # as the optimizer knows it
            if slot.parameter._version != pending.written:
                raise TrainingError(
                    "it was written to while its step was pending",
                    field=slot.name,
                    hint="call `allrail.torch.synchronize()` before you change parameters yourself",
                )
        groups: dict[int, list[torch.Tensor]] = {}
        gradients: list[tuple[Slot, torch.Tensor]] = []
        settings: list[dict[str, Any]] = []
        for (slot, pending), gradient in zip(pendings, final, strict=True):
            settings, slot.pending = pending.settings, None
            del self.pending[slot.index]
            if gradient is not None:
                groups.setdefault(pending.group, []).append(slot.parameter)
                gradients.append((slot, gradient))
        mark_pending(self._optimizer, pending=False)
        if gradients:
            view = [{**settings[place], "params": groups[place]} for place in sorted(groups)]
            if self._undo is not None:
                self._undo.keep(slot for slot, _ in gradients)
            self._run(view, gradients)
        for slot, _ in pendings:
            slot.parameter.__class__ = Watched
        mark_pending(self._optimizer, pending=bool(self.pending))
        if self._undo is not None and not self.pending:
            self._undo.forget()

    def _unmade(self, error: TrainingError) -> TrainingError:
        """The last step cannot be made by all parameters: say which have, or take it back."""
        made, left = self.asked, len(self.pending)
        if self._undo is not None:
            self._undo.take_back()
            mark_pending(self._optimizer, pending=False)
            for group in self._optimizer.param_groups:
                advance(group, {name: -each for name, each in self._counters.items()})
            for slot in self.pending.values():
                slot.pending = None
                slot.parameter.__class__ = Watched
            self.pending.clear()
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
        shown = [gradient_of(slot.parameter) for slot, _ in gradients]
        for slot, gradient in gradients:
            set_gradient(slot.parameter, gradient)
        optimizer.param_groups = view
        try:
            self._class_step(optimizer)
        finally:
            optimizer.param_groups = groups
            for (slot, _), gradient_shown in zip(gradients, shown, strict=True):
                set_gradient(slot.parameter, gradient_shown)

    def _zero_grad(self, *, set_to_none: bool) -> None:
        self._exchange.close()
        if self._why_whole:
            clear_all = self._before("zero_grad")  # of what wraps an optimizer it may do more
            clear_all() if set_to_none else clear_all(set_to_none=False)
            return
        with torch._C.DisableTorchFunctionSubclass():  # no values of parameters are used
            for group in self._optimizer.param_groups:
                for parameter in group["params"]:
                    clear(parameter, self._slots.get(parameter), set_to_none=set_to_none)

    def _check_groups(self) -> None:
        for place, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                if parameter not in self._slots and gradient_of(parameter) is not None:
                    raise InputError(
                        "it has a parameter with a gradient that was not there, or frozen, when the"
                        " model was scheduled: nobody exchanges it",
                        field=f"param_groups[{place}]",
                        hint="add every parameter, and let it require gradients, before"
                        " `allrail.torch.schedule`; it may be frozen after",
                    )

    def _count(self) -> None:
        """Tell learning rate schedulers that a step was asked for."""
        optimizer: Any = self._optimizer
        optimizer._opt_called = True
        if not self._why_whole and "step" in self._replaced and hasattr(optimizer, "_step_count"):
            optimizer._step_count += 1


def clear(parameter: torch.Tensor, slot: Slot | None, *, set_to_none: bool) -> None:
    """Do what `zero_grad` does to one parameter, without waiting for its gradient."""
    gradient = gradient_of(parameter)
    flight = None if slot is None else slot.flight
    if slot is not None:
        slot.drop(slot)
    if gradient is None:
        # Whether there is one, to be zero then, is known when the exchange is over.
        if flight is not None:
            flight.zeroed = not set_to_none
    elif set_to_none:
        set_gradient(parameter, None)
    elif flight is not None or (slot is not None and slot.pending is not None):
        set_gradient(parameter, torch.zeros_like(gradient))
    else:
        gradient.detach_().zero_()


def _kept(value: Any) -> Any:
    """A hyperparameter as it is now, whatever is written to it later."""
    return value.clone() if isinstance(value, torch.Tensor) else copy.copy(value)


def plain_surroundings(device: str) -> AbstractContextManager[Any]:
    """Within it, nothing of what may be going on around it reaches into what is computed."""
    if (
        torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled(device)
        or torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or in_transform()
    ):
        return _undone(device)
    plain: AbstractContextManager[Any] = torch.no_grad()
    return plain


def in_transform() -> bool:
    """Whether a transform of `torch.func` is going on."""
    return torch._C._functorch.peek_interpreter_stack() is not None


@contextlib.contextmanager
def _undone(device: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if torch._C._len_torch_function_stack():
            stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(_disable_current_modes())
        if (tracing := torch._C._get_tracing_state()) is not None:
            torch._C._set_tracing_state(None)
            stack.callback(torch._C._set_tracing_state, tracing)
        if in_transform():
            stack.enter_context(temporarily_clear_interpreter_stack())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
