"""Training in other set-ups than one model and one optimizer on two ranks; and how it ends."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402

STEPS = 4


def mlp(last=4):
    return nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, last)
    )


def batch(step, rank):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + rank))


def ddp(model, **kwargs):
    return nn.parallel.DistributedDataParallel(model, **kwargs)


def values(*models):
    return [each.detach().clone() for model in models for each in model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def train(model, called, optimizers, rank, steps=STEPS):
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        called(batch(step, rank)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    return model


def test_two_optimizers_of_one_model(on_ranks):
    def make():
        torch.manual_seed(0)
        model = mlp()
        matrices = [each for each in model.parameters() if each.ndim == 2]
        others = [each for each in model.parameters() if each.ndim != 2]
        return model, [
            torch.optim.SGD(matrices, lr=0.1, momentum=0.9),
            torch.optim.AdamW(others, lr=0.01),
        ]

    def body(rank):
        model, optimizers = make()
        expected = values(train(model, ddp(model), optimizers, rank))
        model, optimizers = make()
        got, same_list = art.schedule(model, optimizers)
        assert got is model
        assert same_list is optimizers
        train(model, model, optimizers, rank)
        assert art.barriers() == {}
        art.synchronize()
        return same(expected, values(model))

    assert all(on_ranks(body))


def test_two_models_with_a_common_loss_and_one_that_has_its_own(on_ranks):
    """An encoder and a decoder train together; a critic looks at what they make, as in a GAN."""

    def run(rank, wrap, optimizer_of=torch.optim.Adam):
        torch.manual_seed(0)
        encoder, decoder, critic = mlp(16), mlp(16), mlp(1)
        optimizers = [
            optimizer_of(each.parameters(), lr=0.01) for each in (encoder, decoder, critic)
        ]
        e, d, c = wrap([encoder, decoder, critic], optimizers)
        for step in range(STEPS):
            made = d(e(batch(step, rank)))
            for optimizer in optimizers[:2]:
                optimizer.zero_grad()
            made.square().mean().backward()
            for optimizer in optimizers[:2]:
                optimizer.step()
            optimizers[2].zero_grad()
            c(made.detach()).square().mean().backward()
            optimizers[2].step()
        art.synchronize()
        return values(encoder, decoder, critic)

    def body(rank):
        expected = run(rank, lambda models, _: [ddp(model) for model in models])

        def scheduled(models, optimizers):
            return [art.schedule(m, o)[0] for m, o in zip(models, optimizers, strict=True)]

        return same(expected, run(rank, scheduled)), art.barriers()

    for equal, barriers in on_ranks(body):
        assert equal
        assert barriers == {"synchronize": 3}


def test_three_ranks_agree_and_round_as_ddp_does(on_ranks):
    def body(rank):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        expected = values(train(model, ddp(model), [optimizer], rank))
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        train(model, model, [optimizer], rank)
        art.synchronize()
        return expected, values(model)

    results = on_ranks(body, ranks=3)
    for expected, got in results:
        assert same(got, results[0][1])
        for left, right in zip(expected, got, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=1e-6)


def test_disabled_touches_nothing_and_still_averages(on_ranks):
    def body(rank):
        os.environ["ALLRAIL_DISABLE"] = "1"
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        expected = values(train(model, ddp(model), [optimizer], rank))
        torch.manual_seed(rank)
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        art.schedule(model, optimizer)
        assert all(type(each) is nn.Parameter for each in model.parameters())
        assert not {"step", "zero_grad"} & set(vars(optimizer))
        assert "zero_grad" not in vars(model)
        train(model, model, [optimizer], rank)
        return same(expected, values(model))

    assert all(on_ranks(body))


def test_released_it_is_an_ordinary_model_again(on_ranks):
    def body(rank):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        hooks = [len(each._forward_pre_hooks) for each in model.modules()]
        art.schedule(model, optimizer)
        train(model, model, [optimizer], rank)
        art.release(model)
        assert all(type(each) is nn.Parameter and not vars(each) for each in model.parameters())
        assert hooks == [len(each._forward_pre_hooks) for each in model.modules()]
        assert not {"step", "zero_grad"} & (set(vars(optimizer)) | set(vars(model)))
        before = values(model)
        train(model, model, [optimizer], rank)  # alone: ranks part ways
        assert not same(before, values(model))
        gathered = [torch.empty_like(model[0].weight) for _ in range(2)]
        dist.all_gather(gathered, model[0].weight.detach())
        assert not torch.equal(*gathered)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        art.schedule(model, optimizer)  # and may be scheduled again
        train(model, model, [optimizer], rank)
        art.synchronize()
        return values(model)

    one, other = on_ranks(body)
    assert same(one, other)


def test_a_model_that_is_dropped_takes_everything_with_it(on_ranks):
    def body(rank):
        import gc

        model = mlp()
        optimizer = torch.optim.Adam(model.parameters())
        art.schedule(model, optimizer)
        train(model, model, [optimizer], rank)
        art.synchronize()
        assert len(art._scheduled) == 1
        del model, optimizer
        gc.collect()
        return len(art._scheduled)

    assert on_ranks(body) == [0, 0]


def test_without_a_process_group_it_makes_its_own(on_ranks):
    def body(rank):
        assert not dist.is_initialized()
        torch.manual_seed(rank)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        train(model, model, [optimizer], rank)
        art.synchronize()
        return values(model)

    one, other = on_ranks(body, group=False)
    assert same(one, other)


def test_a_single_process_is_left_alone(on_ranks):
    def body(rank):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        with art.no_sync(model):
            train(model, model, [optimizer], rank)
        art.synchronize(model)
        return vars(optimizer).get("step"), type(model[0].weight) is nn.Parameter

    assert on_ranks(body, ranks=1) == [(None, True)]


ALONE = {"schema_version": 1, "schedule": {"tensor": {"pack": "0 B"}}}
"""Of a job file: no gradient shares a pack."""


def test_steps_are_made_where_the_forward_pass_needs_them(on_ranks):
    """Exchanges take until they are waited for; each module's entry makes its steps, no more."""

    def body(rank):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer, job=ALONE)
        train(model, model, [optimizer], rank, steps=1)
        scheduled = art._of(model)[0]
        scheduled._transport.is_done = lambda *_: False
        train(model, model, [optimizer], rank, steps=1)
        seen = []

        def pending(module, *_):
            names = sorted(slot.name for slot in scheduled._slots.values() if slot.pending)
            seen.append(names)

        for layer in (model[0], model[2], model[4]):
            layer.register_forward_pre_hook(pending)
        model(batch(0, rank))
        return seen

    for seen in on_ranks(body):
        assert seen == [
            ["2.bias", "2.weight", "4.bias", "4.weight"],
            ["4.bias", "4.weight"],
            [],
        ]


