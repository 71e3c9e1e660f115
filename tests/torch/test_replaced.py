"""Parameters that a script replaces after `schedule`: trained as without, or one clear error.

A parameter that nobody exchanges would train on each rank alone, in silence.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import AllrailError  # noqa: E402

STEPS = 4


def assigned(model, _):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def assigned_and_told(model, optimizer):
    assigned(model, None)
    optimizer.param_groups[0]["params"] = list(model.parameters())


def replaced(model, optimizer):
    model[0].weight = nn.Parameter(model[0].weight.detach() * 0.5)
    optimizer.param_groups[0]["params"] = list(model.parameters())


def weight_normed(model, optimizer):
    parametrizations.weight_norm(model[0])
    optimizer.param_groups[0]["params"] = list(model.parameters())


def weight_normed_by_hook(model, optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(model[0])
    optimizer.param_groups[0]["params"] = list(model.parameters())


class Half(nn.Module):
    def forward(self, x):
        return x / 2


def parametrized(model, _):
    parametrize.register_parametrization(model[0], "weight", Half())


def grown(model, optimizer):
    model.append(nn.Linear(4, 4))
    optimizer.add_param_group({"params": list(model[-1].parameters())})


def doubled(model, _):
    model.double()


def module_replaced(model, optimizer):
    model[0] = nn.Linear(8, 4)
    optimizer.param_groups[0]["params"] = list(model.parameters())


@contextlib.contextmanager
def swapping():
    """Within it, `to` and `load_state_dict` swap tensors instead of copying."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def swapped(model, _):
    torch.utils.swap_tensors(model[0].weight, nn.Parameter(model[0].weight.detach() * 0.5))


def swapped_into(model, _):
    torch.utils.swap_tensors(nn.Parameter(model[0].weight.detach() * 0.5), model[0].weight)


def swapped_all(model, _):
    for each in model.parameters():
        torch.utils.swap_tensors(each, nn.Parameter(each.detach() * 0.5))


def moved_by_swapping(model, _):
    with swapping():
        model.to(torch.float64).to(torch.float32)


def loaded_by_swapping(model, _):
    state = {name: value * 0.5 for name, value in model.state_dict().items()}
    with swapping():
        model.load_state_dict(state)


def assigned_by_swapping(model, _):
    state = {name: value * 0.5 for name, value in model.state_dict().items()}
    with swapping():
        model.load_state_dict(state, assign=True)


def other_data(model, _):
    for each in model.parameters():
        each.data = each.data * 0.5


def other_strides(model, _):
    for each in model.parameters():
        if each.dim() == 2:
            each.data = each.data.t().contiguous().t()


def other_type(model, _):
    for each in model.parameters():
        each.data = each.data.double()


def other_shape(model, _):
    model[0].weight.data = torch.ones(2, 8)
    model[0].bias.data = torch.ones(2)
    model[2].weight.data = torch.ones(4, 2)


CHANGES = {
    "swap_tensors": swapped,
    "swap_tensors, the other way round": swapped_into,
    "swap_tensors of all": swapped_all,
    "to() that swaps": moved_by_swapping,
    "load_state_dict that swaps": loaded_by_swapping,
    "load_state_dict(assign=True) that swaps": assigned_by_swapping,
    "p.data = another's": other_data,
    "p.data = of other strides": other_strides,
    "p.data = of another type": other_type,
    "p.data = of another shape": other_shape,
    "load_state_dict(assign=True)": assigned,
    "load_state_dict(assign=True), told": assigned_and_told,
    "another parameter": replaced,
    "weight_norm": weight_normed,
    "weight_norm by hook": weight_normed_by_hook,
    "register_parametrization": parametrized,
    "a new layer": grown,
    "double()": doubled,
    "another module": module_replaced,
}


MODES = {
    "": {},
    "whole steps": {"cross_barrier": False},
    "c10d": {"transport": "c10d"},
    "every": {"every": 2},
    "disabled": {},
}


def train(way, rank, change, ranks=2, mode=""):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if way == "art":
        with contextlib.ExitStack() as stack:
            if mode == "disabled":
                os.environ["ALLRAIL_DISABLE"] = "1"
                stack.callback(os.environ.pop, "ALLRAIL_DISABLE")
            art.schedule(model, optimizer, **MODES[mode])
    try:
        return steps_of(model, optimizer, change, range(ranks) if way == "alone" else [rank])
    finally:
        if way == "art":
            art.release(model)


def steps_of(model, optimizer, change, ranks):
    for step in range(STEPS):
        if step == 1:
            torch.manual_seed(1)
            change(model, optimizer)
        optimizer.zero_grad()
        losses = []
        for one in ranks:
            draw = torch.Generator().manual_seed(10 * step + one)
            dtype = next(model.parameters()).dtype
            losses.append(model(torch.randn(4, 8, generator=draw).to(dtype)).square().mean())
        (sum(losses) / len(losses)).backward()
        optimizer.step()
    art.synchronize()
    return [each.detach().clone().tolist() for each in model.parameters()]


def both(rank):
    """What became of each change: its words where it was refused, else nothing."""
    said = {}
    for name, change in CHANGES.items():
        expected = train("alone", rank, change)
        try:
            got = train("art", rank, change)
        except (AllrailError, RuntimeError) as error:
            said[name] = str(error)
            continue
        for one, other in zip(expected, got, strict=True):
            assert torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-6), name
    return said


def test_a_parameter_that_is_replaced_trains_as_without_or_is_an_error(on_ranks):
    one, other = on_ranks(both)
    assert one.keys() == other.keys()
    assert "`0.weight`: it was replaced after" in one["load_state_dict(assign=True)"]
    for name in ("another parameter", "weight_norm by hook", "a new layer", "another module"):
        assert "hint: " in one[name], one[name]


SWAPS = [name for name in CHANGES if "swap" in name]


def refused(rank, mode):
    """What became of each swap in one way to exchange: its words where it was refused."""
    said = {}
    for name in SWAPS:
        try:
            train("art", rank, CHANGES[name], mode=mode)
        except (AllrailError, RuntimeError) as error:
            cause = error.__cause__
            said[name] = f"{error} {cause}"
    return said


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "every"])
def test_tensors_are_not_swapped_in_silence(mode, ranks_of):
    for said in ranks_of(refused)(mode):
        assert set(said) == set(SWAPS)
        for words in said.values():
            if mode in ("", "c10d"):
                assert "swap_tensors` would leave its gradient on this rank alone" in words
                assert "`release` the model first" in words
            else:
                assert "Cannot swap t" in words


def test_local_steps_may_swap(on_ranks):
    """Parameters are averaged, and no gradient has to be seen: all are alike after an average."""

    def body(rank):
        return [train("art", rank, CHANGES[name], mode="every") for name in SWAPS[:3]]

    one, other = on_ranks(body)
    assert one == other


def test_a_swap_is_free_again_after_release(on_ranks):
    def body(rank):
        seen = []
        for mode in ("", "whole steps"):
            model = nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            art.schedule(model, optimizer, **MODES[mode])
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            art.release(model)
            optimizer.zero_grad()
            other = nn.Parameter(torch.full((4, 4), 3.0))
            torch.utils.swap_tensors(model.weight, other)
            seen.append([model.weight.sum().item(), len(weakref.getweakrefs(model.weight))])
        return seen

    for seen in on_ranks(body):
        assert seen == [[48.0, 0], [48.0, 0]]
