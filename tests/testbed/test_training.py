"""Real training over shaped links: four workers learn what one learns from all their data."""

from __future__ import annotations

import os
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
import testbed.local  # noqa: E402, F401 - imports what every worker would
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.torch import replan, speeds  # noqa: E402
from allrail.torch.native import Native  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402
from testbed import Cluster, Network, why_not  # noqa: E402
from testbed.namespaces import configure  # noqa: E402

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
torch.set_num_threads(1)

APART = {"shared_memory": False}
"""Workers share a host, and stand for hosts of their own."""

WORKERS, STEPS, WORDS, LENGTH = 4, 12, 17, 8


class Mlp(nn.Module):
    """Learns the sine of a sum."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )

    def loss(self, step, worker):
        chance = torch.Generator().manual_seed(100 * step + worker)
        values = torch.rand(16, 8, generator=chance)
        wanted = values.sum(dim=1, keepdim=True).sin()
        return nn.functional.mse_loss(self(values), wanted)

    def forward(self, values):
        return self.layers(values)


class Transformer(nn.Module):
    """Learns to count, from a number that the first word says."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def loss(self, step, worker):
        chance = torch.Generator().manual_seed(100 * step + worker)
        first = torch.randint(WORDS, (4, 1), generator=chance)
        text = (first + torch.arange(LENGTH + 1)) % WORDS
        said = self(text[:, :-1]).flatten(0, 1)
        return nn.functional.cross_entropy(said, text[:, 1:].flatten())

    def forward(self, text):
        return self.head(self.block(self.words(text), src_mask=self.mask, is_causal=True))


def made(kind):
    torch.manual_seed(0)
    model = kind()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def alone(kind):
    """What one process learns from all workers' data, and its loss in the first and last step."""
    model, optimizer = made(kind)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = sum(model.loss(step, worker) for worker in range(WORKERS)) / WORKERS
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [each.detach() for each in model.parameters()], losses


@pytest.mark.parametrize("kind", [Mlp, Transformer])
def test_learns_what_one_process_learns_from_all_data(kind):
    networks = [Network(200_000_000, delay=0.0005), Network(100_000_000)]
    cluster = Cluster(WORKERS, networks)

    def work(worker):
        warnings.simplefilter("ignore")
        os.environ.update(
            RANK=str(worker),
            WORLD_SIZE=str(WORKERS),
            LOCAL_RANK="0",
            MASTER_ADDR=cluster.address(0),
            MASTER_PORT="29500",
        )
        store, rank, ranks = store_of_job()
        dimensions = [
            {
                "size": 2,
                "interface": cluster.address(worker, n),
                "bandwidth": f"{network.rate} b/s",
                "latency": "500 us",
            }
            for n, network in enumerate(networks)
        ]
        agreement = Agreement(store, rank, ranks, "training")
        settings = {"dimensions": dimensions, "policy": "themis", "chunks": 4, "secret": "5e" * 32}
        model, optimizer = made(kind)
        transport = Native(rank, ranks, agreement, settings | {"smallest_chunk": "1 KiB", **APART})
        art.schedule(model, optimizer, transport=transport)
        for step in range(STEPS):
            optimizer.zero_grad()
            model.loss(step, worker).backward()
            optimizer.step()
        state = model.state_dict()
        learnt = [state[name].tolist() for name, _ in model.named_parameters()]
        count = art.barriers(model)
        art.release(model)
        store.set(f"over/{rank}", "")
        for other in range(ranks) if rank == 0 else ():  # it keeps the store
            store.get(f"over/{other}")
        return learnt, count

    expected, losses = alone(kind)
    assert losses[-1] < 0.8 * losses[0]
    results = cluster.run(work, timeout=300).results
    for state, barriers in results:
        assert state == results[0][0]
        assert set(barriers) <= {"state_dict", "synchronize"}
        for ours, wanted in zip(state, expected, strict=True):
            assert torch.allclose(torch.tensor(ours), wanted, rtol=1e-4, atol=1e-5)


def test_a_dimension_that_becomes_slow_is_planned_around_by_all(monkeypatch):
    monkeypatch.setattr(replan, "LOOK", 5)
    rate, slow, steps, change = 200_000_000, 40_000_000, 35, 11
    cluster = Cluster(WORKERS, [Network(rate), Network(rate)])
    dimension = {"kind": "switch", "size": 2, "bandwidth": f"{rate} b/s", "latency": "100 us"}
    keys = {"schema_version": 1, "transport": "native", "secret": "store", "replan": True, **APART}
    keys |= {"fabric": {"dimensions": [dimension, dimension]}, "schedule": {"policy": "themis"}}

    def wide():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512))
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(model, step, worker):
        chance = torch.Generator().manual_seed(100 * step + worker)
        return model(torch.rand(4, 512, generator=chance)).square().mean()

    def work(worker):
        warnings.simplefilter("ignore")
        os.environ.update(RANK=str(worker), WORLD_SIZE=str(WORKERS), LOCAL_RANK="0")
        os.environ.update(MASTER_ADDR=cluster.address(0), MASTER_PORT="29500")
        store, rank, ranks = store_of_job()
        model, optimizer = wide()
        here = [cluster.address(worker, n) for n in range(2)]
        art.schedule(model, optimizer, job=keys | {"interfaces": here})
        made = []
        for step in range(steps):
            if step == change:
                device = f"qdisc change dev {cluster.device(1)} root"
                line = Network(slow).shaped(cluster.device(1))[0].split(" root", 1)[1]
                configure("tc", [device + line])
            optimizer.zero_grad()
            loss(model, step, worker).backward()
            optimizer.step()
            art.synchronize(model)
            made.append(art._of(model)[0]._auto._before)
        said = art.report(model)
        planned = [use.planned_gbps for use in said.dimensions]
        learnt = [each.tolist() for each in model.state_dict().values()]
        art.release(model)
        store.set(f"over/{rank}", "")
        for other in range(ranks) if rank == 0 else ():  # it keeps the store
            store.get(f"over/{other}")
        return learnt, made, planned, said.exchange

    # A busy machine makes links slow, too: then it is not the test that it should be.
    for _ in range(4):
        results = cluster.run(work, timeout=300).results
        _, made, planned, _ = results[0]
        if made[change] == 0 and planned[0] == pytest.approx(0.2):
            break
    model, optimizer = wide()
    for step in range(steps):
        optimizer.zero_grad()
        (sum(loss(model, step, each) for each in range(WORKERS)) / WORKERS).backward()
        optimizer.step()
    learnt, made, planned, said = results[0]
    assert made[change] == 0
    assert made[-1] > change
    assert planned[0] == pytest.approx(0.2)
    assert planned[1] < speeds.SLOW * 0.2
    assert "dimension 1 gives" in said
    for other in results:
        assert other[1] == made
        assert other[0] == learnt
        assert other[3:] == results[0][3:]
    for ours, wanted in zip(learnt, model.parameters(), strict=True):
        assert torch.allclose(torch.tensor(ours), wanted, rtol=1e-4, atol=1e-5)
