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


def test_a_program_of_one_s_own_gives_the_same_weights(on_ranks, tmp_path):
    torch.set_num_threads(1)
    step = (
        '<step s="{}" type="{}" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" '
        'depid="-1" deps="-1" hasdep="0"/>'
    )
    gpus = [
        f'<gpu id="{one}"><tb id="0" send="{1 - one}" recv="{1 - one}" chan="0">'
        f"{step.format(0, 's')}{step.format(1, 'rrc')}</tb></gpu>"
        for one in range(2)
    ]
    (tmp_path / "swap.xml").write_text(
        '<algo ngpus="2" nchunksperloop="1" coll="allreduce" inplace="1">'
        + "".join(gpus)
        + "</algo>"
    )
    job = tmp_path / "allrail.yaml"
    job.write_text("schema_version: 1\nschedule: {algorithms: [swap.xml]}\n")
    own = on_ranks(lambda rank: train(rank, transport="native", job=job))
    ours = on_ranks(lambda rank: train(rank, transport="native"))
    assert own == ours
    assert own[0] == own[1]
