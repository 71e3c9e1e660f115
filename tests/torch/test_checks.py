"""Bits that flip on the way and at rest: found, named alike on all ranks; nothing found without."""

from __future__ import annotations

import importlib
import importlib.util
import random
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError, TrainingError  # noqa: E402
from allrail.torch.divergence import Divergence, hashes, who_differs  # noqa: E402

BENCH = Path(__file__).parents[2] / "benches" / "checks.py"


@pytest.fixture(scope="module")
def planted():
    spec = importlib.util.spec_from_file_location("benches_checks", BENCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("control", [False, True])
def test_a_flipped_bit_on_the_way_ends_in_one_error_that_names_both_ranks(planted, control, tls):
    draw = random.Random(5)
    for _ in range(4 if tls else 10):
        faults, wrong = planted.flip_in_a_frame(draw, control=control, tls=tls)
        assert planted.is_named(faults), faults
        assert not wrong
        # Bits of a version may say another version.
        assert faults[0]["kind"] in {"damaged", "bad_frame"}, faults
        assert faults[0]["kind"] == "damaged" or "version" in faults[0]["what"], faults


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def job_of(parameters, **keys):
    return {"schema_version": 1, "checks": {"parameters": parameters}, **keys}


def train(rank, model, optimizer, steps, flip=None):
    """Train; `flip` is (step, rank, name): after which step whose parameter changes by a bit."""
    drawn = torch.Generator().manual_seed(rank)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=drawn)).square().mean().backward()
        optimizer.step()
        if flip is not None and flip[:2] == (step + 1, rank):
            art.synchronize(model)
            words = model.get_parameter(flip[2]).detach().view(-1).view(torch.int32)
            words[-1] ^= 1 << 20


WAYS = [
    {},
    {"exchange": "barrier"},
    {"exchange": "plain"},
    {"transport": "c10d"},
    {"compression": "bf16"},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_parameter_that_differs_is_named_with_its_ranks_on_all_ranks(on_ranks, way):
    def body(rank):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        art.schedule(model, optimizer, job=job_of(4, **way))
        with pytest.raises(TrainingError) as caught:
            train(rank, model, optimizer, 20, flip=(6, 1, "3.weight"))
        art.release(model)
        return caught.value.field, caught.value.why, caught.value.hint

    answers = on_ranks(body, ranks=3)
    assert len(set(answers)) == 1
    field, message, hint = answers[0]
    assert field == "3.weight"
    assert "between ranks after step 8: rank 1 has another value than the other 2" in message
    assert "parameters: 0" in hint


@pytest.mark.parametrize("every", [0, 100])
def test_nothing_is_compared_where_it_is_off_or_not_due(on_ranks, every):
    def body(rank):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer, job=job_of(every))
        train(rank, model, optimizer, 12, flip=(6, 1, "3.weight"))
        art.release(model)

    on_ranks(body)


@pytest.mark.parametrize(
    "make",
    [
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        lambda model: torch.optim.AdamW(model.parameters()),
        lambda model: torch.optim.Adam(model.parameters(), fused=True),
        lambda model: torch.optim.RMSprop(model.parameters()),
    ],
)
@pytest.mark.parametrize("keys", [{}, {"every": 3}, {"exchange": "barrier"}], ids=str)
def test_nothing_is_found_where_nothing_is_wrong(on_ranks, make, keys):
    def body(rank):
        model = model_of()
        optimizer = make(model)
        # Buffers of BatchNorm are each rank's own, as are parameters between two averages.
        art.schedule(model, optimizer, job=job_of(1, **keys), broadcast_buffers=False)
        train(rank, model, optimizer, 25)
        buffer = model[1].running_mean.clone()
        art.release(model)
        return buffer

    one, other = on_ranks(body)
    assert not torch.equal(one, other)


