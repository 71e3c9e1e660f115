"""What has to wait for everything says so once, on one rank, and names its cause."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.torch.barrier import WHY, Barriers  # noqa: E402
from allrail.torch.behaviour import behaviour_of  # noqa: E402


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 4))


def clipped_training(rank):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 40)).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            model.state_dict()
    barriers = art.barriers()
    return barriers, [(str(each.message), each.filename) for each in caught]


def test_a_warning_comes_once_on_one_rank_and_points_into_the_script(on_ranks):
    (barriers, said), (_, said_by_other) = on_ranks(clipped_training)
    assert barriers == {
        "gradient": 3
    }  # after clipping, nothing is left for `state_dict` to wait for
    assert said_by_other == []
    [(message, file)] = said
    assert WHY["gradient"] in message
    assert "(0.weight)" in message
    assert file.endswith("test_barriers.py")


def test_a_cause_counts_once_a_round():
    barriers = Barriers(loud=False)
    for _ in range(3):
        barriers.note("gradient")
        barriers.note("gradient")
        barriers.note("copy")
        barriers.next_round()
    with barriers.explained():
        barriers.note("state_dict")
    assert barriers.counts == {"gradient": 3, "copy": 3}


# -- which optimizers may be crossed

O = torch.optim  # noqa: E741


class Noisy(O.SGD):
    """Draws random numbers: which parameter gets which depends on the order."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad + torch.randn(p.shape), alpha=group["lr"])


class Lookahead(O.SGD):
    """Every fifth step does something else, by a count of its own."""

    calls = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"] * (self.calls % 5 == 0))


class Wrapper(O.SGD):
    """Steps another optimizer."""

    def __init__(self, params, lr):
        params = list(params)
        super().__init__(params, lr=lr)
        self.inner = O.SGD(params, lr=lr)

    def step(self, closure=None):
        self.inner.step()


class Hoarder(O.SGD):
    """Steps what it has seen when it was built, whatever its groups hold now."""

    def __init__(self, params, lr):
        params = list(params)
        super().__init__(params, lr=lr)
        self.mine = params

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.mine:
            if p.grad is not None:
                p.sub_(p.grad)


class PerGroup(O.SGD):
    """Scales by the norm of the group's gradients."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            norm = torch.stack([p.grad.norm() for p in group["params"]]).norm()
            for p in group["params"]:
                p.sub_(p.grad / norm, alpha=group["lr"])


def two_groups(params):
    first, *rest = params
    return O.AdamW([{"params": [first], "lr": 0.5}, {"params": rest}], lr=0.1)


PER_PARAMETER = {
    "sgd": lambda p: O.SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda p: O.Adagrad(p, initial_accumulator_value=0.1),
    "adam": O.Adam,
    "two groups": two_groups,
    "matrices": lambda p: O.SGD([q for q in p if q.ndim == 2], lr=0.1),
}
if hasattr(O, "Muon"):
    PER_PARAMETER["muon"] = lambda p: O.Muon([q for q in p if q.ndim == 2])
WHOLE = {
    "random": (lambda p: Noisy(p, lr=0.1), "otherwise than one by one"),
    "counts": (lambda p: Lookahead(p, lr=0.1), "changes `calls`"),
    "wrapper": (lambda p: Wrapper(p, lr=0.1), "holds another optimizer"),
    "hoarder": (lambda p: Hoarder(p, lr=0.1), "does not step what is in its `param_groups`"),
    "group norm": (lambda p: PerGroup(p, lr=0.1), "otherwise than one by one"),
    "closure": (O.LBFGS, "could not be tried"),
    "sparse": (O.SparseAdam, "could not be tried"),
}


@pytest.mark.parametrize("name", PER_PARAMETER)
def test_is_stepped_parameter_by_parameter(name):
    assert behaviour_of(PER_PARAMETER[name](mlp().parameters())).why_whole == ""


@pytest.mark.parametrize("name", WHOLE)
def test_is_stepped_as_a_whole(name):
    make, why = WHOLE[name]
    assert why in behaviour_of(make(mlp().parameters())).why_whole


def test_trying_an_optimizer_changes_nothing():
    model = mlp()
    optimizer = O.Adam(model.parameters())
    model(torch.ones(2, 40)).sum().backward()
    optimizer.step()
    before = [tensor.clone() for tensor in model.parameters()]
    state = [value.clone() for each in optimizer.state.values() for value in each.values()]
    random = torch.get_rng_state()
    assert behaviour_of(optimizer).why_whole == ""
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    now = [value for each in optimizer.state.values() for value in each.values()]
    assert all(torch.equal(a, b) for a, b in zip(state, now, strict=True))