def test_gradients_leave_during_the_backward_pass(on_ranks):
    def body(rank):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer, transport="c10d", job=ALONE)
        train(model, model, [optimizer], rank, steps=1)
        transport = art._of(model)[0]._carrier
        begun = []

        def look(gradient):
            begun.append(sum(each["submitted"] - 1 for each in transport.report()["tensors"]))

        model[0].weight.register_hook(look)
        optimizer.zero_grad()
        model(batch(1, rank)).square().mean().backward()
        return begun

    # All but the first layer's two, and the count of users.
    for begun in on_ranks(body):
        assert begun[0] >= 4


def trained(rank, transport):
    """A model that was scheduled and trained a few steps, and its optimizer."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer, transport=transport)
    train(model, model, [optimizer], rank)
    return model, optimizer


def error_of_training(model, optimizer, rank):
    """After how many seconds training on is an error, and which."""
    started = time.monotonic()
    try:
        train(model, model, [optimizer], rank)
    except art.TrainingError as error:
        return time.monotonic() - started, str(error)
    return None, "nothing was raised"


@pytest.mark.parametrize("transport", ["c10d", "native"])
def test_a_rank_that_dies_is_an_error_on_the_others(transport, on_ranks):
    def body(rank):
        model, optimizer = trained(rank, transport)
        if rank == 1:
            time.sleep(0.2)
            os._exit(3)
        return error_of_training(model, optimizer, rank)

    (seconds, error), other = on_ranks(body, mortal=True)
    assert other == "ended"
    assert seconds < 60
    assert "rank 1 is lost" in error
    assert "hint: " in error


@pytest.mark.parametrize("transport", ["c10d", "native"])
def test_a_rank_may_end_while_the_other_still_asks_for_its_last_step(transport, on_ranks):
    """Without a word to the others, as scripts do; then the last rank saves the model."""

    def body(rank):
        model, _optimizer = trained(rank, transport)
        if rank == 1:
            atexit._run_exitfuncs()
            os._exit(0)
        time.sleep(0.3)
        return len(model.state_dict())

    assert on_ranks(body, mortal=True) == [6, "ended"]


def test_a_child_of_fork_does_not_hide_that_its_parent_has_ended(on_ranks):
    """As a data loader's worker would: it lives on, with all files that its parent had open."""
    noticed = multiprocessing.get_context("fork").Event()

    def body(rank):
        model, optimizer = trained(rank, "native")
        art.synchronize()
        if rank == 1:
            if os.fork() == 0:
                noticed.wait(120)
                os._exit(0)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        said = error_of_training(model, optimizer, rank)
        noticed.set()
        return said

    (seconds, error), other = on_ranks(body, mortal=True)
    assert other == "ended"
    assert "rank 1 is lost" in error
    assert seconds < 60


def normalised(way, rank):
    """Evaluate between steps, twice each; return what every pass gave, and the buffers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called = nn.parallel.DistributedDataParallel(model) if way == "ddp" else model
    if way == "art":
        art.schedule(model, optimizer)
    said = []
    for step in range(3):
        model.train()
        optimizer.zero_grad()
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        called(x).square().mean().backward()
        optimizer.step()
        model.eval()
        for mode in (torch.no_grad, torch.no_grad, torch.enable_grad)[: 2 + step % 2]:
            with mode():
                said.append(called(torch.ones(2, 8)).detach().double().numpy().tolist())
    said.append([each.double().numpy().tolist() for each in model.buffers()])
    art.synchronize()
    art.release(model)
    return said


def test_evaluation_has_the_buffers_that_it_has_under_ddp(on_ranks):
    for expected, got in on_ranks(lambda rank: (normalised("ddp", rank), normalised("art", rank))):
        assert got == expected


def test_rank_0_evaluates_alone(on_ranks):
    def body(rank):
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        for _ in range(3):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            if rank == 0:
                with torch.no_grad():
                    model(torch.randn(4, 8))
            dist.barrier()
        art.synchronize()
        return values(model)

    one, other = on_ranks(body)
    assert same(one, other)