def test_what_an_average_gives_is_compared(on_ranks):
    def body(rank):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer, job=job_of(4, every=2))
        local = art._scheduled[id(model)]
        take = local._divergences[0]._take

        def flipped(steps):
            if rank == 0:
                model[0].bias.detach().view(torch.int32)[0] ^= 1
            take(steps)

        local._divergences[0]._take = flipped
        with pytest.raises(TrainingError, match="after step 4"):
            train(rank, model, optimizer, 8)
        art.release(model)

    on_ranks(body)


def test_two_optimizers_are_compared_each_by_its_own_steps(on_ranks):
    def body(rank):
        model = model_of()
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[3])]
        art.schedule(model, optimizers, job=job_of(3))
        for step in range(20):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(torch.randn(4, 6)).square().mean().backward()
            optimizers[0].step()
            if step % 2:
                optimizers[1].step()
        art.release(model)

    on_ranks(body)


@pytest.mark.parametrize("checks", [{"frames": False}, {"parameters": 7}])
def test_ranks_that_check_otherwise_are_refused(on_ranks, checks):
    def body(rank):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        job = {"schema_version": 1, "checks": checks if rank else {}}
        with pytest.raises(InputError) as caught:
            art.schedule(model, optimizer, job=job)
        return caught.value.field, caught.value.why

    (field, message), other = on_ranks(body)
    assert (field, message) == other
    assert field == f"checks.{next(iter(checks))}"
    assert "rank 1" in message


class Alone:
    """A transport that answers what it is told: rows of others."""

    rank, ranks = 0, 3

    def __init__(self, changed=()):
        self.changed, self.gathers = changed, 0

    def gather(self, buffer):
        self.gathers += 1
        buffer[:] = buffer[0]
        for rank, place in self.changed:
            buffer[rank, place if buffer.shape[1] > 1 else 0] += 1
        return 0

    def gathered(self, ticket):
        pass


def test_a_device_is_not_waited_for_in_the_step_in_which_it_hashes(monkeypatch):
    module = importlib.import_module("allrail.torch.divergence")
    device = types.SimpleNamespace(device=torch.device("cuda"), cpu=lambda: torch.ones(1).long())
    host = module.hashes
    monkeypatch.setattr(
        module, "hashes", lambda all_of: device if len(all_of) > 1 else host(all_of)
    )
    carrier = Alone()
    divergence = Divergence(carrier, {"a": torch.ones(3), "b": torch.ones(2)}, every=2)
    for step in range(6):
        divergence.before_step()
        # Hashed before the third and the fifth step, sent before the one that follows.
        assert carrier.gathers == (step >= 3) + (step >= 5)


def test_the_first_tensor_that_differs_is_named():
    parameters = {"a": torch.ones(3), "b": torch.ones(2, 2), "c": torch.ones(1)}
    divergence = Divergence(Alone([(1, 2), (2, 1)]), parameters, every=1)
    divergence.before_step()
    divergence.before_step()
    with pytest.raises(TrainingError) as caught:
        divergence.before_step()
    assert caught.value.field == "b"
    assert "and 1 more tensor differ" in caught.value.why
    assert "after step 1: rank 2 has another value than the other 2" in caught.value.why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
def test_every_bit_counts_on_the_host_and_on_a_device(dtype):
    from allrail.torch.divergence import _sum_of_words

    tensor = (torch.arange(21).reshape(3, 7) % 5).to(dtype)
    before, sums = hashes([tensor]).tolist(), _sum_of_words(tensor).item()
    octets = tensor.view(torch.uint8).view(-1)
    for place in range(octets.numel()):
        for bit in range(8):
            octets[place] ^= 1 << bit
            assert hashes([tensor]).tolist() != before
            assert _sum_of_words(tensor).item() != sums
            octets[place] ^= 1 << bit
    assert hashes([tensor]).tolist() == before
    assert hashes([tensor.t()]).tolist() == before  # as it lies in memory


def test_who_differs_is_said_of_the_fewer():
    assert who_differs([5, 5, 7, 5]) == "rank 2 has another value than the other 3"
    assert who_differs([5, 7, 8, 5, 5]) == "ranks 1 and 2 have another value than the other 3"
    assert who_differs([1, 2]).startswith("ranks 0 and 1 do not agree")
