"""Compressed gradients against the same done by hand, in one process that has all ranks' data."""

from __future__ import annotations

import json
import math
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail._core import compressed_exchanges, compressions  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.torch.compression import KINDS, compression_of  # noqa: E402

STEPS = 5
TOP_K = {"kind": "top_k", "share": 0.05}
POWER_SGD = {"kind": "power_sgd", "rank": 2}
EVERY = {"fp16": "fp16", "bf16": "bf16", "top_k": TOP_K, "power_sgd": POWER_SGD}
NAMES = sorted(EVERY)


def test_the_tests_have_every_kind():
    assert sorted(KINDS) == NAMES == sorted(row["name"] for row in json.loads(compressions()))


def model_of(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh()).to(dtype)


def batch(step, rank, dtype=torch.float32):
    drawn = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 24, generator=drawn).to(dtype)


def train(model, optimizer, rank, dtype=torch.float32, steps=range(STEPS)):
    for step in steps:
        optimizer.zero_grad()
        model(batch(step, rank, dtype)).square().mean().backward()
        optimizer.step()
    art.synchronize()
    return [each.detach().clone() for each in model.parameters()]


# -- the same by hand: nothing of `allrail.torch` in it


def sum_of_halves(dtype):
    def mean(_, gradients):
        return sum((each / len(gradients)).to(dtype) for each in gradients).to(gradients[0].dtype)

    return mean


def sum_of_largest(share):
    left = {}

    def mean(name, gradients):
        ranks, numbers = len(gradients), gradients[0].numel()
        kept = math.ceil(share * numbers)
        if ranks * 8 * kept >= 4 * numbers:
            return sum(each / ranks for each in gradients)
        total = torch.zeros(numbers)
        for rank, gradient in enumerate(gradients):
            whole = gradient.flatten() / ranks + left.get((name, rank), 0)
            order = sorted(range(numbers), key=lambda i: -abs(float(whole[i])))
            mask = torch.zeros(numbers, dtype=torch.bool)
            mask[order[:kept]] = True
            total = total + torch.where(mask, whole, 0)
            left[name, rank] = torch.where(mask, 0, whole)
        return total.view_as(gradients[0])

    return mean


def sum_of_low_rank(rank_of_matrix, bases):
    """Vogels et al., algorithms 1 and 2, with Gram and Schmidt's basis as they have it."""
    left = {}

    def mean(name, gradients):
        ranks = len(gradients)
        if name not in bases:
            return sum(each / ranks for each in gradients)
        inputs = [g / ranks + left.get((name, rank), 0) for rank, g in enumerate(gradients)]
        p = sum(each @ bases[name] for each in inputs)
        for column in range(rank_of_matrix):
            for before in range(column):
                p[:, column] -= (p[:, before] @ p[:, column]) * p[:, before]
            p[:, column] /= p[:, column].norm()
        products = [each.T @ p for each in inputs]
        bases[name] = sum(products)
        for rank, (each, product) in enumerate(zip(inputs, products, strict=True)):
            left[name, rank] = each - p @ product.T
        return p @ bases[name].T

    return mean


def by_hand(mean, ranks, dtype=torch.float32):
    model = model_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    names = [name for name, _ in model.named_parameters()]
    for step in range(STEPS):
        of = []
        for rank in range(ranks):
            loss = model(batch(step, rank, dtype)).square().mean()
            of.append(torch.autograd.grad(loss, list(model.parameters())))
        for name, each, *gradients in zip(names, model.parameters(), *of, strict=True):
            each.grad = mean(name, gradients)
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def scheduled(rank, name, transport, dtype):
    model = model_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    art.schedule(model, optimizer, compression=EVERY[name], transport=transport)
    if name == "power_sgd":
        below = art._of(model)[0]._carrier
        bases = {}
        below_register = below.register

        def register(tensor, *rest):
            key = below_register(tensor, *rest)
            channel = below._entries[key].channel
            if channel is not None:
                bases[tensor] = channel.state()["basis"]
            return key

        below.register = register
        return train(model, optimizer, rank, dtype), bases
    return train(model, optimizer, rank, dtype), {}


