"""The backend `allrail` of torch.distributed does what gloo does, bit for bit on two ranks.

Where gloo is no oracle (in torch 2.8 it sums where FSDP asks for a mean), one process that has all
ranks' data is. Run on torch 2.15 and 2.8; torch before 2.6 cannot name a group of ours.
"""

from __future__ import annotations

import os
import signal
import time
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
pytestmark = pytest.mark.skipif(VERSION < (2, 6), reason="the backend needs torch 2.6 or later")


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """What takes seconds to import is inherited by all ranks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.distributed._functional_collectives
        import torch.distributed.fsdp
        import torch.distributed.tensor
        import torch.distributed.tensor.parallel  # noqa: F401


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )


def batch(step, rank):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + rank))


def train(called, optimizer, rank, steps=4):
    for step in range(steps):
        optimizer.zero_grad()
        called(batch(step, rank)).square().mean().backward()
        optimizer.step()


def reductions(rank, ranks):
    out = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        for op in ("SUM", "MAX", "MIN", "PRODUCT"):
            tensor = (torch.arange(6) + rank + 1).to(dtype)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            out.append(tensor)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    bits = torch.tensor([1 << rank, 3])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    complex_ = torch.arange(4).to(torch.complex64) * (1 + 1j * rank)
    dist.all_reduce(complex_)
    across = torch.arange(12.0).view(3, 4).t() + rank  # not contiguous
    dist.all_reduce(across)
    kept = torch.arange(6.0) + rank
    dist.reduce(kept, dst=1)
    part = torch.empty(3)
    dist.reduce_scatter_tensor(part, torch.arange(6.0) * (rank + 1))
    largest = torch.empty(3)
    dist.reduce_scatter_tensor(largest, torch.arange(6.0) * (rank + 1), op=dist.ReduceOp.MAX)
    mean = torch.empty(3)
    if dist.get_backend() == "allrail":  # gloo knows no mean, and some of its versions no maximum
        dist.reduce_scatter_tensor(mean, torch.arange(6.0) * (rank + 1), op=dist.ReduceOp.AVG)
        assert largest.tolist() == [rank * 6, rank * 6 + 2, rank * 6 + 4]
        assert mean.tolist() == [rank * 4.5, rank * 4.5 + 1.5, rank * 4.5 + 3]
    listed, parts = torch.empty(2), [torch.ones(2) * (rank + 1), torch.ones(2) * 5]
    try:
        dist.reduce_scatter(listed, parts)
    except RuntimeError:  # the gloo of torch 2.6 has none
        assert dist.get_backend() == "gloo"
        sums = torch.stack(parts)
        dist.all_reduce(sums)
        listed.copy_(sums[rank])
    empty = torch.empty(0)
    dist.all_reduce(empty)
    return [*out, flags, bits, complex_, across, part, listed, kept if rank == 1 else part]


def movements(rank, ranks):
    tensor = torch.arange(6.0) + 10 * rank
    rows = [torch.empty(6) for _ in range(ranks)]
    dist.all_gather(rows, tensor)
    together = torch.empty(6 * ranks)
    dist.all_gather_into_tensor(together, tensor)
    sent = tensor.clone()
    dist.broadcast(sent, 1)
    gathered = [torch.empty(6) for _ in range(ranks)] if rank == 0 else None
    dist.gather(tensor, gathered, dst=0)
    mine = torch.empty(6)
    dist.scatter(mine, [tensor + 1, tensor + 2] if rank == 0 else None, src=0)
    even = torch.empty(6)
    dist.all_to_all_single(even, tensor)
    sizes = [1, 3] if rank == 0 else [2, 4]
    theirs = [sizes[0], 2] if rank == 0 else [3, 4]
    uneven = torch.empty(sum(theirs))
    dist.all_to_all_single(uneven, torch.arange(float(sum(sizes))) + rank, theirs, sizes)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(ranks)]
    listed = [("from", rank)]
    dist.broadcast_object_list(listed, 0)
    assert listed == [("from", 0)]
    dist.barrier()
    return [*rows, together, sent, *(gathered or []), mine, even, uneven]


def messages(rank, ranks):
    out = []
    for size in (0, 5, 5000):
        tensor = torch.arange(float(size)) + rank
        if rank == 0:
            dist.send(tensor, 1)
            dist.recv(tensor, 1)
        else:
            got = torch.empty(size)
            dist.recv(got, 0)
            dist.send(got * 2, 0)
        out.append(tensor)
    got = torch.empty(6)
    operations = [
        dist.P2POp(dist.isend, torch.arange(6.0) + rank, 1 - rank),
        dist.P2POp(dist.irecv, got, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [*out, got]


def asynchronous(rank, ranks):
    tensors = [torch.full((size,), float(rank + 1)) for size in (1, 1000, 7)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    future = dist.all_reduce(tensors[0], async_op=True).get_future()
    assert future.wait()[0] is tensors[0] or torch.equal(future.value()[0], tensors[0])
    return tensors


def subgroups(rank, ranks):
    alone = [dist.new_group([each]) for each in range(ranks)][rank]
    both = dist.new_group([0, 1])
    one, two = torch.ones(3) * (rank + 1), torch.ones(3) * (rank + 1)
    dist.all_reduce(one, group=alone)
    dist.all_reduce(two, group=both)
    dist.destroy_process_group(both)
    return [one, two]


def ddp(rank, ranks):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001), optimizer, rank)
    return list(model.parameters())


def fsdp1(rank, ranks):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
    with FullyShardedDataParallel.summon_full_params(model):
        return [each.detach().clone() for each in model.parameters()]


def sharded(rank, ranks, shape):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    names = ("replicate", "shard")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = mlp()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.Adam(model.parameters(), lr=0.01), rank)
    return [each.full_tensor().detach().clone() for each in model.parameters()]


def fsdp2(rank, ranks):
    return sharded(rank, ranks, (ranks,))


def hsdp(rank, ranks):
    return sharded(rank, ranks, (2, ranks // 2))


def functional(rank, ranks):
    import torch.distributed._functional_collectives as collectives

    group, tensor = dist.group.WORLD, torch.arange(8.0) + rank
    out = [
        collectives.all_reduce(tensor, "sum", group),
        collectives.all_gather_tensor(tensor, 0, group),
        collectives.reduce_scatter_tensor(tensor, "sum", 0, group),
        collectives.all_to_all_single(tensor, None, None, group),
        collectives.broadcast(tensor, 0, group),
        *collectives.all_reduce_coalesced([tensor, tensor * 2], "sum", group),
        *collectives.all_gather_into_tensor_coalesced([tensor, tensor * 2], group),
        *collectives.reduce_scatter_tensor_coalesced([tensor, tensor], "sum", [0, 0], group),
    ]
    return [each + 0 for each in out]


def compiled(rank, ranks):
    import torch.distributed._functional_collectives as collectives

    def apart(x):
        return collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    def in_place(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    x = torch.arange(4.0) + rank
    return [
        torch.compile(apart, backend="aot_eager", fullgraph=True)(x),
        torch.compile(in_place, backend="aot_eager")(x),
    ]


def dtensor(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(1)
    weight = distribute_tensor(torch.randn(8, 8), mesh, [Shard(0)])
    x = distribute_tensor(torch.randn(4, 8), mesh, [Replicate()])
    model = mlp()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = model(batch(0, 0))
    y.square().mean().backward()
    return [
        (x @ weight.t()).full_tensor(),
        weight.redistribute(mesh, [Shard(1)]).full_tensor(),
        y.detach(),
        model[0].weight.grad.full_tensor(),
    ]


def alone(ranks, optimizer_of):
    """The same training in one process that has all ranks' data."""
    model = mlp()
    optimizer = optimizer_of(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        sum(model(batch(step, each)).square().mean() / ranks for each in range(ranks)).backward()
        optimizer.step()
    return list(model.parameters())


CASES = {
    each.__name__: each
    for each in (
        reductions, movements, messages, asynchronous, subgroups, ddp, fsdp1, functional, compiled,
        dtensor, fsdp2, hsdp,
    )
}  # fmt: skip
NO_ORACLE = {"fsdp2", "hsdp"}


def plain(tensors):
    return [each.detach().clone().to(torch.complex128).numpy() for each in tensors]


STAY = []
"""Groups of gloo: until torch 2.8 (its #154976) ending one may wait for a thread that waits for
the interpreter's lock, which the one that ends it has."""


def run(rank, backend, name):
    """Run a case in a process group of its own."""
    import allrail.torch.backend  # noqa: F401

    dist.init_process_group(backend)
    if backend == "gloo":
        STAY.append(dist.group.WORLD)
    result = plain(CASES[name](rank, dist.get_world_size()))
    dist.destroy_process_group()
    return result


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_ORACLE])
def test_equals_gloo(name, on_ranks):
    expected = on_ranks(lambda rank: run(rank, "gloo", name), group=False)
    got = on_ranks(lambda rank: run(rank, "allrail", name), group=False)
    for left, right in zip(expected, got, strict=True):
        assert len(left) == len(right) > 0
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            assert one.shape == other.shape
            assert (one == other).all(), f"result {number} of {len(left)}"


