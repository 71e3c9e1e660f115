"""Is an optimizer's step made parameter by parameter? Found out by running it, not by its name.

The optimizer is run twice on tiny stand-ins for some of its parameters: once as a whole, once on
one parameter after another, in another order. It may be crossed if both give the same bits, and if
a step changes nothing but parameters and their state: what it keeps in a group or in the optimizer
itself would differ.

A counter in a group (`group["step"] += 1`) is no obstacle. Every parameter is stepped with the
count of before the step, and the group's own count is advanced when the step is asked for.
"""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from allrail.torch import private

_STEPS = 8
_LONGEST_AXIS = 6
_PER_GROUP = 3
_GROUPS = 8
_STATES = "states"
_PLAIN = (bool, int, float, complex, str, bytes, type(None))

Groups = list[dict[str, Any]]


def step_of(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """Return the step of the optimizer's class, without the hooks that torch wraps around it."""
    step: Callable[..., Any] = type(optimizer).step
    unwrapped: Callable[..., Any] = getattr(step, "__wrapped__", step)
    return unwrapped if getattr(step, "hooked", False) else step


@dataclass(frozen=True)
class Behaviour:
    """How an optimizer's step can be made.

    Attributes:
        why_whole: Why it needs all of its parameters at once; empty if it does not.
        counters: What each step adds to in every group, and how much.
    """

    why_whole: str = ""
    counters: dict[str, int] = field(default_factory=dict)


def with_hooks(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer, or the one that it wraps if it was made without torch's own hooks."""
    while not private.has_hooks(optimizer):
        optimizer = next(
            each for each in vars(optimizer).values() if isinstance(each, torch.optim.Optimizer)
        )
    return optimizer


def behaviour_of(optimizer: torch.optim.Optimizer) -> Behaviour:
    """Try how the optimizer's step can be made; changes nothing of it."""
    counters: dict[str, int] = {}
    why = _why_whole(optimizer, counters)
    return Behaviour(why, {} if why else counters)


def advance(group: dict[str, Any], counters: dict[str, int]) -> None:
    """Count one step in a group, as the optimizer would; one that is not there yet begins at 0."""
    for name, each in counters.items():
        group[name] = group.get(name, 0) + each


def _why_whole(optimizer: torch.optim.Optimizer, counters: dict[str, int]) -> str:
    """Return why the step is made as a whole; put what it counts into `counters`."""
    name = type(optimizer).__name__
    if any(isinstance(value, torch.optim.Optimizer) for value in vars(optimizer).values()):
        return f"`{name}` holds another optimizer"
    groups = _stand_ins(optimizer)
    try:
        with torch.random.fork_rng(devices=[]):
            whole, others = _run(optimizer, groups, counters, one_by_one=False)
        with torch.random.fork_rng(devices=[]):
            split, others_split = _run(optimizer, groups, counters, one_by_one=True)
    except Exception as error:  # noqa: BLE001 - it is the user's code, and may raise anything
        return f"`{name}` could not be tried: {type(error).__name__}: {error}"
    changed = sorted(what for what, value in others.items() if others_split.get(what) != value)
    if changed:
        return f"a step of `{name}` changes {', '.join(changed)}"
    before = [parameter for group in groups for parameter in group["params"]]
    if all(torch.equal(old, new) for old, new in zip(before, whole, strict=True)):
        return f"`{name}` does not step what is in its `param_groups`"
    if not all(torch.equal(one, other) for one, other in zip(whole, split, strict=True)):
        return f"`{name}` steps all parameters at once otherwise than one by one"
    return ""


def types_stepped_together(optimizer: torch.optim.Optimizer) -> frozenset[torch.dtype]:
    """Return the types of parameters for which its `foreach` steps give the bits that others give.

    On a CPU torch steps parameters one after the other unless it is told otherwise, at up to three
    times the cost for small ones. Where the script has told, that stays.
    """
    for group in optimizer.param_groups:
        if group.get("foreach", True) is not None or group.get("fused"):
            return frozenset()
    types = {each.dtype for group in optimizer.param_groups for each in group["params"]}
    return frozenset(each for each in types if _same_together(optimizer, each))


def _same_together(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> bool:
    groups = [group for group in _stand_ins(optimizer, dtype) if group["params"]]
    together = [{**group, "foreach": True} for group in groups]
    try:
        one, _ = _run(optimizer, groups, {}, one_by_one=False)
        other, _ = _run(optimizer, together, {}, one_by_one=False)
    except Exception:  # noqa: BLE001 - as above; then nothing is told
        return False
    return all(torch.equal(mine, its) for mine, its in zip(one, other, strict=True))


def _stand_ins(optimizer: torch.optim.Optimizer, dtype: torch.dtype | None = None) -> Groups:
    """Return small groups like the optimizer's; `state` of each is that of its parameters.

    Args:
        optimizer: Which.
        dtype: Of the parameters that count; None for all.
    """
    generator = torch.Generator().manual_seed(0)
    groups: Groups = []
    for group in optimizer.param_groups[:_GROUPS]:
        kinds: dict[tuple[int, torch.dtype, torch.device], torch.Tensor] = {}
        for parameter in group["params"]:
            if dtype is not None and parameter.dtype != dtype:
                continue
            kinds.setdefault((parameter.ndim, parameter.dtype, parameter.device), parameter)
        chosen = list(kinds.values())[:_PER_GROUP]
        chosen = (chosen * 2)[: max(2, len(chosen))]
        stand_ins = [_small(parameter, generator) for parameter in chosen]
        states = [
            {
                name: _cut(value, parameter, small)
                for name, value in optimizer.state[parameter].items()
            }
            if parameter in optimizer.state
            else {}
            for parameter, small in zip(chosen, stand_ins, strict=True)
        ]
        settings = copy.deepcopy(_settings(group))
        groups.append({**settings, "params": stand_ins, _STATES: states})
    return groups


def _small(parameter: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    shape = [min(_LONGEST_AXIS, size) for size in parameter.shape]
    values = torch.randn(shape, generator=generator)
    return values.to(dtype=parameter.dtype, device=parameter.device)


def _cut(value: Any, parameter: torch.Tensor, small: torch.Tensor) -> Any:
    """A value of the state, as small as the stand-in."""
    if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
        return value.detach()[tuple(slice(size) for size in small.shape)].clone()
    return copy.deepcopy(value)


def _run(
    optimizer: torch.optim.Optimizer,
    groups: Groups,
    counters: dict[str, int],
    *,
    one_by_one: bool,
) -> tuple[list[torch.Tensor], dict[str, str]]:
    """Step copies of the groups; return the parameters, and what else steps may have changed.

    As a whole it finds out what is counted, one by one it goes by that.
    """
    mine: Groups = []
    for group in groups:
        parameters = [tensor.clone().requires_grad_() for tensor in group["params"]]
        mine.append({**copy.deepcopy(_settings(group)), "params": parameters})
    trial = copy.copy(optimizer)
    trial.__dict__ = {
        name: copy.deepcopy(value) if _is_plain(value) else value
        for name, value in vars(optimizer).items()
    }
    trial.state = defaultdict(dict)
    for group, copied in zip(groups, mine, strict=True):
        for state, parameter in zip(group[_STATES], copied["params"], strict=True):
            if state:
                trial.state[parameter] = copy.deepcopy(state)
    trial.param_groups = mine
    step = step_of(optimizer)
    generator = torch.Generator().manual_seed(1)
    parameters = [parameter for group in mine for parameter in group["params"]]
    seen = [_settings(group) for group in mine], *([] for _ in range(_STEPS))
    for number in range(_STEPS):
        for parameter in parameters:
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient.to(dtype=parameter.dtype, device=parameter.device)
        if not one_by_one:
            step(trial)
            seen[number + 1].extend(_settings(group) for group in mine)
            continue
        for group in reversed(mine):
            for parameter in reversed(group["params"]):
                trial.param_groups = [{**copy.deepcopy(_settings(group)), "params": [parameter]}]
                step(trial)
        trial.param_groups = mine
        for group in mine:
            advance(group, counters)
    if not one_by_one:
        counters.update(_counters(seen))
    return [parameter.detach() for parameter in parameters], _others(trial)


def _counters(seen: Sequence[Groups]) -> dict[str, int]:
    """What grew in every group by the same whole number in each step, and by how much.

    Args:
        seen: All groups before the first step, and after each.
    """
    found: dict[str, int] = {}
    for name in seen[-1][0]:
        counts = [[group.get(name, 0) for group in groups] for groups in seen]
        if not all(type(count) is int for row in counts for count in row):
            continue
        growth = {
            now - then
            for before, after in itertools.pairwise(counts)
            for then, now in zip(before, after, strict=True)
        }
        if len(growth) == 1 and growth != {0}:
            found[name] = growth.pop()
    return found


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in {"params", _STATES}}


def _others(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """What a step may change beyond parameters and their state, as text that can be compared."""
    found = {
        f"`{name}`": repr(value)
        for name, value in vars(optimizer).items()
        if name not in {"state", "param_groups"} and _is_plain(value)
    }
    for place, group in enumerate(optimizer.param_groups):
        for name, value in _settings(group).items():
            if _is_plain(value) or isinstance(value, torch.Tensor):
                found[f"`{name}` of group {place}"] = repr(value)
    return found


def _is_plain(value: object) -> bool:
    """Whether a value is made of numbers, texts and containers only."""
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_is_plain(item) for item in value)
    return isinstance(value, _PLAIN)