@pytest.mark.parametrize("transport", ["native", "c10d"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_is_done_by_hand(name, transport, ranks_of):
    dtype = torch.float64 if name == "power_sgd" else torch.float32
    (one, bases), (other, _) = ranks_of(scheduled)(name, transport, dtype)
    assert all(torch.equal(*both) for both in zip(one, other, strict=True))
    mean = {
        "fp16": sum_of_halves(torch.float16),
        "bf16": sum_of_halves(torch.bfloat16),
        "top_k": sum_of_largest(TOP_K["share"]),
        "power_sgd": sum_of_low_rank(POWER_SGD["rank"], dict(bases)),
    }[name]
    assert (len(bases) == 2) == (name == "power_sgd")  # the matrices, not the biases
    expected = by_hand(mean, 2, dtype)
    plain = by_hand(lambda _, gradients: sum(each / 2 for each in gradients), 2, dtype)
    for got, right, without in zip(one, expected, plain, strict=True):
        # Two numbers have one sum; another basis of the same space rounds otherwise.
        torch.testing.assert_close(got, right, rtol=0, atol=1e-12 if bases else 0)
        if got.ndim == 2:
            assert not torch.equal(got, without)


def test_three_ranks_agree_bit_for_bit(ranks_of):
    for name in NAMES:
        values = [said for said, _ in ranks_of(scheduled, ranks=3)(name, "native", torch.float32)]
        for theirs in values[1:]:
            assert all(torch.equal(*both) for both in zip(values[0], theirs, strict=True))


def converges(rank, name):
    torch.manual_seed(1)
    truth = torch.randn(16, 24)
    model = nn.Linear(24, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    art.schedule(model, optimizer, compression=EVERY[name])
    losses = []
    for step in range(150):
        x = torch.randn(32, 24, generator=torch.Generator().manual_seed(1000 * step + rank))
        optimizer.zero_grad()
        loss = (model(x) - x @ truth.T).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses[0], losses[-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_small_model_learns(name, ranks_of):
    for first, last in ranks_of(converges)(name):
        assert last < first / 100


def resumed(rank, name):
    """Half the steps, a checkpoint, another model that goes on from it; and all at once."""

    def fresh():
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        art.schedule(model, optimizer, compression=EVERY[name])
        return model, optimizer

    expected = train(*fresh(), rank)
    model, optimizer = fresh()
    train(model, optimizer, rank, steps=range(2))
    saved = model.state_dict(), optimizer.state_dict(), art.state_dict(model)
    model, optimizer = fresh()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    art.load_state_dict(model, saved[2])
    again = art.state_dict(model)  # before the first step there is nothing else to say
    assert again["tensors"].keys() == saved[2]["tensors"].keys()
    got = train(model, optimizer, rank, steps=range(2, STEPS))
    train(model, optimizer, rank, steps=range(1))
    anew = saved[2] | {"ranks": 3}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        art.load_state_dict(model, anew)
    kept = {what for state in art.state_dict(model)["tensors"].values() for what in state}
    return (
        all(torch.equal(*both) for both in zip(got, expected, strict=True)),
        list(model.state_dict()) == list(model_of().state_dict()),
        ["3 ranks, and 2 train now" in str(each.message) for each in caught],
        sorted(kept),
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_has_what_was_left_out(name, ranks_of):
    left = ["basis"] if name == "power_sgd" else []
    assert ranks_of(resumed)(name) == [(True, True, [True], left)] * 2


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Linear(24, 32), nn.Linear(24, 32)

    def forward(self, x, which):
        return (self.one if which else self.other)(x)


def differing(rank, name, transport):
    """Each rank uses another branch, then both the same one, then only one rank both."""
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer, compression=EVERY[name], transport=transport)
    for step in range(6):
        optimizer.zero_grad()
        model(batch(step, rank), (step + rank * (step < 3)) % 2).square().mean().backward()
        if step == 5:  # nobody uses `one` here
            optimizer.step()
    art.synchronize()
    return [each.detach().clone() for each in model.parameters()]


@pytest.mark.parametrize("transport", ["native", "c10d"])
@pytest.mark.parametrize("name", NAMES)
def test_ranks_that_use_different_parameters_agree(name, transport, ranks_of):
    one, other = ranks_of(differing)(name, transport)
    assert all(torch.equal(*both) for both in zip(one, other, strict=True))
    assert all(each.isfinite().all() for each in one)


def saves_alone(rank):
    """Rank 0 saves while the others do something else: nobody else asks for what is under way."""
    import torch.distributed as dist

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer, compression=POWER_SGD)
    for step in range(2):
        optimizer.zero_grad()
        model(batch(step, rank)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        model.state_dict()
    dist.barrier()
    return True


def test_one_rank_may_ask_for_all_steps_alone(on_ranks):
    assert on_ranks(saves_alone) == [True, True]


def disabled(rank):
    import os

    os.environ["ALLRAIL_DISABLE"] = "1"
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    art.schedule(model, optimizer, compression=TOP_K)
    assert art.state_dict(model) == {}
    return train(model, optimizer, rank)


def test_disabled_nothing_is_compressed(on_ranks):
    expected = by_hand(lambda _, gradients: sum(each / 2 for each in gradients), 2)
    for got in on_ranks(disabled):
        assert all(torch.equal(*both) for both in zip(got, expected, strict=True))


def mismatched(rank):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        art.schedule(model, optimizer, compression={"kind": "power_sgd", "rank": 1 + rank})
    except InputError as error:
        return str(error)
    return "nothing was raised"


def test_ranks_that_compress_otherwise_are_an_error(on_ranks):
    for said in on_ranks(mismatched):
        assert "`compression`: rank 1 has" in said


def registered(rank, name, dtype):
    """The bytes of everything that the transport below was told of, by tensor."""
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48), nn.Flatten(), nn.Linear(48 * 36, 64)
    ).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer, compression=EVERY[name])
    below = art._of(model)[0]._carrier._transport
    told = {}
    register = below.register

    def look(tensor, its_dtype, shape, *rest):
        told.setdefault(tensor.partition(",")[0], []).append(its_dtype.itemsize * math.prod(shape))
        return register(tensor, its_dtype, shape, *rest)

    below.register = look
    model(torch.ones(2, 3, 8, 8, dtype=dtype)).sum().backward()
    del told["which parameters are used"]
    return told, {name: tuple(each.shape) for name, each in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_wire_carries_what_the_simulator_counts(name, dtype, ranks_of):
    spec = EVERY[name] if isinstance(EVERY[name], dict) else {"kind": name}
    told, shapes = ranks_of(registered, ranks=3)(name, dtype)[0]
    assert told.keys() == shapes.keys()
    smaller = 0
    for tensor, shape in shapes.items():
        counted = compressed_exchanges(json.dumps(spec), list(shape), dtype.itemsize, 3)
        smaller += counted is not None
        assert told[tensor] == (counted or [math.prod(shape) * dtype.itemsize])
    # 16 bits are no smaller in 16 bits.
    assert (smaller > 0) == (name in {"top_k", "power_sgd"} or dtype.itemsize > 2)


ROWS = {
    "unknown": ("bf61", "compression.kind", "bf16"),
    "no kind": ({"share": 0.1}, "compression.kind", "top_k"),
    "no mapping": (16, "compression", "a kind"),
    "no share": ({"kind": "top_k", "share": 0}, "compression.share", "above 0"),
    "more than all": ({"kind": "top_k", "share": 1.5}, "compression.share", "at most 1"),
    "not a number": ({"kind": "top_k", "share": "1 %"}, "compression.share", "0.01"),
    "nan": ({"kind": "top_k", "share": math.nan}, "compression.share", "above 0"),
    "no rank": ({"kind": "power_sgd", "rank": 0}, "compression.rank", "1 or more"),
    "half a rank": ({"kind": "power_sgd", "rank": 1.5}, "compression.rank", "1 or more"),
    "typo": ({"kind": "power_sgd", "rnak": 2}, "compression.rnak", "rank"),
    "none to give": ({"kind": "bf16", "share": 0.1}, "compression.share", "alone"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_an_error(name):
    given, field, hint = ROWS[name]
    model = model_of()
    with pytest.raises(InputError) as caught:
        art.schedule(model, torch.optim.SGD(model.parameters(), lr=0.1), compression=given)
    assert caught.value.field == field
    assert hint in caught.value.hint


def test_none_is_none():
    assert compression_of(None) is None
    assert compression_of("none") is None


@pytest.mark.parametrize("name", NAMES)
def test_what_holds_no_fractions_travels_as_it_is(name):
    compression = compression_of(EVERY[name])
    assert compression.channel("count", torch.int32, (500, 500), 0, 2) is None
    assert compression.channel("weight", torch.float32, (500, 500), 0, 2) is not None
