"""Parameters averaged every few steps, against the same by hand in one process."""

from __future__ import annotations

import copy
import math
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402

STEPS = 7


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batch(step, rank):
    drawn = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 12, generator=drawn)


def one_step(model, optimizer, step, rank, passes=1):
    optimizer.zero_grad()
    for part in range(passes):
        with art.no_sync(model):
            model(batch(step + 50 * part, rank)).square().mean().backward()
    optimizer.step()


def state_of(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: each.clone() for name, each in model.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def by_hand(ranks, every, passes=1):
    models = [model_of() for _ in range(ranks)]
    optimizers = [sgd(model) for model in models]
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            one_step(model, optimizer, step, rank, passes)
        if (step + 1) % every == 0:
            for replicas in zip(*(model.parameters() for model in models), strict=True):
                mean = sum(each.detach() / ranks for each in replicas)
                for each in replicas:
                    each.data.copy_(mean)
            for replicas in zip(*(model.buffers() for model in models), strict=True):
                for each in replicas:
                    each.copy_(replicas[0])
    return [state_of(model) for model in models]


def apart(rank, every, transport, passes):
    model = model_of()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(rank)  # it becomes rank 0's
    optimizer = sgd(model)
    art.schedule(model, optimizer, every=every, transport=transport)
    for step in range(STEPS):
        one_step(model, optimizer, step, rank, passes)
    momentum = [optimizer.state[each]["momentum_buffer"] for each in model.parameters()]
    return state_of(model), momentum


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("transport", ["native", "c10d"])
@pytest.mark.parametrize("every", [2, 3, 7])
def test_it_is_what_is_done_by_hand(every, transport, passes, ranks_of):
    said = ranks_of(apart)(every, transport, passes)
    for (got, _), expected in zip(said, by_hand(2, every, passes), strict=True):
        assert same(got, expected)
    assert same(said[0][0], said[1][0]) == (STEPS % every == 0)
    momenta = [momentum for _, momentum in said]
    assert not all(torch.equal(*both) for both in zip(*momenta, strict=True))


def resumed(rank):
    """A checkpoint between two averages, on every rank its own."""

    def fresh():
        model = model_of()
        optimizer = sgd(model)
        art.schedule(model, optimizer, every=3)
        return model, optimizer

    model, optimizer = fresh()
    for step in range(STEPS):
        one_step(model, optimizer, step, rank)
    expected = state_of(model)
    model, optimizer = fresh()
    for step in range(4):
        one_step(model, optimizer, step, rank)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
        model.state_dict()
    state = art.state_dict(model)
    model, optimizer = fresh()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    art.load_state_dict(model, state)
    for step in range(4, STEPS):
        one_step(model, optimizer, step, rank)
    try:
        art.load_state_dict(model, {"every": 2, "steps": [0]})
    except InputError as error:
        refused = error.field
    return same(expected, state_of(model)), state, [str(each.message) for each in caught], refused


def test_a_checkpoint_goes_on_where_it_stood(on_ranks):
    for equal, state, warned, refused in on_ranks(resumed):
        assert equal
        assert state == {"every": 3, "steps": [1]}
        [warning] = warned
        assert "trained apart for 1 steps" in warning
        assert refused == "state"


def released(rank):
    model = model_of()
    optimizer = sgd(model)
    art.schedule(model, optimizer, every=2)
    for step in range(2):
        one_step(model, optimizer, step, rank)
    twin = copy.deepcopy(model)
    twin.state_dict()
    art.synchronize()
    assert art.barriers() == {}
    art.release(model)
    before = state_of(model)
    for step in range(2):
        one_step(model, optimizer, step, rank)
    return before, state_of(model), len(art._scheduled)


def test_released_replicas_part_ways(on_ranks):
    (before, after, left), (other_before, other_after, _) = on_ranks(released)
    assert left == 0
    assert same(before, other_before)
    assert not same(after, other_after)


def mismatched(rank):
    model = model_of()
    try:
        art.schedule(model, sgd(model), every=2 + rank)
    except InputError as error:
        return str(error)
    return "nothing was raised"


def test_ranks_that_average_otherwise_are_an_error(on_ranks):
    for said in on_ranks(mismatched):
        assert "`every`: rank 1 has 3, rank 0 2" in said


@pytest.mark.parametrize("every", [0, -1, 1.5, math.nan, "2", True])
def test_what_is_no_number_of_steps_is_an_error(every):
    model = model_of()
    with pytest.raises(InputError) as caught:
        art.schedule(model, sgd(model), every=every)
    assert caught.value.field == "every"


def test_with_a_compression_it_is_an_error():
    model = model_of()
    with pytest.raises(InputError, match="exchange parameters"):
        art.schedule(model, sgd(model), every=2, compression="bf16")
