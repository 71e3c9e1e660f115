"""Gradients travel in packs of any size, and training stays what DDP makes it, bit for bit."""

from __future__ import annotations

import contextlib
import copy
import random

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.torch.behaviour import types_stepped_together  # noqa: E402
from allrail.torch.packs import cut  # noqa: E402
from allrail.torch.parameter import Slot  # noqa: E402

STEPS = 7
SIZES = ("0 B", "700 B", "3 KiB", "1 MiB", "1 GiB")


def job(size):
    """A job file in which packs have this size."""
    return {"schema_version": 1, "schedule": {"tensor": {"pack": size}}}


class Drawn(nn.Module):
    """Layers of drawn sizes and types; which of them a rank uses is drawn in every pass."""

    def __init__(self, chance):
        super().__init__()
        layers = []
        for _ in range(chance.randint(3, 12)):
            width = chance.choice([3, 8, 8, 24])
            kind = chance.choice(["linear", "linear", "norm", "scale"])
            dtype = chance.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
            made = {
                "linear": nn.Sequential(nn.Linear(8, width), nn.Linear(width, 8)),
                "norm": nn.LayerNorm(8),
                "scale": Scale(),
            }
            layers.append(made[kind].to(dtype))
        self.layers = nn.ModuleList(layers)
        self.last = nn.Linear(8, 4)
        self.use = [True] * len(layers)

    def forward(self, x):
        for layer, used in zip(self.layers, self.use, strict=True):
            if used:
                dtype = next(layer.parameters()).dtype
                x = x + F.gelu(layer(x.to(dtype))).to(x.dtype)
        return self.last(x)


class Scale(nn.Module):
    """One number, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.by, self.never = (nn.Parameter(torch.ones(())) for _ in range(2))

    def forward(self, x):
        return x * self.by


def optimizer_of(model, chance):
    """One of several kinds, with decay for some parameters only: their groups alternate."""
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    kind = chance.choice([torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
    more = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    return kind(groups, lr=0.01, **more)


def train(model, called, optimizer, no_sync, rank, seed):
    """Steps with drawn uses, accumulation, clipping, and gradients that the script removes."""
    ours, alike = random.Random(f"{seed} {rank}"), random.Random(f"{seed}")
    for step in range(STEPS):
        passes = alike.choice([1, 1, 2, 3])
        to_none = alike.random() < 0.6
        clips, drops = alike.random() < 0.3, alike.random() < 0.2
        early = alike.random() < 0.5
        if early:
            optimizer.zero_grad(set_to_none=to_none)
        for number in range(passes):
            model.use = [ours.random() < 0.6 for _ in model.layers]
            generator = torch.Generator().manual_seed(100 * step + 10 * number + rank)
            x = torch.randn(4, 8, generator=generator)
            with no_sync() if number + 1 < passes else contextlib.nullcontext():
                called(x).square().mean().backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if drops:
            alike.choice(list(model.parameters())).grad = None
        optimizer.step()
        if not early:
            optimizer.zero_grad(set_to_none=to_none)
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()), gradients


def same(one, other):
    """Whether two trees of tensors have the same bits."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def compare(rank, seed, sizes, transport):
    """Train by DDP, and in packs of every size; return sizes whose results differ."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    start = Drawn(chance)
    kind = chance.random()

    def by_ddp():
        model = copy.deepcopy(start)
        ddp = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        optimizer = optimizer_of(model, random.Random(kind))
        return train(model, ddp, optimizer, ddp.no_sync, rank, seed)

    def by_packs(size):
        model = copy.deepcopy(start)
        optimizer = optimizer_of(model, random.Random(kind))
        art.schedule(model, optimizer, job=job(size), transport=transport)
        found = train(model, model, optimizer, lambda: art.no_sync(model), rank, seed)
        packs = [len(pack.slots) for pack in art._of(model)[0].exchange.packs]
        art.release(model)
        return found, packs

    expected, wrong, counts = by_ddp(), [], []
    for size in sizes:
        found, packs = by_packs(size)
        counts.append(packs)
        wrong += [] if same(found, expected) else [size]
    return wrong, counts


@pytest.mark.parametrize("seed", range(6))
def test_packs_of_any_size_train_as_ddp_does(seed, ranks_of):
    for wrong, counts in ranks_of(compare)(seed, SIZES, "native"):
        assert wrong == []
        assert max(counts[0]) == 1  # 0 packs nothing
        assert len(counts[-1]) < len(counts[1]) <= len(counts[0])


@pytest.mark.parametrize("seed", range(20, 23))
def test_packs_over_process_groups_train_as_ddp_does(seed, ranks_of):
    for wrong, _ in ranks_of(compare)(seed, SIZES[2:4], "c10d"):
        assert wrong == []


def slots_of(*tensors):
    """Slots of parameters that nobody exchanges."""
    nothing = [lambda *_: None] * 3
    return [
        Slot(nn.Parameter(tensor), str(index), index, *nothing)
        for index, tensor in enumerate(tensors)
    ]


def test_packs_are_full_before_the_next_begins_and_large_tensors_go_alone():
    sizes = [10, 20, 1000, 30, 50, 5]
    slots = slots_of(*(torch.zeros(size) for size in sizes))
    packs = cut(slots, 240, hides=True)
    assert [[slot.index for slot in pack.slots] for pack in packs] == [[2], [0, 1, 3], [4, 5]]
    assert [pack.name for pack in packs] == ["2", "0 and 2 more", "4 and 1 more"]


def test_a_pack_has_one_type_and_what_may_come_twice_is_apart():
    kinds = [torch.float32, torch.float64, torch.float32, torch.float64, torch.float32]
    slots = slots_of(*(torch.zeros(4, dtype=kind) for kind in kinds))
    slots[2].late = True
    packs = cut(slots, 1 << 20, hides=True)
    assert [[slot.index for slot in pack.slots] for pack in packs] == [[2], [1, 3], [0, 4]]
    assert [pack.late for pack in packs] == [True, False, False]


def test_a_pack_leaves_with_its_last_gradient_and_is_as_urgent_as_its_most_urgent(on_ranks):
    def body(rank):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer, job=job("600 B"))
        scheduled = art._of(model)[0]
        sent = []

        def step():
            model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        art.synchronize(model)
        for number, layer in enumerate(model):
            layer.weight.register_post_accumulate_grad_hook(
                lambda _, number=number: sent.append(
                    (number, [pack.sent for pack in scheduled.exchange.packs])
                )
            )
        step()
        places = {row["name"]: row["place"] for row in scheduled.observed.watched.tensors}
        return sent, places

    for sent, places in on_ranks(body):
        # Gradients come from the last layer on; two layers share a pack.
        assert sent[-1][1] == [True, True]
        assert dict(sent)[2] in ([True, False], [False, False])
        assert dict(sent)[3] == [False, False]
        assert min(places.values()) == 0
        assert sorted(places.values())[1] in (3, 4)


def test_one_module_of_a_pack_waits_and_others_may_be_entered_first(on_ranks):
    def body(rank):
        torch.manual_seed(0)
        start = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
        found = []
        for ours in (False, True):
            model = copy.deepcopy(start)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            called, hooks = model, []
            if ours:
                art.schedule(model, optimizer, job=job("240 B"))
            else:
                called = nn.parallel.DistributedDataParallel(model)
            for number in range(5):
                x = torch.full((2, 4), rank + number + 1.0)
                # Its parameters travel with those of a layer that this does not call.
                found.append(model[number % 6](x).detach().clone())
                called(x).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                hooks.append([len(layer._forward_pre_hooks) for layer in model])
            if ours:
                art.release(model)
        return hooks, [bool(torch.equal(*pair)) for pair in zip(found[:5], found[5:], strict=True)]

    for hooks, same in on_ranks(body):
        assert hooks == [[1, 0, 0, 1, 0, 0]] * 5
        assert all(same)


def test_ranks_whose_packs_differ_are_told_so(on_ranks):
    def body(rank):
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            art.schedule(model, optimizer, job=job(f"{rank + 1} KiB"))
        except Exception as error:  # noqa: BLE001 - what it is, is looked at
            return type(error).__name__, str(error)
        return "nothing", ""

    for kind, said in on_ranks(body):
        assert kind == "InputError"
        assert "pack" in said


def test_a_gradient_that_is_kept_beyond_its_step_stays_as_it_was(on_ranks):
    """A pack's memory is used again in every round; what the script holds is not in it."""

    def body(rank):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        held = []
        for number in range(4):
            model(torch.full((1, 4), number + rank + 1.0)).sum().backward()
            held.append((model[0].weight.grad, model[0].weight.grad.clone()))
            optimizer.step()
            optimizer.zero_grad()
        art.synchronize(model)
        return [bool(torch.equal(*each)) for each in held]

    for each in on_ranks(body):
        assert each == [True] * 4


