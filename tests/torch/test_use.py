"""Where a parameter is waited for: at the entry of each module that uses it, and of no other."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from allrail.torch.parameter import Slot  # noqa: E402
from allrail.torch.used import Recorder, entries, places  # noqa: E402


def nothing(*_):
    pass


def waits(model, *inputs):
    """Run the model once; return who waits for what, by name, and the parameters by turn."""
    slots = {
        parameter: Slot(parameter, name, index, nothing, nothing, nothing)
        for index, (name, parameter) in enumerate(model.named_parameters())
    }
    recorder = None
    if inputs:
        recorder = Recorder(model, slots)
        recorder.start()
        try:
            model(*inputs)
        finally:
            recorder.stop()
    found = entries(model, slots, recorder)
    names = {module: name for name, module in model.named_modules()}
    turns = places(found, len(slots))
    by_turn = sorted((turns[slot.index], slot.name) for slot in slots.values())
    return (
        {names[module]: {slot.name for slot in held} for module, held in found.items()},
        [name for _, name in by_turn],
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.second, self.first = nn.Linear(4, 4), nn.Linear(4, 4)
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.second(self.first(x)) * self.gain


def test_modules_wait_for_their_own_in_the_order_of_use():
    found, order = waits(nn.Sequential(Block(), nn.Linear(4, 2)), torch.ones(1, 4))
    assert found == {
        "0": {"0.gain"},
        "0.first": {"0.first.weight", "0.first.bias"},
        "0.second": {"0.second.weight", "0.second.bias"},
        "1": {"1.weight", "1.bias"},
    }
    # A parameter is as urgent as the module that waits for it, however late it is used there.
    assert order[0] == "0.gain"
    assert order[1:3] == ["0.first.weight", "0.first.bias"]
    assert order[-2:] == ["1.weight", "1.bias"]


def test_what_an_attention_uses_without_a_call_is_waited_for_where_it_is_used():
    model = nn.MultiheadAttention(8, 2)
    x = torch.randn(3, 1, 8)
    found, _ = waits(model, x, x, x)
    assert {"out_proj.weight", "out_proj.bias"} <= found[""]


class Borrowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lists = nn.ParameterList([torch.ones(4)])
        self.owner, self.user = nn.Linear(4, 4), nn.Module()
        self.user.forward = self.use

    def use(self, x):
        return F.linear(x, self.owner.weight.T)

    def forward(self, x):
        return self.user(x * self.lists[0])


def test_borrowed_parameters_are_waited_for_by_their_users():
    found, _ = waits(Borrowed(), torch.ones(1, 4))
    assert "owner.weight" in found["user"]
    assert "lists.0" in found[""]
    # What nobody was seen to use: at its owner, and around it, since the owner was never called.
    assert "owner.bias" in found["owner"]
    assert "owner.bias" in found[""]


def test_without_a_forward_pass_owners_wait():
    found, _ = waits(nn.Sequential(Block()))
    assert found["0"] == {"0.gain"}
    assert found["0.first"] == {"0.first.weight", "0.first.bias"}


def test_a_pass_that_fails_leaves_nothing_behind():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            self.inner(x)
            raise ArithmeticError

    model = Fails()
    with pytest.raises(ArithmeticError):
        waits(model, torch.ones(1, 4))
    assert not model.inner._forward_pre_hooks
    assert not model.inner._forward_hooks
    assert torch.overrides._len_torch_function_stack() == 0


def test_two_users_of_one_parameter_both_wait():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.out = nn.Embedding(6, 4), nn.Linear(4, 6)
            self.out.weight = self.embedding.weight

        def forward(self, x):
            return self.out(self.embedding(x))

    found, _ = waits(Tied(), torch.zeros(1, dtype=torch.int64))
    assert "embedding.weight" in found["embedding"]
    assert "embedding.weight" in found["out"]


def test_a_compiled_region_waits_for_all_it_holds():
    model = nn.Sequential(Block(), nn.Linear(4, 2))
    model[0].compile(backend="eager")
    found, order = waits(model)
    assert found["0"] == {name for name in order if name.startswith("0.")}
    assert "0.first" not in found
