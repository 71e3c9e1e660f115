"""The transport over process groups: what the engine decides, in one order on all ranks."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import TrainingError  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.torch import carrier, groups  # noqa: E402
from allrail.torch.ordered import Ordered  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402


def made(rank, sizes=(2,), name="test", **settings):
    store, _, ranks = store_of_job()
    loopback = {"bandwidth": "20 Gb/s", "latency": "20 us"}
    known = {"dimensions": [{"size": size, **loopback} for size in sizes], **settings}
    return Ordered(rank, ranks, Agreement(store, rank, ranks, name), known)


def register(transport, tensors):
    return [
        transport.register(f"tensor {i}", each.dtype, tuple(each.shape), each.stride(), i)
        for i, each in enumerate(tensors)
    ]


def step(transport, keys, rank, *, order=None, unused=()):
    """One exchange of each key; returns whether all sums are right."""
    tensors = [torch.full((100 + 7 * key,), rank + 1.0) for key in range(len(keys))]
    started = {}
    for i in order or range(len(keys)):
        begin = transport.unused if (rank, i) in unused else transport.submit
        started[i] = begin(keys[i], tensors[i])
    for i, generation in started.items():
        transport.wait(keys[i], generation)
    ranks = range(transport.ranks)
    sums = [sum(r + 1.0 for r in ranks if (r, i) not in unused) for i in range(len(keys))]
    return all(bool((one == total).all()) for one, total in zip(tensors, sums, strict=True))


def empty(count):
    return [torch.empty(100 + 7 * i) for i in range(count)]


# One tensor after the other, so that no timing makes another order.
def one_by_one(transport, keys, rank, unused=()):
    right = True
    for i, key in enumerate(keys):
        tensor = torch.full((100 + 7 * i,), rank + 1.0)
        begin = transport.unused if (rank, i) in unused else transport.submit
        transport.wait(key, begin(key, tensor))
        total = sum(r + 1.0 for r in range(transport.ranks) if (r, i) not in unused)
        right &= bool((tensor == total).all())
    return right


def talk_of_each_step(rank):
    transport = made(rank)
    keys = register(transport, empty(4))
    transport.start()
    seen = []
    for number in range(20):
        # Something else happens once: tensor 2 is unused on rank 1.
        unused = {(1, 2)} if number == 12 else ()
        assert one_by_one(transport, keys, rank, unused)
        report = transport.report()
        seen.append((report["frozen"], report["coordination"]))
    transport.close()
    return seen


def test_an_order_that_holds_costs_nothing_until_it_changes(on_ranks):
    for seen in on_ranks(talk_of_each_step):
        frozen = [flag for flag, _ in seen]
        said = [count for _, count in seen]
        # A rank that hears of the end later says so a step later, but no step later than the next.
        assert frozen[:4] == [False] * 4
        assert all(frozen[5:12]), "after five steps alike it is frozen"
        assert said[5] == said[11], "and nobody talks"
        assert said[12] - said[11] <= 1, "one word that it ends, or that this is known"
        assert frozen[13] is False
        assert said[14] > said[13], "all is agreed again"
        assert frozen[19], "and freezes again"


def test_every_rank_may_submit_in_any_order(on_ranks):
    def body(rank):
        transport = made(rank)
        keys = register(transport, empty(6))
        transport.start()
        draw, common = random.Random(rank), random.Random(7)
        right, frozen = True, 0
        order = list(range(6))
        for number in range(60):
            if number % 10 == 0:
                draw.shuffle(order)
            # Sometimes a rank alone does otherwise.
            odd = common.randrange(40)
            mine = random.Random(number).sample(order, 6) if odd == rank else order
            right &= step(transport, keys, rank, order=mine)
            frozen += transport.report()["frozen"]
        transport.close()
        return right, frozen

    assert [right for right, _ in on_ranks(body)] == [True, True]


def test_tensors_are_cut_and_the_urgent_one_overtakes(on_ranks):
    def body(rank):
        sizes = []
        plain = dist.all_reduce

        def noted(tensor, **options):
            sizes.append(tensor.numel())
            return plain(tensor, **options)

        carrier.dist.all_reduce = noted
        transport = made(rank)
        urgent, large = torch.ones(1000), torch.ones(12 << 20)  # 48 MiB: three times the credit
        first, second = register(transport, [urgent, large])
        transport.start()
        generation = transport.submit(second, large)
        transport.wait(first, transport.submit(first, urgent))
        in_time = not transport.is_done(second, generation)
        transport.wait(second, generation)
        transport.close()
        carrier.dist.all_reduce = plain
        assert bool((large == 2).all())
        return sizes, in_time

    said = on_ranks(body)
    assert said[0][0] == said[1][0], "all ranks launch alike"
    sizes, in_time = said[0]
    assert in_time
    assert sorted(sizes) == [1000] + [1 << 20] * 12
    assert sizes.index(1000) < 11, "it went before the rest of what was there first"


def test_two_dimensions_in_any_order_of_theirs(on_ranks):
    def body(rank):
        visited = []
        plain = carrier.Carrier._start

        def noted(self, launch, *rest):
            visited.append((launch.of[-1], launch.dimension, launch.kind))
            return plain(self, launch, *rest)

        carrier.Carrier._start = noted
        transport = made(
            rank, (2, 2), policy="themis", chunks=8, smallest_chunk="1 KiB", partition="256 KiB"
        )
        tensors = [torch.arange(70_003.0) * (rank + 1), torch.full((5,), rank, dtype=torch.int64)]
        keys = register(transport, tensors)
        transport.start()
        for key, tensor in zip(keys, tensors, strict=True):
            transport.wait(key, transport.submit(key, tensor))
        transport.close()
        carrier.Carrier._start = plain
        first = {chunk: d for chunk, d, _ in reversed(visited)}
        right = (
            torch.equal(tensors[0], torch.arange(70_003.0) * 10) and tensors[1].tolist() == [6] * 5
        )
        return right, sorted(set(first.values())), {kind for *_, kind in visited}

    for right, first, kinds in on_ranks(body, ranks=4):
        assert right
        assert first == [0, 1], "chunks begin on both dimensions"
        assert kinds == {"reduce_scatter", "all_gather"}


def test_one_policy_does_the_innermost_dimension_in_one(on_ranks):
    def body(rank):
        transport = made(rank, (2, 2))
        tensor = torch.arange(1001.0) * (rank + 1)
        (key,) = register(transport, [tensor])
        transport.start()
        transport.wait(key, transport.submit(key, tensor))
        transport.close()
        return torch.equal(tensor, torch.arange(1001.0) * 10)

    assert all(on_ranks(body, ranks=4))


def test_lines_are_the_ranks_that_differ_on_one_dimension():
    assert groups.along([2, 3], 0) == ((0, 1), (2, 3), (4, 5))
    assert groups.along([2, 3], 1) == ((0, 2, 4), (1, 3, 5))


def test_who_waits_for_a_tensor_before_what_is_first_is_told(on_ranks):
    def body(rank):
        transport = made(rank)
        keys = register(transport, empty(2))
        transport.start()
        for _ in range(6):
            assert one_by_one(transport, keys, rank)
        second = torch.ones(107)
        generation = transport.submit(keys[1], second)
        said = ""
        try:
            transport.wait(keys[1], generation)
        except TrainingError as error:
            said = str(error)
        first = torch.ones(100)
        transport.wait(keys[0], transport.submit(keys[0], first))
        transport.wait(keys[1], generation)
        transport.close()
        return said, bool((second == 2).all())

    for said, right in on_ranks(body):
        assert right
        assert "`tensor 1`: its exchange is waited for before it could begin" in said
        assert "it goes after `tensor 0`" in said


def test_what_the_group_says_is_wrong_names_the_tensor_on_all_ranks(on_ranks):
    def body(rank):
        plain = carrier.dist.all_reduce

        def broken(tensor, **options):
            if rank == 1:
                raise RuntimeError("the cable is out")
            return plain(tensor, **options)

        carrier.dist.all_reduce = broken
        transport = made(rank)
        tensor = torch.ones(10)
        (key,) = register(transport, [tensor])
        transport.start()
        try:
            transport.wait(key, transport.submit(key, tensor))
        except TrainingError as error:
            return error.field, str(error)
        finally:
            carrier.dist.all_reduce = plain
        return "", "no error"

    for field, said in on_ranks(body):
        assert field == "tensor 0"
        assert "the cable is out" in said


def training(rank):
    def build():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 17), nn.Linear(17, 4))

    def train(model, optimizer):
        torch.manual_seed(rank)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(5, 9)).square().sum().backward()
            optimizer.step()

    ours, theirs = build(), build()
    scheduled, optimizer = art.schedule(
        ours, torch.optim.AdamW(ours.parameters(), lr=0.1), transport="c10d"
    )
    train(scheduled, optimizer)
    art.synchronize()
    parallel = DistributedDataParallel(theirs)
    train(parallel, torch.optim.AdamW(theirs.parameters(), lr=0.1))
    same = [torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)]
    art.release(ours)
    return all(same)


def test_training_equals_ddp_bit_for_bit(on_ranks):
    assert on_ranks(training) == [True, True]
