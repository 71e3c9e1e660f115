"""The job file under `schedule`: what it says is what runs; ranks that differ all hear of it."""

from __future__ import annotations

import os
import socket

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.runtime.job import Job  # noqa: E402
from allrail.torch import choice  # noqa: E402

SWITCH = {"kind": "switch", "size": 2, "bandwidth": "1 Gb/s", "latency": "50 us"}
TWO_BY_TWO = {"dimensions": [SWITCH, SWITCH]}


def job(**keys):
    return {"schema_version": 1, **keys}


def schedule(rank, **options):
    torch.manual_seed(rank)
    model = nn.Linear(64, 64)
    return art.schedule(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


def said(function):
    """The error that it raises, as its class' name and its message."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the test says which it must be
        return type(error).__name__, str(error)
    return None, ""


def transport(model):
    return art._of(model)[0]._carrier


def on_two_dimensions(rank, plan):
    keys = {"interfaces": ["lo"]}
    keys |= {"plan": str(plan)} if plan else {"fabric": TWO_BY_TWO}
    model, optimizer = schedule(rank, job=job(**keys))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 64) * rank).sum().backward()
        optimizer.step()
    art.synchronize(model)
    native = transport(model)
    sent = [one["sent"] for one in native.report()["dimensions"]]
    return sent, model.weight.sum().item()


@pytest.mark.parametrize("with_plan", [False, True], ids=["fabric", "plan"])
def test_what_the_file_says_is_what_runs(with_plan, on_ranks, tmp_path):
    import allrail

    plan = tmp_path / "plan.json"
    scenario = {"collective": {"kind": "all_reduce", "size": "16 KiB"}, "fabric": TWO_BY_TWO}
    allrail.plan(job(**scenario, schedule={"chunks": 4})).save(plan)
    ran = on_ranks(lambda rank: on_two_dimensions(rank, plan if with_plan else None), ranks=4)
    for sent, weight in ran:
        assert len(sent) == 2
        assert min(sent) > 0
        assert weight == ran[0][1]


def differ(rank, kind, folder):
    keys = {}
    if kind == "chunks":
        keys = {"schedule": {"chunks": 4 + rank}}
    elif kind == "plan":
        keys = {"plan": str(folder / f"{rank}.json")}
    elif kind == "file" and rank == 1:
        keys = {"partitions": 4}
    elif kind == "interface" and rank == 1:
        keys = {"interfaces": ["eth99"]}
    elif kind == "port":
        keys = {"port": int((folder / "port").read_text()) - rank} if rank else {}
    elif kind == "ranks":
        keys = {"fabric": TWO_BY_TWO}
    elif kind == "version" and rank == 1:
        alike = Job.alike
        Job.alike = lambda self: alike(self) | {"allrail": "0.0.1"}
    elif kind == "secret":
        (folder / str(rank)).write_text(f"{rank}" * 64)
        (folder / str(rank)).chmod(0o600)
        keys = {"secret": str(folder / str(rank))}
    elif kind == "unreadable" and rank == 1:
        keys = {"secret": str(folder / "none")}
    elif kind == "transport":
        return said(lambda: schedule(rank, transport=("native", "c10d")[rank]))
    return said(lambda: schedule(rank, job=job(**keys)))


ROWS = {
    "chunks": ("`schedule.chunks`: rank 1 has `5`, and rank 0 `4`", "the same job file"),
    "plan": ("`plan`: rank 1 has", "the same plan file"),
    "version": ("`allrail`: rank 1 has `0.0.1`", "the same version"),
    "transport": ("`transport of `schedule``: rank 1 has `c10d`", ""),
    "file": ("`partitions` is `4`: there is no such key", "schema_version"),
    "interface": ("`interfaces[0]` is `eth99`", "lo"),
    "port": ("another process listens there", "leave it out"),
    "ranks": ("it joins 4 ranks, and this job has 2", "start 4 processes"),
    "secret": ("`secret`: rank 1 has another than rank 0", "the same file to every host"),
    "unreadable": ("`secret` is", "openssl rand"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_mistake_of_one_rank_is_an_error_on_all(kind, on_ranks, tmp_path):
    import allrail

    why, hint = ROWS[kind]
    for rank in range(2):
        one = {"kind": "all_reduce", "size": f"{rank + 1} MiB"}
        fabric = {"dimensions": [SWITCH]}
        allrail.plan(job(collective=one, fabric=fabric)).save(tmp_path / f"{rank}.json")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (tmp_path / "port").write_text(str(taken.getsockname()[1]))
        answers = on_ranks(lambda rank: differ(rank, kind, tmp_path))
    for name, text in answers:
        assert name in {"InputError", "TrainingError"}
        assert why in text
        assert hint in text.partition("hint: ")[2]


def of_the_file(rank, folder):
    """`every` and `trace` are what the file says; ranks that cannot have both are told."""
    model, _ = schedule(rank, job=job(every=4))
    apart = art.state_dict(model)["every"]
    both = said(lambda: schedule(rank, job=job(every=4, compression="fp16")))
    traced, _ = schedule(rank, job=job(trace=str(folder)))
    art.release(traced)
    return apart, both


def test_every_and_trace_are_the_file_s(on_ranks, tmp_path):
    for apart, (name, text) in on_ranks(lambda rank: of_the_file(rank, tmp_path)):
        assert apart == 4
        assert name == "InputError"
        assert "leave `every` or `compression` out" in text
    assert len(list(tmp_path.glob("rank*.json.gz"))) == 2


def of_a_backend(rank):
    import torch.distributed as dist

    import allrail.torch.backend  # noqa: F401

    os.environ["ALLRAIL_JOB"] = "there-is-none.yaml"
    return said(lambda: dist.init_process_group("allrail"))


def test_the_backend_reads_the_file_too(on_ranks):
    for name, text in on_ranks(of_a_backend, group=False):
        assert name == "TrainingError"
        assert "there-is-none.yaml: there is no such file" in text


def compressed(rank):
    top = {"kind": "top_k", "share": 0.5}
    model, _ = schedule(rank, job=job(compression=top))
    keyword, _ = schedule(rank, job=job(compression=top), compression="fp16")
    wrong = said(lambda: schedule(rank, job=job(compression={"kind": "top"})))
    return [transport(one)._compression.describe() for one in (model, keyword)], wrong


def test_compression_is_the_script_s_or_else_the_file_s(on_ranks):
    for (file, keyword), wrong in on_ranks(compressed):
        assert "top_k" in str(file)
        assert "fp16" in str(keyword)
        assert "`top_k`" in wrong[1]


def elsewhere(rank):
    import warnings

    choice.same_machine = lambda _: False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, _ = schedule(rank)
    told = [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]
    refused = [said(lambda: schedule(rank, transport="native"))]
    refused.append(said(lambda: schedule(rank, job=job(interfaces=["203.0.113.0/24"]))))
    return type(transport(model)).__name__, told, refused


def test_on_several_hosts_it_says_what_to_write(on_ranks):
    for rank, (carries, told, refused) in enumerate(on_ranks(elsewhere)):
        assert carries == "Ordered"
        assert [("`interfaces: [eth0]`" in one, "through its store" in one) for one in told] == (
            [(True, False), (False, True)] if rank == 0 else []
        )
        assert not any("\n" in one for one in told)
        assert "interfaces: [eth0]" in refused[0][1]
        assert "no address in that network" in refused[1][1]
