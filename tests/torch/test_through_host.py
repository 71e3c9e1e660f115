"""The backend for tensors on a device, with a device whose copies are late: `ThroughHost`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
pytest.importorskip("allrail.torch.backend", reason="the backend needs torch 2.6")

import torch.distributed as dist  # noqa: E402

from allrail.base.errors import InputError  # noqa: E402
from allrail.torch.through_host import ThroughHost  # noqa: E402
from gpu.place import Late  # noqa: E402


def through(delay=0.01):
    return ThroughHost(dist.new_group(backend="allrail"), Late(delay))


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def summed():
    return options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.SUM)


def test_results_are_there_when_a_work_was_waited_for(on_ranks):
    def body(rank):
        device = through()
        transposed = torch.full((5, 3), rank + 1.0).t()
        device.allreduce([transposed], summed()).wait()
        whole = torch.zeros(10)
        every_second = whole[::2]
        every_second += rank + 1
        device.allreduce([every_second], summed()).wait()
        rows = [[torch.zeros(3) for _ in range(2)]]
        device.allgather(rows, [torch.full((3,), float(rank))]).wait()
        root = options(dist.BroadcastOptions, rootRank=1)
        given = torch.full((4,), float(rank))
        device.broadcast([given], root).wait()
        part = torch.zeros(2)
        device.reduce_scatter_single(part, torch.arange(4.0) + rank, summed()).wait()
        sent = torch.arange(3.0 + rank)
        split = [1, 2] if rank == 0 else [2, 2]
        received = torch.empty(3 + rank)
        device.all_to_all_single(received, sent, split, split).wait()
        device.barrier().wait()
        return (
            transposed.unique().tolist(),
            whole.tolist(),
            [row.tolist() for row in rows[0]],
            given.tolist(),
            part.tolist(),
            received.tolist(),
        )

    for rank, found in enumerate(on_ranks(body)):
        summed_up, whole, rows, given, part, received = found
        assert summed_up == [3.0]
        assert whole == [3.0, 0.0] * 5, "what lies between stays"
        assert rows == [[0.0] * 3, [1.0] * 3]
        assert given == [1.0] * 4
        assert part == ([1.0, 3.0] if rank == 0 else [5.0, 7.0])
        assert received == ([0.0, 0.0, 1.0] if rank == 0 else [1.0, 2.0, 2.0, 3.0])


def test_a_future_has_the_tensors_of_the_device_and_a_message_arrives(on_ranks):
    def body(rank):
        device = through()
        tensor = torch.full((3,), rank + 1.0)
        found = device.allreduce([tensor], summed()).get_future().wait()
        assert found[0] is tensor
        message = torch.full((2,), 7.0 * (1 - rank))
        if rank == 0:
            device.send([message], 1).wait()
        else:
            device.recv([message], 0).wait()
        return tensor.tolist(), message.tolist()

    assert on_ranks(body) == [([3.0] * 3, [7.0] * 2)] * 2


def test_an_asynchronous_call_waits_for_no_other_rank(on_ranks):
    def body(rank):
        device = through()
        tensor = torch.full((3,), rank + 1.0)
        if rank == 0:
            work = device.allreduce([tensor], summed())
            before = work.is_completed()
            dist.barrier()  # rank 1 calls only now
        else:
            dist.barrier()
            before = False
            work = device.allreduce([tensor], summed())
        work.wait()
        return before, tensor.tolist()

    assert on_ranks(body) == [(False, [3.0] * 3)] * 2


def test_a_mistake_is_told_at_the_call_and_the_group_lives_on(on_ranks):
    def body(rank):
        device = through()
        with pytest.raises(InputError):
            device.reduce_scatter_single(torch.zeros(2), torch.zeros(5), summed())
        tensor = torch.ones(2)
        device.allreduce([tensor], summed()).wait()
        return tensor.tolist()

    assert on_ranks(body) == [[2.0] * 2] * 2