def test_a_group_may_be_made_again(on_ranks):
    def body(rank):
        return [run(rank, "allrail", "reductions") for _ in range(2)]

    for first, second in on_ranks(body, group=False):
        assert all((one == other).all() for one, other in zip(first, second, strict=True))


fsdp2_on_cpus = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="this torch has no FSDP2 on CPUs"
)


@fsdp2_on_cpus
@pytest.mark.parametrize(("name", "ranks"), [("fsdp2", 2), ("hsdp", 4)])
def test_sharded_training_equals_one_process(name, ranks, on_ranks):
    got = on_ranks(lambda rank: run(rank, "allrail", name), group=False, ranks=ranks)
    expected = plain(alone(ranks, lambda parameters: torch.optim.Adam(parameters, lr=0.01)))
    for result in got:
        for one, other in zip(expected, result, strict=True):
            assert abs(one - other).max() < 1e-5


@pytest.mark.parametrize("kind", ["all_reduce", "ddp", pytest.param("fsdp2", marks=fsdp2_on_cpus)])
def test_a_rank_that_dies_is_an_error_in_every_caller(kind, on_ranks):
    def body(rank):
        import allrail.torch.backend  # noqa: F401

        dist.init_process_group("allrail")
        model = mlp()
        if kind == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        elif kind == "fsdp2":
            from torch.distributed.fsdp import fully_shard

            fully_shard(model)
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        started = time.monotonic()
        try:
            for step in range(3):
                if kind == "all_reduce":
                    dist.all_reduce(torch.ones(4))
                else:
                    model(batch(step, rank)).square().mean().backward()
        except Exception as error:  # noqa: BLE001 - DDP makes others of them
            return time.monotonic() - started, str(error)
        return None, "nothing was raised"

    (seconds, said), other = on_ranks(body, group=False, mortal=True)
    assert other == "ended"
    assert "rank 1 is lost" in said
    assert seconds < 60
