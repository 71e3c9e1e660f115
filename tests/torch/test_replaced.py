"""Parameters that a script replaces after `schedule`: trained as without, or one clear error.

A parameter that nobody exchanges would train on each rank alone, in silence.
"""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.errors import AllrailError  # noqa: E402

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


CHANGES = {
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


def train(way, rank, change, ranks=2):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if way == "art":
        art.schedule(model, optimizer)
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
