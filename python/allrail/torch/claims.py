"""A parameter is exchanged by one means: a second one is found and refused.

Averaged by two at once, a gradient is garbage that differs in every run, and nothing else would
show it. What exchanges parameters beside `schedule` is found

| what | when |
|---|---|
| a wrapper within the scheduled model, or around a part of it | at `schedule` |
| one that was made before `allrail.torch` was imported | the same; not found, in a forward pass |
| one that is made later | where it is made: torch tells of every module that becomes a child |
| `fully_shard` later, which makes no module | in the next forward pass, see `Claim.check` |
| a second `schedule` | there |

A wrapper is known by the name of its class, so that none of these libraries is imported.
"""

from __future__ import annotations

import functools
import gc
import itertools
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from allrail.base.errors import InputError
from allrail.torch import private

WRAPPERS = frozenset(
    {
        "BaguaDistributedDataParallel",
        "DeepSpeedEngine",
        "DistributedDataParallel",  # of torch, and what is called so: Apex, Megatron-LM, BytePS
        "FSDPModule",  # what `fully_shard` makes of a module's class
        "FullyShardedDataParallel",  # of torch, FairScale, Megatron-LM
        "GeminiDDP",
        "ShardedDataParallel",
        "XlaFullyShardedDataParallel",
    }
)
"""Classes of modules that exchange their parameters' gradients; classes derived from them, too."""

_TORCH_ONLY = frozenset({"DDP", "FSDP"})
"""What `replicate` and `fully_shard` of some versions of torch make of a module's class."""

OPTIMIZERS = ("byteps.", "deepspeed.runtime.", "horovod.")
"""Where classes of optimizers come from that exchange gradients."""

_HINT = (
    "leave the wrapper or `allrail.torch.schedule` out; accelerate and Trainer do not wrap what"
    " `prepare_model(model, evaluation_mode=True)` has prepared"
)

_wrappers: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


def wrapper_name(module: nn.Module) -> str:
    """Return the class by which a module exchanges its parameters, or nothing if it does not."""
    for each in type(module).__mro__:
        name = each.__name__
        if name in WRAPPERS or (
            name in _TORCH_ONLY and each.__module__.startswith("torch.distributed.")
        ):
            return name
        if name == "DataParallel" and len(vars(module).get("device_ids", ())) > 1:
            return name
    return ""


def exchanged_by(wrapper: nn.Module, wrapped: nn.Module | None = None) -> set[torch.Tensor]:
    """Return the parameters that a wrapper exchanges.

    Args:
        wrapper: It.
        wrapped: What is being put into it, if it is being made.
    """
    own = vars(wrapper)  # whoever asks FSDP itself asks what it wraps, which it may not have yet
    if "_module_parameters" in own:  # DDP's, without those that it ignores
        every: Iterable[torch.Tensor] = itertools.chain(
            own["_module_parameters"], own.get("_delay_all_reduce_params", ())
        )
    else:
        every = (wrapper if wrapped is None else wrapped).parameters()
    ignored = own.get("_ignored_params", ())  # FSDP's
    return {each for each in every if each.requires_grad and each not in ignored}


