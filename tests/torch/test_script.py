"""Models of TorchScript train as under DDP: scripted, traced, or with such a module inside."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402

INPUT = (8, 16)


def layers():
    return nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4), nn.Dropout(0.0)
    )


MODELS = {
    "scripted": lambda: torch.jit.script(layers()),
    "traced": lambda: torch.jit.trace(layers(), torch.randn(INPUT)),
    "inside": lambda: nn.Sequential(nn.Linear(16, 16), torch.jit.script(layers())),
    "traced inside": lambda: nn.Sequential(
        torch.jit.trace(layers(), torch.randn(INPUT)), nn.Linear(4, 2)
    ),
}
OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


def trained(rank, make, optimizer_of, wrap, steps=5):
    torch.manual_seed(0)
    model = MODELS[make]()
    optimizer = OPTIMIZERS[optimizer_of](model.parameters())
    run = wrap(model, optimizer)
    torch.manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        run(torch.randn(INPUT)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def by_ddp(model, optimizer):
    return nn.parallel.DistributedDataParallel(model)


def by_allrail(model, optimizer):
    return art.schedule(model, optimizer)[0]


def state(model):
    return {name: each.numpy().copy() for name, each in model.state_dict().items()}


def both(rank, make, optimizer):
    # The first run of a graph may differ from all later ones in its last bits.
    for _ in range(2):
        expected, _ = trained(rank, make, optimizer, by_ddp)
    got, stepped = trained(rank, make, optimizer, by_allrail)
    file = io.BytesIO()
    if isinstance(got, torch.jit.ScriptModule):
        torch.jit.save(got, file)
        file.seek(0)
        saved = torch.jit.load(file)
    else:
        saved = copy.deepcopy(got)
    after = state(got), state(saved), dict(art.steps(got))
    art.release(got)
    assert got._compiled_call_impl is None
    stepped.zero_grad()
    got(torch.ones(INPUT)).sum().backward()  # on this rank alone
    return state(expected), *after


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", MODELS)
def test_it_trains_as_under_ddp(make, optimizer, ranks_of):
    for expected, got, saved, _ in ranks_of(both)(make, optimizer):
        assert expected.keys() == got.keys() == saved.keys()
        for name, value in expected.items():
            assert (value == got[name]).all(), name
            assert (value == saved[name]).all(), name


def apart(rank, make):
    """Ranks average after the second step and the fourth, and then are alike."""

    def wrap(model, optimizer):
        return art.schedule(model, optimizer, every=2)[0]

    model, _ = trained(rank, make, "momentum", wrap, steps=4)
    return [each.detach().numpy() for each in model.parameters()]


@pytest.mark.parametrize("make", MODELS)
def test_ranks_may_train_apart(make, ranks_of):
    one, other = ranks_of(apart)(make)
    assert all((left == right).all() for left, right in zip(one, other, strict=True))