def test_a_pass_that_comes_while_a_pack_is_under_way_adds_to_the_mean(on_ranks):
    """Two synchronised passes without a step between them, as `DistributedDataParallel` adds."""

    def body(rank):
        torch.manual_seed(0)
        start = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        found = []
        for ours in (False, True):
            model = copy.deepcopy(start)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            called = model
            if ours:
                art.schedule(model, optimizer)
            else:
                called = nn.parallel.DistributedDataParallel(model)
            for _ in range(3):
                for number in range(2):
                    called(torch.full((1, 4), rank + number + 1.0)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append([each.clone() for each in model.state_dict().values()])
            if ours:
                art.release(model)
        return [bool(torch.equal(*pair)) for pair in zip(*found, strict=True)]

    for each in on_ranks(body):
        assert all(each)


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        (torch.optim.SGD, {"momentum": 0.9}, {torch.float32}),
        (torch.optim.AdamW, {}, {torch.float32}),
        (torch.optim.SGD, {"foreach": False}, set()),
        (torch.optim.AdamW, {"fused": True}, set()),
        (torch.optim.SparseAdam, {}, set()),
    ],
)
def test_steps_are_made_together_only_where_that_changes_no_bit(kind, settings, expected):
    # Of torch 2.15, a product with a number rounds otherwise in `bfloat16`, so momentum does.
    types = [torch.float32] * 3 + [torch.bfloat16] * 3
    parameters = [nn.Parameter(torch.randn(3, 3).to(dtype)) for dtype in types]
    found = types_stepped_together(kind(parameters, lr=0.1, **settings))
    assert found - {torch.bfloat16} == expected


def test_an_optimizer_whose_foreach_steps_give_other_bits_is_left_alone():
    class Odd(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    by = 1.0000001 if group["foreach"] else 1.0
                    parameter.sub_(parameter.grad, alpha=group["lr"] * by)

    parameters = [nn.Parameter(torch.randn(3, 3)) for _ in range(3)]
    assert not types_stepped_together(Odd(parameters, lr=0.1))
