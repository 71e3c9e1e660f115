"""Compiled modules keep their graphs whole, and wait for all they hold at their entry."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch._dynamo.testing  # noqa: E402, F811
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402

STEPS = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(3)])
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.blocks(x))


def train(rank, compile_model, *, way="art", compile_after=None):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    torch.manual_seed(0)
    model = compile_model(Model(), counter)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    called = model
    if way == "ddp":
        called = nn.parallel.DistributedDataParallel(model)
    else:
        art.schedule(model, optimizer)
    if compile_after is not None:
        called = compile_after(model, counter)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + rank))
        called(x).square().mean().backward()
        optimizer.step()
    barriers = art.barriers(model)
    art.synchronize()
    values = [each.detach().numpy() for each in model.parameters()]
    art.release(model)
    return values, counter.frame_count, barriers


def whole(model, counter):
    return torch.compile(model, backend=counter, fullgraph=True)


def whole_in_place(model, counter):
    model.compile(backend=counter, fullgraph=True)
    return model


def blocks(model, counter):
    for place, block in enumerate(model.blocks):
        model.blocks[place] = torch.compile(block, backend=counter, fullgraph=True)
    return model


def blocks_in_place(model, counter):
    for block in model.blocks:
        block.compile(backend=counter, fullgraph=True)
    return model


def as_it_is(model, counter):
    return model


def after(model, counter):
    return torch.compile(model, backend=counter)


# What is compiled, before or after it is scheduled; whether that costs neither graphs nor barriers.
CASES = {
    "whole": (whole, None, True),
    "whole, in place": (whole_in_place, None, True),
    "blocks": (blocks, None, True),
    "blocks, in place": (blocks_in_place, None, True),
    "compiled after it was scheduled": (as_it_is, after, False),
}


@pytest.mark.parametrize("name", CASES)
def test_compiled(name, ranks_of, whole_graphs):
    if CASES[name][2]:
        whole_graphs()
    for (expected, _, _), (got, graphs, barriers), graphs_alone in ranks_of(both)(name):
        if CASES[name][2]:
            assert barriers == {}
            assert graphs == graphs_alone
        for left, right in zip(expected, got, strict=True):
            assert (left == right).all()


def both(rank, name):
    compile_model, compile_after, _ = CASES[name]
    expected = train(rank, as_it_is, way="ddp")
    got = train(rank, compile_model, compile_after=compile_after)
    counter = torch._dynamo.testing.CompileCounter()
    torch._dynamo.reset()
    alone = compile_model(Model(), counter)
    for _ in range(2):
        alone(torch.ones(8, 16)).sum().backward()
    return expected, got, counter.frame_count


# -- compiled steps


def stepped(rank, kind, way):
    """Train with a step compiled before the model is scheduled, after, or with all else."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    called = nn.parallel.DistributedDataParallel(model) if way == "ddp" else model
    step = torch.compile(optimizer.step, backend="aot_eager") if kind == "before" else None
    if way == "art":
        art.schedule(model, optimizer)
        art._of(model)[0]._transport.is_done = lambda *_: False
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def train_step(x):
        optimizer.zero_grad()
        called(x).square().mean().backward()
        optimizer.step()

    if kind == "after":
        step = torch.compile(optimizer.step, backend="aot_eager")
    elif kind == "with all else":
        train_step = torch.compile(train_step, backend="aot_eager")
    for number in range(STEPS):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * number + rank))
        if step is None:
            train_step(x)
        else:
            optimizer.zero_grad()
            called(x).square().mean().backward()
            step()
        schedule.step()
    art.synchronize()
    values = [each.detach().double().numpy().tolist() for each in model.parameters()]
    art.release(model)
    return values


def stepped_both_ways(rank, kind, oracle):
    return stepped(rank, oracle, "ddp"), stepped(rank, kind, "art")


@pytest.mark.parametrize(
    ("kind", "oracle"),
    [("before", "before"), ("after", "as it is"), ("with all else", "as it is")],
)
def test_a_compiled_step(kind, oracle, ranks_of):
    """Compiled before, it is as under DDP; afterwards it runs as it is, without being compiled."""
    for expected, got in ranks_of(stepped_both_ways)(kind, oracle):
        assert got == expected
