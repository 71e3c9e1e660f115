"""What a person may hand to `schedule` by mistake: each is one error that says what to do."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from allrail.base.errors import InputError
from allrail.runtime.agreement import Agreement
from allrail.torch.claims import check_alone, check_optimizer, check_whole
from allrail.torch.transport import is_dense

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def check(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of the model by name.

    Raises:
        InputError: They, or the optimizers, are nothing that can be scheduled.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"it is a `{type(model).__name__}`, no `torch.nn.Module`",
            field="model",
            hint="allrail.torch.schedule(model, optimizer)",
        )
    everything = dict(model.named_parameters())
    parameters = {name: each for name, each in everything.items() if each.requires_grad}
    if not parameters:
        check_whole(model)
        why = "all of its parameters are frozen" if everything else "it has no parameters"
        raise InputError(
            f"{why}: there is nothing to exchange",
            field="model",
            hint="build and unfreeze it before it is scheduled",
        )
    check_alone(model, parameters)
    for name, parameter in parameters.items():
        _check_parameter(name, parameter)
    _check_optimizers(everything, optimizers)
    return parameters


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    field = f"model.{name}"
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        raise InputError(
            "it has no shape yet",
            field=field,
            hint="run the model once on an example before it is scheduled",
        )
    if type(parameter) is not nn.Parameter:
        raise InputError(
            f"it is a `{type(parameter).__name__}`, which is exchanged by other means",
            field=field,
            hint="leave `schedule` out where a model is sharded, as FSDP and `DTensor` do, and use"
            ' `init_process_group("allrail")`; or freeze this parameter',
        )
    if parameter.dtype not in DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise InputError(
            "gradients of this type cannot be summed",
            field=field,
            value=str(parameter.dtype).removeprefix("torch."),
            hint=f"types that can: {known}; else freeze it",
        )
    if not is_dense(parameter):
        raise InputError(
            "its elements overlap in memory, or have gaps between them",
            field=field,
            value=f"strides {tuple(parameter.stride())} for shape {tuple(parameter.shape)}",
            hint="give it memory of its own: `nn.Parameter(parameter.detach().contiguous())`",
        )


def _check_optimizers(
    everything: dict[str, nn.Parameter], optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    if not optimizers:
        raise InputError(
            "there is none", field="optimizer", hint="allrail.torch.schedule(model, optimizer)"
        )
    known = set(everything.values())
    seen: set[Any] = set()
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(
                f"it is a `{type(optimizer).__name__}`, no `torch.optim.Optimizer`",
                field="optimizer",
                hint="allrail.torch.schedule(model, optimizer), or a list of optimizers",
            )
        check_optimizer(optimizer)
        for place, group in enumerate(optimizer.param_groups):
            for number, parameter in enumerate(group["params"]):
                field = f"optimizer.param_groups[{place}]['params'][{number}]"
                if parameter not in known:
                    raise InputError(
                        "it is no parameter of the model",
                        field=field,
                        value=f"{tuple(parameter.shape)} of {parameter.dtype}",
                        hint="build the optimizer from `model.parameters()`, after the model has"
                        " its final type and device",
                    )
                if parameter in seen:
                    raise InputError(
                        "another optimizer steps it, too",
                        field=field,
                        hint="give each parameter to one optimizer",
                    )
                seen.add(parameter)


def same_model(agreement: Agreement, parameters: Mapping[str, nn.Parameter]) -> None:
    """Make sure that all ranks schedule the same model.

    Args:
        agreement: Among all ranks.
        parameters: This rank's, by name.

    Raises:
        InputError: A rank differs from rank 0.
    """
    mine = [
        [name, str(each.dtype), list(each.shape), list(each.stride())]
        for name, each in parameters.items()
    ]
    agreement.on("model", mine, _compare)


def _compare(said: list[Any]) -> None:
    first = said[0]
    for rank, theirs in enumerate(said):
        if theirs == first:
            continue
        for ours_here, theirs_here in itertools.zip_longest(first, theirs, fillvalue=()):
            if ours_here != theirs_here:
                raise InputError(
                    f"rank {rank} has {_words(theirs_here)}, rank 0 {_words(ours_here)}",
                    field=f"model.{[*theirs_here, *ours_here][0]}",
                    hint="build the same model on every rank",
                )


def _words(entry: Any) -> str:
    if not entry:
        return "no such parameter"
    name, dtype, shape, strides = entry
    return f"`{name}`: {dtype} {tuple(shape)} with strides {tuple(strides)}"
