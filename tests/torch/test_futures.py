"""Futures of the backend `allrail`: callbacks may wait for other collectives, and keep their order.

torch's own hooks of `DistributedDataParallel` do, and are run. With several buckets gloo is no
oracle for those: it pairs the collectives of callbacks by their time, and ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
pytestmark = pytest.mark.skipif(VERSION < (2, 6), reason="the backend needs torch 2.6 or later")


def begin(backend="allrail"):
    import allrail.torch.backend  # noqa: F401

    dist.init_process_group(backend)


def all_reduced(value):
    """The future of an all-reduce of two equal numbers."""
    return dist.all_reduce(torch.full((3,), float(value)), async_op=True).get_future()


@pytest.mark.parametrize("count", [1, 64, 200])
def test_callbacks_that_wait_at_once_do_not_dead_lock(count, on_ranks):
    def body(rank):
        begin()
        seen = []

        def second(number):
            def callback(future):
                seen.append((number, 0))
                return future.value()[0] + all_reduced(2 * number).wait()[0]

            return callback

        futures = []
        for number in range(count):
            first = all_reduced(number)
            futures.append(first.then(second(number)))
            first.add_done_callback(lambda _, number=number: seen.append((number, 1)))
            first.then(lambda _, number=number: seen.append((number, 2)))
        values = [future.wait()[0].item() for future in futures]
        until = time.monotonic() + 120
        while len(seen) < 3 * count and time.monotonic() < until:
            time.sleep(0.01)
        orders = [[place for one, place in seen if one == number] for number in range(count)]
        return values, orders

    for values, orders in on_ranks(body, group=False):
        assert values == [2.0 * number + 4 * number for number in range(count)]
        assert orders == [[0, 1, 2]] * count


def test_collectives_of_callbacks_are_paired_whatever_comes_between(on_ranks):
    """On one rank the callbacks run before the next collectives begin, on the other after them."""

    def body(rank):
        begin()
        found = []
        for step in range(10):
            first = all_reduced(1)
            if rank == step % 2:
                first.wait()
                time.sleep(0.01)
            nested = first.then(lambda _: all_reduced(10).then(lambda _: all_reduced(100).wait()))
            between = torch.full((3,), 1000.0)
            dist.all_reduce(between)
            found.append((between[0].item(), nested.wait().wait()[0][0].item()))
        return found

    assert on_ranks(body, group=False) == [[(2000.0, 200.0)] * 10] * 2


def test_a_callback_that_blocks_holds_nobody_up(on_ranks):
    def body(rank):
        begin()
        goes_on = threading.Event()
        here, at_once = threading.get_ident(), []

        def block(_):
            if threading.get_ident() == here:  # over already: it runs where it is attached
                at_once.append(True)
            else:
                assert goes_on.wait(120)

        blocked = [all_reduced(1).then(block) for _ in range(3)]
        time.sleep(0.2)
        other = all_reduced(2)
        value = other.then(lambda future: future.value()[0][0].item()).wait()
        were_done = sum(future.done() for future in blocked)
        goes_on.set()
        torch.futures.wait_all(blocked)
        return value, were_done == len(at_once)

    assert on_ranks(body, group=False) == [(4.0, True)] * 2


def test_what_a_callback_raises_is_raised_where_it_is_waited_for(on_ranks):
    def body(rank):
        begin()

        def wrong(_):
            raise KeyError("mine")

        failed = all_reduced(1).then(wrong)
        seen = failed.then(lambda future: "not reached" if future.value() else None)
        raised = []
        for future in (failed, seen):
            try:
                future.wait()
            except KeyError as error:
                raised.append(str(error))
        dist.barrier()
        return raised

    assert on_ranks(body, group=False) == [["'mine'"] * 2] * 2


def hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        post_localSGD_hook,
        powerSGD_hook,
    )

    def power(model):
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def local(model):
        alone, _ = dist.new_subgroups(1)
        state = post_localSGD_hook.PostLocalSGDState(None, alone, 3)
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)

    def plain(hook):
        return lambda model: model.register_comm_hook(None, hook)

    return {
        "none": lambda _: None,
        "allreduce": plain(default_hooks.allreduce_hook),
        "fp16": plain(default_hooks.fp16_compress_hook),
        "bf16": plain(default_hooks.bf16_compress_hook),
        "fp16 wrapper": plain(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
        "post-local SGD": local,
        "PowerSGD": power,
    }


def train(name, rank, *, bucket=25.0, late=None):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4)
    )
    called = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    hooks()[name](called)
    if late == rank:
        model[2].weight.register_hook(lambda _: time.sleep(0.02))
    for step in range(5):
        optimizer.zero_grad()
        batch = torch.randn(8, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
        called(batch).square().mean().backward()
        optimizer.step()
    return [each.detach().numpy().copy() for each in model.parameters()]


@pytest.mark.parametrize("name", list(hooks()))
def test_hooks_of_torch_do_what_they_do_over_gloo(name, on_ranks):
    def body(rank, backend="allrail"):
        begin(backend)
        return train(name, rank, bucket=25.0 if name == "PowerSGD" else 0.03)

    expected = on_ranks(lambda rank: body(rank, "gloo"), group=False)
    got = on_ranks(body, group=False)
    for left, right in zip(expected, got, strict=True):
        for one, other in zip(left, right, strict=True):
            assert (one == other).all()


def test_power_sgd_of_several_buckets_does_not_depend_on_time(on_ranks):
    def body(rank):
        begin()
        return [train("PowerSGD", rank, bucket=0.03, late=late) for late in (None, 0, 1)]

    runs = [run for results in on_ranks(body, group=False) for run in results]
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            assert (one == other).all()


@pytest.mark.parametrize("name", ["none", "allreduce", "fp16", "PowerSGD"])
def test_a_rank_that_dies_is_an_error_under_every_hook(name, on_ranks):
    """Not the end of the process: C++ reads tensors out of what a future of Python holds."""

    def body(rank):
        begin()
        if rank == 1:
            threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        try:
            while True:
                train(name, rank, bucket=0.03)
        except Exception as error:  # noqa: BLE001 - torch makes others of them
            return str(error)

    said, other = on_ranks(body, group=False, mortal=True)
    assert other == "ended"
    assert "rank 1 is lost" in said


def test_what_is_attached_while_callbacks_run_waits_for_its_turn():
    from allrail.torch.futures import Future

    future, seen, begun, goes_on = Future(""), [], threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        goes_on.wait(120)
        seen.append(0)

    future.add_done_callback(slow)
    future.add_done_callback(lambda _: seen.append(1))
    thread = threading.Thread(target=future.set_result, args=([],))
    thread.start()
    assert begun.wait(120)
    last = future.then(lambda _: seen.append(2))  # complete already, and `slow` still runs
    future.add_done_callback(lambda one: one.then(lambda _: seen.append(3)))  # from a callback
    assert seen == []
    goes_on.set()
    last.wait()
    thread.join()
    assert seen == [0, 1, 2, 3]
