"""What every transport promises, and what is special of each."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from allrail.base.errors import TrainingError  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.torch.native import Native  # noqa: E402
from allrail.torch.ordered import Ordered  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402
from allrail.torch.transport import in_memory_order, is_dense  # noqa: E402
from allrail.torch.whole import Whole  # noqa: E402


def native(agreement, rank):
    return Native(rank, 2, agreement)


def whole(agreement, rank):
    return Whole(agreement)


def ordered(agreement, rank):
    return Ordered(rank, 2, agreement)


every = pytest.mark.parametrize("make", [native, ordered, whole], ids=["native", "c10d", "plain"])


def made(make, rank):
    store, _, ranks = store_of_job()
    return make(Agreement(store, rank, ranks, "test"), rank)


def register(transport, *tensors):
    for number, tensor in enumerate(tensors):
        key = transport.register(
            f"tensor {number}", tensor.dtype, tuple(tensor.shape), tensor.stride(), number
        )
        assert key == number or not isinstance(transport, Whole)
        yield key


@every
def test_sums_generation_by_generation(make, on_ranks):
    def body(rank):
        transport = made(make, rank)
        tensors = [
            torch.arange(6.0).view(2, 3).t() * (rank + 1),  # dense, in another order
            torch.full((1000,), rank + 1, dtype=torch.bfloat16),
            torch.tensor(rank + 1.0, dtype=torch.float64),
            torch.tensor([rank, 5], dtype=torch.int32),
        ]
        keys = list(register(transport, *tensors))
        transport.start()
        for generation in range(3):
            mine = [each.clone() for each in tensors]
            order = range(4) if rank == 0 else reversed(range(4))  # every rank in its own
            for place in order:
                assert transport.submit(keys[place], mine[place]) == generation
            for place in range(4):
                transport.wait(keys[place], generation)
                transport.wait(keys[place], generation)  # again, and at once
                assert transport.is_done(keys[place], generation)
            assert torch.equal(mine[0], torch.arange(6.0).view(2, 3).t() * 3)
            assert torch.equal(mine[1], torch.full((1000,), 3, dtype=torch.bfloat16))
            assert mine[2] == 3
            assert mine[3].tolist() == [1, 10]
        transport.close()
        return True

    assert all(on_ranks(body))


@every
def test_who_has_nothing_gets_what_others_have(make, on_ranks):
    def body(rank):
        transport = made(make, rank)
        tensor = torch.full((5,), 7.0)
        [key] = register(transport, tensor)
        transport.start()
        (transport.unused if rank == 0 else transport.submit)(key, tensor)
        transport.wait(key, 0)
        transport.close()
        return tensor.tolist()

    assert on_ranks(body) == [[7.0] * 5] * 2


@every
def test_broadcasts_what_rank_0_has(make, on_ranks):
    def body(rank):
        transport = made(make, rank)
        tensors = [
            torch.arange(6).view(2, 3).t() + rank,
            torch.tensor([rank == 0, True]),
            torch.empty(0),
            torch.tensor(rank + 1.5, dtype=torch.float64),
        ]
        transport.broadcast(tensors)
        transport.close()
        return [each.tolist() for each in tensors]

    expected = [[[0, 3], [1, 4], [2, 5]], [True, True], [], 1.5]
    assert on_ranks(body) == [expected, expected]


@every
def test_autograd_learns_that_a_tensor_was_written_to(make, on_ranks):
    def body(rank):
        transport = made(make, rank)
        tensor = torch.ones(4)
        [key] = register(transport, tensor)
        transport.start()
        weight = torch.ones(4, requires_grad=True)
        product = (weight * tensor).sum()  # keeps `tensor` for its backward pass
        transport.submit(key, tensor)
        transport.wait(key, 0)
        transport.close()
        try:
            product.backward()
        except RuntimeError as error:
            return str(error)
        return "a wrong gradient"

    for said in on_ranks(body):
        assert "modified by an inplace operation" in said


def test_the_plain_transport_says_what_it_waits_for(on_ranks):
    def body(rank):
        transport = made(whole, rank)
        first, second = torch.ones(2), torch.ones(2)
        register_all = list(register(transport, first, second))
        transport.submit(register_all[1], second)
        assert not transport.is_done(1, 0)
        try:
            transport.wait(1, 0)
        except TrainingError as error:
            said = str(error)
        transport.submit(0, first)
        transport.wait(1, 0)
        return said, second.tolist()

    for said, second in on_ranks(body):
        assert "`tensor 1`: its exchange is waited for before it could begin" in said
        assert "it goes after `tensor 0`" in said
        assert second == [2, 2]


def test_dense_layouts(on_ranks):
    assert on_ranks(dense_layouts, ranks=1, group=False) == [None]


def dense_layouts(rank):
    plain = torch.arange(24.0).view(2, 3, 4)
    for tensor in (plain, plain.permute(2, 0, 1), plain[:1], torch.ones(()), torch.ones(0, 3)):
        assert is_dense(tensor)
    for tensor in (plain[:, :2], plain[..., ::2], torch.ones(3).expand(2, 3)):
        assert not is_dense(tensor)
    assert not is_dense(torch.ones(2).to_sparse())
    across = plain.permute(2, 0, 1)
    assert in_memory_order(across).tolist() == list(range(24))
    assert in_memory_order(across).data_ptr() == plain.data_ptr()
