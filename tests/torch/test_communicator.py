"""`allrail.Communicator` in a job that torchrun has started: the store is torch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import allrail  # noqa: E402


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with a process group"])
def test_ranks_find_each_other_through_the_store_of_torch(group, on_ranks):
    def body(rank):
        with allrail.Communicator() as communicator:
            tensor = torch.full((3,), float(rank), dtype=torch.bfloat16)
            averaged = communicator.all_reduce(tensor, op="average", name="x").wait()
            assert averaged is tensor
        return tensor.tolist()

    assert on_ranks(body, group=group) == [[0.5] * 3] * 2
