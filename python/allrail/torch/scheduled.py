"""A model whose gradients are exchanged, and whose steps are made late: who calls whom, when.

| when | what happens |
|---|---|
| a gradient is complete | its exchange begins (`gradients.py`) |
| `optimizer.step()` | steps are noted, those that are ready are made (`optimizer.py`) |
| a module's forward begins | steps of the parameters that it uses are made (`used.py`) |
| `state_dict`, evaluation, `synchronize` | all steps are made |
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from allrail.base.errors import InputError, TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.record import Record
from allrail.torch import private
from allrail.torch.barrier import Barriers
from allrail.torch.behaviour import behaviour_of, with_hooks
from allrail.torch.buffers import Buffers
from allrail.torch.check import same_model
from allrail.torch.claims import Claim
from allrail.torch.compression.compressed import Compressed
from allrail.torch.divergence import Divergence
from allrail.torch.gradients import Exchange, Grouping, agreed_order
from allrail.torch.hooks import Hook, wrap_compiled
from allrail.torch.methods import NoSync, ZeroGrad
from allrail.torch.observed import ADVISED_AFTER, Observed
from allrail.torch.optimizer import Stepper
from allrail.torch.parameter import Pending, Slot, Together, unwatch, watch
from allrail.torch.ranked import PlacesBy
from allrail.torch.speeds import measured, table_of
from allrail.torch.surroundings import in_transform
from allrail.torch.touch import Memory, follow, unfollow
from allrail.torch.transport import Transport
from allrail.torch.uneven import Passes
from allrail.torch.used import Recorder, entries, is_compiled, is_scripted, open_modules, places


class Successors(Protocol):
    """What puts other scheduled models in the place of one: a `switch.Switch`."""

    goes_on: bool
    said: str

    def no_sync(self) -> AbstractContextManager[None]:
        """Within it, backward passes exchange nothing, whichever is installed then."""

    def other(self) -> Scheduled | None:
        """A forward pass begins: return what is now in the place of the one that asks, if any."""


class Scheduled:
    """One model, its optimizers and what carries its gradients; ends with `release`.

    Args:
        model: The model; its parameters and buffers become those of rank 0.
        optimizers: Its optimizers.
        parameters: Its trainable parameters by name.
        transport: What carries gradients.
        agreement: How ranks agree on what the first step shows.
        cross_barrier: Whether a step may be made as late as the next forward pass.
        broadcast_buffers: Whether every forward pass in training begins with rank 0's buffers.
        sparse: What becomes of sparse gradients: `refuse`, `densify` or `gather`.
        grouping: What gradients are sent as.
        places_by: Ranks parameters otherwise than by their turns in the forward pass, if anything.
        undo: Whether a step that not all parameters can make is taken back.
        trace: The folder that what was seen is written to at the end, if any.
        compare_every: After how many steps ranks compare their parameters; 0 for never.
        auto: What may put another one in the place of this one, between two steps.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: dict[str, nn.Parameter],
        transport: Transport,
        agreement: Agreement,
        *,
        cross_barrier: bool,
        broadcast_buffers: bool,
        sparse: str,
        grouping: Grouping,
        undo: bool,
        trace: Path | None,
        compare_every: int = 0,
        places_by: PlacesBy | None = None,
        auto: Successors | None = None,
    ) -> None:
        cross_barrier = cross_barrier and not is_scripted(model)
        self.model = model
        self.optimizers = list(optimizers)
        self.barriers = Barriers(loud=transport.rank == 0)
        self.passes = Passes(self, agreement)
        self.observed = Observed(
            transport,
            self.barriers,
            model=agreement.name.rsplit("/", 1)[-1],
            crosses=cross_barrier,
            trace=trace,
            passes=self.passes,
        )
        self._carrier = transport
        self._transport: Transport = self.observed.watched
        self._agreement = agreement
        self._crosses = cross_barrier
        self._undoes = undo
        self._places_by = places_by
        # Who has asked for trials, or for the plain way, needs no advice.
        self._advises = auto is None and cross_barrier
        self._buffers = Buffers(model, self._transport, grouping.pack, shared=broadcast_buffers)
        self._recorder: Recorder | None = None
        self._seen = False
        self._in_graph = False
        self._running = False
        self._auto = auto
        self._handles: list[Any] = []
        self._guards: dict[nn.Module, Any] = {}
        self._undo: list[Callable[[], None]] = []
        same_model(agreement, parameters)
        if auto is None or not auto.goes_on:
            self._buffers.give([*model.parameters(), *model.buffers()])
        self.exchange: Exchange
        self._slots = {
            parameter: Slot(parameter, name, index, self._read, self._drop, self.settle)
            for index, (name, parameter) in enumerate(parameters.items())
        }
        self._waits = entries(model, self._slots, None)
        self._claim = Claim(model, parameters, optimizers)
        self.exchange = Exchange(
            list(self._slots.values()),
            self._transport,
            self.barriers,
            places=self._places,
            agree=self._agree,
            still_held=self._claim.check_held,
            wait_at_end=not cross_barrier,
            sparse=sparse,
            grouping=grouping,
            round_over=self._round_over,
        )
        self._steppers: list[Stepper] = []
        self._divergences = [
            Divergence(self._carrier, self._stepped_by(each), every=compare_every)
            for each in self.optimizers
        ]
        self._attach()
        self._claim.hold()

    def settle(self, cause: str) -> None:
        """Make all pending steps; `cause` is a key of `barrier.WHY`."""
        if any(stepper.crossed for stepper in self._steppers):
            self.barriers.note(cause)
        for stepper in self._steppers:
            stepper.make_all()

    def steps(self) -> dict[str, int]:
        """How many steps each parameter has made."""
        return {
            name: count for stepper in self._steppers for name, count in stepper.steps().items()
        }

    def synchronize(self) -> None:
        """Wait for all gradients, and make all pending steps."""
        if private.current_graph_task() == -1:
            self.exchange.finish()
        self.settle("synchronize")

    def record(self) -> Record:
        """Return what was seen so far."""
        record = self.observed.record()
        if self._auto is not None:
            record["exchange"] = self._auto.said
        return record

    def speeds(self, dimensions: int, since: int) -> tuple[list[list[float]], int]:
        """Return by rank what dimensions have carried since a time, Gb/s, and the time now.

        All ranks call it at the same step, over native transports.
        """
        timeline = getattr(self._carrier, "timeline")()  # noqa: B009 - of a native one
        mine, now = measured(timeline, dimensions, since), time.monotonic_ns()
        table = table_of(mine, self._transport.rank, self._transport.ranks)
        self._transport.gathered(self._transport.gather(table))
        return table.tolist(), now

    def no_sync(self) -> AbstractContextManager[None]:
        """Within it, backward passes exchange nothing."""
        return self.exchange.no_sync() if self._auto is None else self._auto.no_sync()

    def state(self) -> dict[str, Any]:
        """What is remembered beside the model and its optimizers, once all steps are made."""
        self.synchronize()
        return self._carrier.state() if isinstance(self._carrier, Compressed) else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.synchronize()
        if not state:
            return
        if not isinstance(self._carrier, Compressed):
            raise InputError(
                "it was saved with a compression, and none is used now",
                field="state",
                value=str(state.get("compression")),
                hint="schedule with the compression that it was saved with, or leave it out",
            )
        self._carrier.load(state)

    def release(self) -> None:
        """Make the model and its optimizers what they were before, even if a rank is lost."""
        try:
            self.synchronize()
            for divergence in self._divergences:
                divergence.finish()
        finally:
            self._detach()

    def _detach(self) -> None:
        self._claim.drop()
        self.exchange.detach()
        for stepper in self._steppers:
            stepper.detach()
        for handle in (*self._handles, *self._guards.values()):
            handle.remove()
        for undo in self._undo:
            undo()
        for slot in self._slots.values():
            unwatch(slot)
        self.observed.write()
        self.passes.leave()
        self._transport.close()

    # -- set up

    def _attach(self) -> None:
        model = self.model
        if private.compiled_call(model) is None and not isinstance(model, torch.jit.ScriptModule):
            before = Hook(self._before_model, compiled=self._before_graph)
            self._handles += [
                model.register_forward_pre_hook(before, prepend=True),
                model.register_forward_hook(Hook(self._after_model), always_call=True),
            ]
        else:
            self._wrap_compiled(model, self._before_graph, self._after_model)
        if not hasattr(model, "no_sync"):
            vars(model)["no_sync"] = NoSync(self)
            self._undo.append(lambda: vars(model).pop("no_sync", None))
        if not self._crosses:
            for optimizer, divergence in zip(self.optimizers, self._divergences, strict=True):

                def whole(*_: Any, divergence: Divergence = divergence) -> None:
                    self.exchange.finish()
                    divergence.before_step()

                self._handles.append(with_hooks(optimizer).register_step_pre_hook(whole))
            return
        for slot in self._slots.values():
            watch(slot)
        follow(self._look_from_elsewhere)
        self._undo.append(lambda: unfollow(self._look_from_elsewhere))
        memory = Memory()
        for optimizer in self.optimizers:
            self._steppers.append(
                Stepper(
                    optimizer,
                    self._slots,
                    self.exchange,
                    self.barriers,
                    behaviour=behaviour_of(optimizer),
                    settle=self.settle,
                    memory=memory,
                    undo=self._undoes,
                )
            )
        for stepper, divergence in zip(self._steppers, self._divergences, strict=True):
            stepper.before_step = divergence.before_step
            stepper.in_forward = lambda: self._running
        for module, _ in open_modules(model):
            self._guard(module)
        for module in model.modules():
            self._handles += [
                module.register_state_dict_pre_hook(Hook(lambda *_: self.settle("state_dict"))),
                private.before_load(module)(Hook(lambda *_: self.settle("load_state_dict"))),
            ]
        vars(model)["zero_grad"] = ZeroGrad(self._slots, self.exchange, model)
        self._undo.append(lambda: vars(model).pop("zero_grad", None))

    def _stepped_by(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        """The model's parameters that an optimizer steps, by name."""
        theirs = {each for group in optimizer.param_groups for each in group["params"]}
        return {slot.name: each for each, slot in self._slots.items() if each in theirs}

    def _guard(self, module: nn.Module) -> None:
        """Have the module wait, when it is entered, for the parameters that it uses."""
        if private.compiled_call(module) is None:
            hook = Hook(self._enter, idle=self._idle)
            self._guards[module] = module.register_forward_pre_hook(hook, prepend=True)
        else:
            self._wrap_compiled(module, self._enter)

    def _thin_out(self) -> None:
        """Let modules be entered without a hook where one entered before waits for their packs.

        Where a pass goes another way than the first, a parameter's own class has its step made.
        """
        awaited: set[Together | None] = set()
        for module, slots in self._waits.items():
            packs = {slot.pack for slot in slots}
            if packs <= awaited - {None} and module in self._guards and not is_compiled(module):
                self._guards.pop(module).remove()
            awaited |= packs

    def _wrap_compiled(
        self,
        module: nn.Module,
        before: Callable[..., None],
        after: Callable[..., None] = lambda *_: None,
    ) -> None:
        def region() -> AbstractContextManager[None]:
            recorder = self._recorder
            return contextlib.nullcontext() if recorder is None else recorder.region(module)

        self._undo.append(wrap_compiled(module, before, after, region))

    # -- in each step

    def _idle(self, module: nn.Module) -> bool:
        """Whether nothing is pending of what the module uses, nor anything new to be marked."""
        slots = self._waits.get(module)
        if not slots:
            return True
        for slot in slots:
            if slot.pending is not None:
                return False
        return slots[0].pack is self.observed.running

    def _enter(self, module: nn.Module, *_: Any) -> None:
        slots = self._waits.get(module)
        if slots is None:
            return
        start = time.monotonic_ns()
        due = {slot.pending: None for slot in slots if slot.pending is not None}
        if due:
            self._make(due)
        self.observed.enter(slots[0].pack, start)

    def _make(self, due: dict[Pending, None]) -> None:
        """Make steps; while their gradients are under way, make others that are ready."""
        if not all(pending.is_done() for pending in due):
            for stepper in self._steppers:
                stepper.make([pending for pending in stepper.pending if pending.is_done()])
        for stepper in self._steppers:
            stepper.make(due)

    def _before_graph(self, module: nn.Module, *_: Any) -> None:
        """The model is called within a graph that was compiled around it: no watching there."""
        self._seen = self._in_graph = True
        self._before_model(module)

    def _before_model(self, module: nn.Module, *_: Any) -> None:
        if private.current_graph_task() != -1:
            return
        if not torch.is_grad_enabled() or in_transform():
            self.settle("evaluation")
            if not in_transform() and getattr(self._carrier, "root_goes_on", False):
                self._buffers.share_for_evaluation()
            return
        self._claim.check(module)
        self._running = True
        self.passes.begin()
        self.observed.forward_begins()
        self.exchange.close()
        if self.exchange.rounds >= ADVISED_AFTER and self._advises:
            self._advises = False
            self.observed.advise()
        if self._auto is not None and (other := self._auto.other()) is not None:
            # Hooks of this forward pass were looked up before those of the other one were there.
            other._before_graph(module) if self._in_graph else other._before_model(module)
            return
        self._buffers.share()
        if not self._seen and self._crosses and not is_compiled(self.model):
            self._seen = True
            self._recorder = Recorder(self.model, self._slots)
            self._recorder.start()

    def _after_model(self, *_: Any) -> None:
        self._running = False
        self.observed.forward_ends()
        if torch.is_grad_enabled():
            self._buffers.due = self.exchange.synchronised
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            recorder.stop()
            self._waits = entries(self.model, self._slots, recorder)
            for module in set(self._guards) - set(self._waits):
                self._guards.pop(module).remove()

    def _look_from_elsewhere(self, cause: str) -> None:
        """Parameters may be used now, by what no module's entry waits for.

        Args:
            cause: A key of `barrier.WHY`; empty while something is compiled, which happens once.
        """
        if not cause:
            for stepper in self._steppers:
                stepper.make_all()
        elif not self._running:
            self.settle(cause)

    def _agree(self, mine: dict[str, Any]) -> dict[str, Any]:
        """Agree on what the first round has shown, once all ranks have come to its end."""
        try:
            agreed: dict[str, Any] = self._agreement.on("order", mine, agreed_order)
        except TrainingError as error:
            raise self.passes.explain(error, self.passes.made + 1) from None
        return agreed

    def _places(self) -> list[int]:
        """Of each parameter, its turn in the forward pass, or its place in the job's order."""
        found = places(self._waits, len(self._slots))
        if self._places_by is None:
            return found
        return self._places_by(list(self._slots.values()), found)

    def _round_over(self) -> None:
        if self._guards and self.exchange.rounds == 1:
            self._thin_out()
        self.passes.end()
        self.observed.round_over()

    def _read(self, slot: Slot) -> None:
        self.exchange.read(slot)

    def _drop(self, slot: Slot) -> None:
        self.exchange.drop(slot)
