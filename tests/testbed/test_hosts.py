"""The job file over several hosts: network namespaces, two ranks in each."""

from __future__ import annotations

import json
import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from testbed import Cluster, Network, why_not  # noqa: E402

# OpenMP's threads do not survive a fork.
torch.set_num_threads(1)
REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

PORT = 29500
HOSTS, LOCAL = 2, 2
JOB = """\
schema_version: 1
fabric:
  dimensions:
    - {kind: switch, size: 2, bandwidth: 20 Gb/s, latency: 20 us}
    - {kind: switch, size: 2, bandwidth: 1 Gb/s, latency: 30 us}
interfaces: [lo, 10.77.0.0/16]
port: 29600
secret: job.secret
timeouts: {connect: 20 s}
"""


def train(rank):
    torch.manual_seed(rank)
    model = nn.Linear(64, 64)
    model, optimizer = art.schedule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 64) * rank).sum().backward()
        optimizer.step()
    art.synchronize(model)
    carries = art._of(model)[0]._carrier
    sent = [one["sent"] for one in carries.report()["dimensions"]]
    art.release(model)
    return type(carries).__name__, sent, model.weight.sum().item()


def on_host(host, cluster):
    """Run this host's ranks, each in a process, and return what each has to tell."""
    pipes = []
    for local_rank in range(LOCAL):
        read, write = os.pipe()
        if os.fork() == 0:
            rank = host * LOCAL + local_rank
            os.environ.update(
                RANK=str(rank),
                LOCAL_RANK=str(local_rank),
                WORLD_SIZE=str(HOSTS * LOCAL),
                MASTER_ADDR=cluster.address(0),
                MASTER_PORT=str(PORT),
            )
            try:
                said = train(rank)
            except Exception as error:  # noqa: BLE001 - the test shows it
                said = repr(error)
            os.write(write, json.dumps(said).encode())
            os._exit(0)
        os.close(write)
        pipes.append(read)
    return [json.loads(os.fdopen(pipe).read()) for pipe in pipes]


def test_ranks_of_several_hosts_exchange_over_both_dimensions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALLRAIL_JOB", raising=False)
    (tmp_path / "allrail.yaml").write_text(JOB)
    (tmp_path / "job.secret").write_text("5a" * 32)
    (tmp_path / "job.secret").chmod(0o600)
    cluster = Cluster(HOSTS, [Network()])
    hosts = cluster.run(lambda host: on_host(host, cluster), timeout=300).results
    ranks = [rank for host in hosts for rank in host]
    for name, sent, weight in ranks:
        assert name == "Native"
        assert min(sent) > 0
        assert weight == ranks[0][2]
