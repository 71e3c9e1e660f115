"""What `allrail apply` writes for FSDP2 shards a model so."""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from allrail.targets import apply_to  # noqa: E402

try:
    from torch.distributed.fsdp import FSDPModule
except ImportError:  # FSDP2 is public since torch 2.6.
    pytest.skip("this torch has no public FSDP2", allow_module_level=True)
if not hasattr(torch.cpu.Stream, "record_event"):
    pytest.skip("this torch has no FSDP2 on CPUs", allow_module_level=True)

SCENARIO = {
    "schema_version": 1,
    "fabric": {
        "dimensions": [{"kind": "switch", "size": 2, "bandwidth": "10 Gb/s", "latency": "10 us"}]
    },
    "workload": {
        "model": "gpt2_xl",
        "batch_per_replica": 1,
        "precision": "bf16",
        "gradient_precision": "fp32",
        "parallelism": {"zero": 3, "prefetch": 2},
        "compute": {"device": "a100"},
    },
}


def sharded(rank, path):
    shard = runpy.run_path(path)["shard"]
    torch.manual_seed(0)
    blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
    model = nn.Sequential(*blocks)
    shard(model, blocks, device="cpu")
    loss = model(torch.ones(2, 8)).square().sum()
    loss.backward()
    weight = blocks[0].weight
    return (
        all(isinstance(block, FSDPModule) for block in blocks),
        tuple(weight.to_local().shape),
        weight.grad is not None,
        dist.get_world_size(),
    )


def test_the_file_shards_blocks_over_the_replicas(on_ranks, tmp_path):
    apply_to(SCENARIO, tmp_path, targets=["fsdp"])
    path = str(tmp_path / "fsdp.py")
    found = on_ranks(lambda rank: sharded(rank, path), ranks=2, group=True)
    assert found == [(True, (4, 8), True, 2)] * 2


WIDTHS = (64, 300, 300, 300, 40)
LINEAR = {
    "schema_version": 1,
    "fabric": SCENARIO["fabric"],
    "workload": {
        "model": {
            "layers": [
                {"name": f"layer{at}", "dense": {"inputs": inputs, "outputs": outputs}}
                for at, (inputs, outputs) in enumerate(pairwise(WIDTHS))
            ]
        },
        "batch_per_replica": 4,
        "precision": "fp32",
        "compute": {"device": "a100"},
    },
}


def bucketed(rank, path):
    wrap = runpy.run_path(path)["wrap"]
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(WIDTHS)))
    made = wrap(model)
    for _ in range(3):
        made(torch.ones(4, WIDTHS[0])).square().sum().backward()
    told = made._get_ddp_logging_data()
    sizes = told.get("rebuilt_bucket_sizes") or told["bucket_sizes"]
    return [int(size) for size in sizes.split(", ")]


@pytest.mark.parametrize(
    ("caps", "kind"),
    [
        ({"bucket": "25 MiB", "first_bucket": "1 MiB"}, "wrap"),
        ({"bucket": "300 KiB", "first_bucket": "300 KiB"}, "cap"),
        ({"bucket": "600 KiB", "first_bucket": "100 KiB"}, "list"),
    ],
)
def test_ddp_makes_the_buckets_that_are_listed(on_ranks, tmp_path, caps, kind):
    if (
        kind == "list"
        and "bucket_cap_mb_list"
        not in inspect.signature(DistributedDataParallel.__init__).parameters
    ):
        pytest.skip("this torch has no cap for each bucket")
    scenario = {**LINEAR, "schedule": {"tensor": {"policy": "ddp", **caps}}}
    apply_to(scenario, tmp_path, targets=["ddp"])
    text = (tmp_path / "ddp_buckets.py").read_text()
    rows = [line[1:].split() for line in text.splitlines() if line.startswith("#  ")]
    listed = [int(size.replace(",", "")) for size, _ in rows]
    path = str(tmp_path / "ddp_buckets.py")
    found = on_ranks(lambda rank: bucketed(rank, path), ranks=2, group=True)
    assert sum(found[0]) == sum(listed)
    assert found == [listed] * 2


def test_gradients_of_16_bits_travel_so_under_ddp(on_ranks, tmp_path):
    workload = {**LINEAR["workload"], "gradient_precision": "bf16"}
    apply_to({**LINEAR, "workload": workload}, tmp_path, targets=["ddp"])
    path = str(tmp_path / "ddp_buckets.py")
    assert "bf16_compress_hook" in (tmp_path / "ddp_buckets.py").read_text()
    assert on_ranks(lambda rank: sum(bucketed(rank, path)), ranks=2, group=True)


FABRIC = """\
schema_version: 1
about: Two hosts of two.
dimensions:
  - {kind: switch, size: 2, bandwidth: 10 GB/s, latency: 5 us}
  - {kind: switch, size: 2, bandwidth: 1 GB/s, latency: 20 us}
"""
GPT = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}
ASKED = "--model config.json --fabric fabric.yaml --npus 4 --global-batch 8 --device h100"


def trained(rank, job, steps=4):
    import allrail.torch as art

    torch.manual_seed(rank)  # ranks begin apart, and take rank 0's parameters
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
    model, optimizer = art.schedule(model, torch.optim.Adam(model.parameters()), job=job)
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        loss = model(torch.randn(8, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told = [parameter.detach().flatten() for parameter in model.parameters()]
    return torch.cat(told).double().sum().item()


def command(*words):
    """What `allrail WORDS...` prints, in a process of its own: ranks are forked from this one."""
    ran = subprocess.run([sys.executable, "-m", "allrail", *words], capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    return ran.stdout


def test_a_plan_for_the_runtime_ends_in_a_job_that_it_runs(on_ranks, folder):
    (folder / "fabric.yaml").write_text(FABRIC)
    (folder / "config.json").write_text(json.dumps({**GPT, "n_positions": 64}))
    plan = ["plan", *ASKED.split(), "--for", "allrail", "--out", "best.yaml"]
    assert "dp4" in command(*plan)
    told = command("apply", "best.yaml", "--out", "job", "--for", "allrail")
    assert told.split() == ["allrail", "job/allrail.yaml,", "job/plan.json"]
    job = str(folder / "job" / "allrail.yaml")
    found = on_ranks(lambda rank: trained(rank, job), ranks=4, group=True)
    # One model on all of them, carried by the plan over both dimensions.
    assert len(set(found)) == 1