class Claim:
    """The parameters of one scheduled model, which nothing else may exchange.

    Args:
        model: The model.
        parameters: Its trainable parameters by name.
        optimizers: What steps them.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: dict[str, nn.Parameter],
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._handles: list[Any] = []
        self._suspected = False
        self._names: dict[torch.Tensor, str] = {each: name for name, each in parameters.items()}
        self._held: dict[torch.Tensor, tuple[nn.Module, str]] = {
            each: (module, name)
            for module in model.modules()
            if not isinstance(module, torch.jit.ScriptModule)
            for name, each in private.parameters_of(module).items()
            if each in self._names
        }
        entries = [(*place, each) for each, place in self._held.items()]
        self._next = itertools.cycle(entries or [(None, "", None)])
        self._beside: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._looked = False

    def hold(self) -> None:
        """From now on, nothing else may exchange them."""
        _claims.add(self)

    def drop(self) -> None:
        """Others may exchange them again."""
        _claims.discard(self)
        for handle in self._handles:
            handle.remove()

    def check(self, module: nn.Module) -> None:
        """A forward pass in training begins: is this still the only exchange?

        The first pass looks at all parameters, later ones at one each. What is replaced later is
        seen by its missing gradient, too (`check_held`). Takes 0.2 µs.

        Args:
            module: The module that is called: the model, or a replica of it.

        Raises:
            InputError: It is not.
        """
        active = private.active_ddp()
        if active is not None and active not in self._beside:
            self.refuse(wrapper_name(active), exchanged_by(active))
            self._beside.add(active)
        if module is not self._model and private.is_replica(module):
            self.refuse("DataParallel", self._names)
        owner, name, parameter = next(self._next)
        if not self._looked or (
            owner is not None and private.parameters_of(owner).get(name) is not parameter
        ):
            self._looked = True
            self._look()

    def check_held(self, parameters: Iterable[torch.Tensor]) -> None:
        """Make sure that parameters are still those of the model.

        Raises:
            InputError: One was replaced.
        """
        lost = [each for each in parameters if not self._is_held(each) and not self._is_lent(each)]
        if not lost:
            return
        held = set(self._model.parameters())  # it may have another owner by now
        for each in lost:
            if each not in held:
                raise InputError(
                    "it was replaced after `allrail.torch.schedule`, so its gradient is not seen",
                    field=self._names[each],
                    hint="replace or shard parameters before, or `release` the model first; what"
                    " `fully_shard` shards is exchanged by it: leave `schedule` out",
                )

    def _look(self) -> None:
        """A forward pass begins, and a parameter may not be where it was."""
        lost = [each for each in self._held if not self._is_held(each)]
        if not lost:
            return
        for module in self._model.modules():
            if wrapper := wrapper_name(module):
                raise InputError(_why(wrapper), field=self._names[lost[0]], hint=_HINT)
        # `functional_call` lends others to a pass. When a step is made, none is under way.
        self._suspected = True
        if not self._handles:
            self._handles = [
                optimizer.register_step_pre_hook(self._before_step)
                for optimizer in self._optimizers
                if private.has_hooks(optimizer)  # some wrappers have none
            ]

    def _before_step(self, *_: Any) -> None:
        if self._suspected:
            self._suspected = False
            self.check_held(self._held)

    def _is_lent(self, parameter: torch.Tensor) -> bool:
        """Whether a plain tensor stands in for it, as during `torch.func.functional_call`."""
        owner, name = self._held[parameter]
        stand_in = private.parameters_of(owner).get(name)
        return stand_in is not None and (
            type(stand_in) is torch.Tensor or isinstance(stand_in, private.FakeTensor)
        )

    def refuse(self, wrapper: str, exchanged: Collection[torch.Tensor]) -> None:
        """Raise an error if something else exchanges one of the parameters.

        Args:
            wrapper: The name of what does.
            exchanged: What it exchanges.

        Raises:
            InputError: It does.
        """
        for each, name in self._names.items():
            if each in exchanged:
                raise InputError(_why(wrapper), field=name, hint=_HINT)

    def refuse_flattened(self, wrapper: str, wrapped: nn.Module) -> None:
        """Raise an error if a wrapper has taken parameters out of their modules."""
        within = set(wrapped.modules())
        for each, (owner, _) in self._held.items():
            if owner in within and not self._is_held(each):
                raise InputError(_why(wrapper), field=self._names[each], hint=_HINT)

    def names(self) -> dict[torch.Tensor, str]:
        """The parameters, and the name of each."""
        return self._names

    def _is_held(self, parameter: torch.Tensor) -> bool:
        place = self._held.get(parameter)
        return place is None or private.parameters_of(place[0]).get(place[1]) is parameter


def check_alone(model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    """Make sure that nothing else exchanges what is to be scheduled.

    Args:
        model: The model.
        parameters: Its trainable parameters by name.

    Raises:
        InputError: Something does.
    """
    for claim in list(_claims):
        for name, each in parameters.items():
            if each in claim.names():
                raise InputError(
                    f"it is scheduled already, as `{claim.names()[each]}`",
                    field=f"model.{name}",
                    hint="call `allrail.torch.schedule` once for a parameter, or `release(model)`"
                    " before it is scheduled again",
                )
    for module in model.modules():
        _check_wrapper(module, parameters)
    if any(_shares(wrapper, parameters) for wrapper in _wrappers):
        gc.collect()  # one that is not used any more may be waiting for it
        for wrapper in list(_wrappers):
            _check_wrapper(wrapper, parameters)
    for name, each in parameters.items():
        # `optimize_ddp = "python_reducer"` of the compiler's settings.
        for hook in (private.post_accumulate_grad_hooks(each) or {}).values():
            function = hook.func if isinstance(hook, functools.partial) else hook
            if getattr(function, "__qualname__", "").startswith("DistributedDataParallel."):
                raise InputError(_why("DistributedDataParallel"), field=f"model.{name}", hint=_HINT)


def check_whole(model: nn.Module) -> None:
    """Make sure that no wrapper has taken the parameters out of a model.

    Raises:
        InputError: One has.
    """
    for wrapper in list(_wrappers):
        if model in wrapper.modules():
            raise InputError(
                f"`{wrapper_name(wrapper)}` has taken its parameters, and exchanges them",
                field="model",
                hint=_HINT,
            )


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Make sure that an optimizer exchanges nothing by itself.

    Raises:
        InputError: It does.
    """
    kind = type(optimizer)
    if kind.__module__.startswith(OPTIMIZERS):
        raise InputError(
            f"`{kind.__name__}` of {kind.__module__.partition('.')[0]} exchanges gradients, too",
            field="optimizer",
            hint="give the optimizer that it was made of: `art.schedule` takes its place",
        )


def _shares(wrapper: nn.Module, parameters: dict[str, nn.Parameter]) -> str:
    """Return the name of a parameter that a wrapper exchanges, too; or nothing."""
    exchanged = exchanged_by(wrapper)
    return next((name for name, each in parameters.items() if each in exchanged), "")


def _check_wrapper(module: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    wrapper = wrapper_name(module)
    if wrapper and (name := _shares(module, parameters)):
        raise InputError(_why(wrapper), field=f"model.{name}", hint=_HINT)


def _why(wrapper: str) -> str:
    return f"`{wrapper}` exchanges its gradient, too, and the two would spoil each other's result"


def _put_into(parent: nn.Module, name: str, child: Any) -> None:
    """A module becomes a part of another one."""
    del name
    wrapper = wrapper_name(parent)
    if not wrapper or not isinstance(child, nn.Module):
        return
    exchanged = exchanged_by(parent, child)
    for claim in list(_claims):
        claim.refuse(wrapper, exchanged)
        claim.refuse_flattened(wrapper, child)
    _wrappers.add(parent)


def _look_for_wrappers() -> None:
    """Find the wrappers that there are already: none before there is a process group."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for each in gc.get_objects():
            # `isinstance` would ask the object, which may be anything.
            if issubclass(type(each), nn.Module) and wrapper_name(each):
                _wrappers.add(each)


register_module_module_registration_hook(_put_into)
_look_for_wrappers()
