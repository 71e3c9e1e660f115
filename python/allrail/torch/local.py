"""Replicas train apart, and average their parameters every so many steps: local SGD.

Stich, "Local SGD converges fast and communicates little", ICLR 2019, algorithm 1: between two
averages each rank steps with its own gradients; after the k-th step every parameter becomes the
mean over ranks. The optimizer's state, such as a momentum, stays each rank's own.

    model, optimizer = art.schedule(model, optimizer, every=8)

The k-th `step()` returns when the parameters are averaged; the other steps exchange nothing, so
nothing has to wait and any optimizer will do. Each optimizer counts its own steps, and averages the
parameters that it steps. All parameters leave at once; what the transport sends first is what the
model has first. Gradients may be accumulated as without allrail.

Between averages `model.state_dict()` is that of this rank's replica, and says so.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from allrail.base.errors import InputError
from allrail.runtime.agreement import Agreement
from allrail.torch.barrier import Barriers
from allrail.torch.check import same_model
from allrail.torch.claims import Claim
from allrail.torch.divergence import Divergence
from allrail.torch.hooks import Hook
from allrail.torch.transport import Transport
from allrail.torch.uneven import Passes

_HELD = "_allrail_local"
"""What holds a `Local` where no hook does."""


def check_every(every: Any) -> int:
    """Return how many steps lie between two averages.

    Raises:
        InputError: It is no such number.
    """
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InputError(
            "it is no number of steps",
            field="every",
            value=str(every),
            hint="1 exchanges gradients in every step, 8 averages parameters after every eighth",
        )
    return every


class Local:
    """One model whose replicas train apart; ends with `release`.

    Args:
        model: The model; its parameters and buffers become those of rank 0.
        optimizers: Its optimizers.
        parameters: Its trainable parameters by name.
        transport: What carries them.
        agreement: How ranks make sure that they schedule alike.
        every: How many steps lie between two averages; 2 or more.
        broadcast_buffers: Whether buffers become those of rank 0 at every average.
        compare_every: After how many steps ranks compare what an average has given them; 0 for
            never.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: dict[str, nn.Parameter],
        transport: Transport,
        agreement: Agreement,
        *,
        every: int,
        broadcast_buffers: bool,
        compare_every: int = 0,
    ) -> None:
        self.barriers = Barriers(loud=False)
        self._transport = transport
        self._every = every
        self._buffers = list(model.buffers()) if broadcast_buffers else []
        self._warned = False
        self._passes = Passes(self, agreement, every=every)
        same_model(agreement, parameters)
        self._broadcast([*model.parameters(), *model.buffers()])
        self._keys = {
            each: transport.register(name, each.dtype, each.shape, each.stride(), place)
            for place, (name, each) in enumerate(parameters.items())
        }
        transport.start()
        self._steps = [0 for _ in optimizers]
        self._averages = [0 for _ in optimizers]
        self._divergences = [
            Divergence(
                transport,
                {
                    name: each
                    for name, each in parameters.items()
                    if any(each is one for group in by.param_groups for one in group["params"])
                },
                every=compare_every,
            )
            for by in optimizers
        ]
        self._made = dict.fromkeys(parameters.values(), 0)
        self._names = {each: name for name, each in parameters.items()}
        # The model's hook holds this, and it goes with the model.
        me = weakref.ref(self)
        self._claim = Claim(model, parameters, optimizers)
        self._model = weakref.ref(model)
        if isinstance(model, torch.jit.ScriptModule):  # it takes no hooks
            vars(model)[_HELD] = self
            self._handles = []
        else:
            self._handles = [
                model.register_state_dict_pre_hook(Hook(self._before_saving)),
                model.register_forward_pre_hook(Hook(self._before_model), prepend=True),
            ]
        for place, optimizer in enumerate(optimizers):

            def stepped(optimizer: Any, *_: Any, place: int = place) -> None:
                if (alive := me()) is not None:
                    alive._stepped(place, optimizer)

            self._handles.append(optimizer.register_step_post_hook(stepped))
        self._claim.hold()

    def synchronize(self) -> None:
        """Nothing is ever under way."""

    def steps(self) -> dict[str, int]:
        """How many steps each parameter has made on this rank."""
        return {self._names[each]: count for each, count in self._made.items()}

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward passes exchange nothing anyway."""
        return nullcontext()

    def state(self) -> dict[str, Any]:
        """How many steps each optimizer has made since its last average."""
        return {"every": self._every, "steps": list(self._steps)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        if not state:
            return
        if state.get("every") != self._every or len(state["steps"]) != len(self._steps):
            raise InputError(
                "it was saved where parameters are averaged otherwise",
                field="state",
                value=f"every {state.get('every', 1)}",
                hint="schedule as it was when it was saved, or load no state: counting begins anew",
            )
        self._steps = list(state["steps"])

    def release(self) -> None:
        """Make the model and its optimizers what they were before; replicas stay as they are."""
        self._claim.drop()
        for handle in self._handles:
            handle.remove()
        if (model := self._model()) is not None:
            vars(model).pop(_HELD, None)
        self._passes.leave()
        self._transport.close()

    def _stepped(self, place: int, optimizer: torch.optim.Optimizer) -> None:
        self._steps[place] += 1
        first = place == 0
        self._passes.made += first
        bare = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self._made:
                    self._made[parameter] += 1
                    if parameter.grad is None:
                        bare.append(parameter)
        self._claim.check_held(bare)
        if self._steps[place] < self._every:
            return
        self._steps[place] = 0
        try:
            self._average(place, optimizer)
        except RuntimeError as error:  # a backend's own, of another transport
            raise self._passes.explain(error, self._passes.made if first else None) from None

    def _average(self, place: int, optimizer: torch.optim.Optimizer) -> None:
        under_way = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                key = self._keys.get(parameter)
                if key is not None:
                    mean = parameter.detach() * (1.0 / self._transport.ranks)
                    generation = self._transport.submit(key, mean)
                    under_way.append((parameter, key, generation, mean))
        with torch.no_grad():
            for parameter, key, generation, mean in under_way:
                self._transport.wait(key, generation)
                parameter.copy_(mean)
        self._broadcast(self._buffers)
        self._averages[place] += 1
        self._divergences[place].settled(self._averages[place] * self._every)

    def _before_model(self, module: nn.Module, *_: Any) -> None:
        if torch.is_grad_enabled():
            self._claim.check(module)

    def _before_saving(self, *_: Any) -> None:
        apart = max(self._steps)
        if apart and not self._warned:
            self._warned = True
            warnings.warn(
                f"this rank has trained apart for {apart} steps since parameters were averaged:"
                " its state is its own; save after a step that averages, or on every rank",
                RuntimeWarning,
                stacklevel=4,
            )

    def _broadcast(self, tensors: list[torch.Tensor]) -> None:
        if tensors:
            with torch.no_grad():
                self._transport.broadcast(tensors)
