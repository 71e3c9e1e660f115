"""Sparse gradients travel as rows: what `DistributedDataParallel` makes of them, bit for bit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402

STEPS = 5


class Words(nn.Module):
    """Two tables, of which some steps use one only, and something dense."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(50, 8, sparse=True)
        self.bags = nn.EmbeddingBag(30, 8, mode="sum", sparse=True)
        self.out = nn.Linear(8, 4)

    def forward(self, words, bags):
        x = self.words(words).sum(1)
        return self.out(x if bags is None else x + self.bags(bags))


def batch(step, rank, *, idle=False):
    """Ranks bring another number of rows each; the second table may be idle on rank 1."""
    drawn = torch.Generator().manual_seed(100 * step + rank)
    words = torch.randint(0, 50, (4, 2 + rank + step % 2), generator=drawn)
    bags = torch.randint(0, 30, (4, 3), generator=drawn)
    return words, None if idle and step in (2, 3) and rank == 1 else bags


def sgd(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


def adam(model):
    tables = [*model.words.parameters(), *model.bags.parameters()]
    return [
        torch.optim.SparseAdam(tables, lr=0.01),
        torch.optim.Adam(model.out.parameters(), lr=0.01),
    ]


OPTIMIZERS = {"sgd": sgd, "adam": adam}


def train(model, optimizers, called, rank, passes=1, *, idle=False):
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in range(passes):
            called(*batch(step + 10 * part, rank, idle=idle)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    art.synchronize()
    return [each.detach().clone() for each in model.parameters()]


def ours_and_ddps(rank, optimizers_of, transport, passes):
    model = Words()
    optimizers = OPTIMIZERS[optimizers_of](model)
    called = nn.parallel.DistributedDataParallel(model)
    expected = train(model, optimizers, called, rank, passes)
    model = Words()
    optimizers = OPTIMIZERS[optimizers_of](model)
    art.schedule(model, optimizers, sparse="gather", transport=transport)
    got = train(model, optimizers, model, rank, passes)
    assert model.words.weight.grad.layout == torch.sparse_coo
    assert model.words.weight.grad.is_coalesced()
    return [torch.equal(*both) for both in zip(expected, got, strict=True)]


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("transport", ["native", "c10d"])
@pytest.mark.parametrize("optimizers_of", OPTIMIZERS)
def test_they_equal_those_of_ddp(optimizers_of, transport, passes, ranks_of):
    for equal in ranks_of(ours_and_ddps)(optimizers_of, transport, passes):
        assert all(equal), equal


def of_three(rank):
    """One has nothing for a table in some steps, which DDP refuses."""
    model = Words()
    optimizers = sgd(model)
    art.schedule(model, optimizers, sparse="gather", compression="power_sgd")
    return train(model, optimizers, model, rank, idle=True)


def test_three_ranks_have_the_mean(on_ranks):
    values = on_ranks(of_three, ranks=3)
    for theirs in values[1:]:
        assert all(torch.equal(*both) for both in zip(values[0], theirs, strict=True))
    model = Words()  # one process with all ranks' data, and dense gradients
    model.words.sparse = model.bags.sparse = False
    [optimizer] = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(3):
            (model(*batch(step, rank, idle=True)).square().mean() / 3).backward()
        optimizer.step()
    for got, right in zip(values[0], model.parameters(), strict=True):
        torch.testing.assert_close(got, right.detach(), rtol=0, atol=1e-6)


def never_on_the_other(rank):
    """What only rank 0 uses, in some steps; what nobody uses in the last keeps no gradient."""
    table = nn.Embedding(20, 4, sparse=True)
    torch.nn.init.ones_(table.weight)
    other = nn.Linear(4, 4)
    torch.nn.init.ones_(other.weight)
    model = nn.ModuleList([table, other])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    art.schedule(model, optimizer, sparse="gather")
    seen = []
    for step in range(3):
        optimizer.zero_grad()
        x = table(torch.tensor([step])) if rank == 0 and step < 2 else torch.ones(1, 4)
        other(x).sum().backward()
        seen.append(table.weight.grad is not None)
        optimizer.step()
    art.synchronize()
    return seen, table.weight.detach()


def test_a_table_that_one_rank_uses_is_stepped_on_all(on_ranks):
    (seen, one), (also_seen, other) = on_ranks(never_on_the_other)
    assert seen == also_seen == [True, True, False]
    assert torch.equal(one, other)
    assert not torch.equal(one[:2], torch.ones(2, 4))
    assert torch.equal(one[2:], torch.ones(18, 4))


def late(rank):
    """A table that no rank has used in the first step."""
    model = Words()
    [optimizer] = sgd(model)
    art.schedule(model, optimizer, sparse="gather")
    words, bags = batch(0, rank)
    model(words, None).sum().backward()
    try:
        model(words, bags).sum().backward()
    except art.TrainingError as error:
        return str(error)
    return "nothing was raised"


def test_a_table_that_nobody_used_in_the_first_step_is_an_error(on_ranks):
    for said in on_ranks(late):
        assert "`bags.weight`: its gradient is sparse, and no rank's was in the first step" in said
