"""`allrail.torch.schedule` where `allrail launch` has started the ranks, and not torchrun."""

from __future__ import annotations

import tempfile

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch._dynamo  # noqa: E402, F811 - seconds, and DDP would import it in every child

import allrail.torch as art  # noqa: E402


def train(rank, **options):
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer, **options)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 4) * rank).sum().backward()
        optimizer.step()
    art.synchronize(model)
    weight = model.weight.tolist()
    art.release(model)
    return weight


@pytest.mark.parametrize("way", ["native", "c10d", "disabled"])
def test_it_needs_no_torchrun(way, on_ranks, monkeypatch, tmp_path):
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    if way == "disabled":
        monkeypatch.setenv("ALLRAIL_DISABLE", "1")
    options = {} if way == "disabled" else {"transport": way}
    one, other = on_ranks(lambda rank: train(rank, **options))
    assert one == other
