"""Staging through host memory, with a slow device in memory: no use before its event."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from allrail.base.errors import TrainingError  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.torch.native import Native  # noqa: E402
from allrail.torch.staging import Staged  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402
from gpu.place import Late  # noqa: E402


def made(rank, name):
    store, _, ranks = store_of_job()
    device = Late()
    return Staged(Native(rank, ranks, Agreement(store, rank, ranks, name)), device), device


def exchanges(rank):
    staged, device = made(rank, "staged")
    weights = [torch.full((5,), rank + 3.0), torch.full((2, 3), rank + 1.0)]
    staged.broadcast(weights)
    device.settle()
    assert weights[0].tolist() == [3.0] * 5
    assert weights[1].tolist() == [[1.0] * 3] * 2
    shapes = [(1000,), (30, 40), (7,)]
    keys = [
        staged.register(f"tensor {i}", torch.float32, shape, torch.empty(shape).stride(), i)
        for i, shape in enumerate(shapes)
    ]
    staged.start()
    made_before = len(device.made)
    for step in range(4):
        tensors = [torch.full(shape, 10.0 * step + i + rank) for i, shape in enumerate(shapes)]
        device.stream.runs.clear()
        under_way = []
        for key, tensor in reversed(list(zip(keys, tensors, strict=True))):
            unused = (rank, key, step) == (1, keys[1], 2)
            begin = staged.unused if unused else staged.submit
            under_way.append((key, begin(key, tensor)))
        assert not staged.is_done(*under_way[-1]), "it returns before anything is copied"
        device.stream.runs.set()
        for key, generation in under_way:
            assert generation == step
            staged.wait(key, generation)
            assert staged.is_done(key, generation)
        device.settle()
        for i, tensor in enumerate(tensors):
            mine = [10.0 * step + i + each for each in range(2)]
            total = mine[0] if (i, step) == (1, 2) else sum(mine)
            assert (tensor == total).all(), (step, i, tensor.flatten()[:3], total)
    assert len(device.made) == made_before + len(keys), "one buffer a tensor, in all steps"
    rows = torch.zeros(2, 3)
    rows[rank] = rank + 1.0
    staged.gathered(staged.gather(rows))
    assert rows.tolist() == [[1.0] * 3, [2.0] * 3]
    staged.close()
    return [each.name for each in threading.enumerate() if each.name == "allrail staging"]


def test_sums_are_right_however_late_copies_are(on_ranks):
    assert on_ranks(exchanges) == [[], []], "no thread is left"


def test_autograd_is_told_that_a_gradient_was_written(on_ranks):
    def body(rank):
        staged, device = made(rank, "version")
        tensor = torch.ones(4)
        key = staged.register("tensor", tensor.dtype, (4,), (1,), 0)
        staged.start()
        before = tensor._version
        staged.wait(key, staged.submit(key, tensor))
        device.settle()
        staged.close()
        return tensor._version > before

    assert all(on_ranks(body))


def test_a_copy_that_fails_is_raised_where_it_is_waited_for():
    class Native:
        rank = ranks = settings = report = timeline = register = start = None

        def close(self):
            pass

        def submit(self, key, buffer):
            raise TrainingError("rank 1 is lost")

    staged = Staged(Native(), Late(0.0))
    generation = staged.submit(0, torch.ones(2))
    with pytest.raises(TrainingError, match="rank 1 is lost"):
        staged.wait(0, generation)
    assert staged.is_done(0, generation)
    staged.close()
