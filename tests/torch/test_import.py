"""What PyTorch's own profiler writes is imported whole: DDP, sharding and pipelines over gloo."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
pytest.importorskip("pydantic", reason="an environment for the runtime alone reads no scenarios")
import torch.distributed as dist  # noqa: E402
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile  # noqa: E402

from allrail.formats.traces import import_trace  # noqa: E402

WIDTH, BATCH, STEPS = 64, 16, 2
PARAMETERS = 4 * (2 * WIDTH * WIDTH + 2 * WIDTH)
"""Bytes of the model's parameters."""


def model():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)]
    return torch.nn.Sequential(*layers)


def replicated(rank):
    ddp = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)

    def step():
        ddp(torch.randn(BATCH, WIDTH)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def sharded(rank):
    """What sharding does: gather the parameters, use them, reduce and scatter gradients."""
    whole = torch.zeros(2 * WIDTH * WIDTH)
    part = torch.zeros(WIDTH * WIDTH)

    def step():
        dist.all_gather_into_tensor(whole, part)
        torch.mm(whole.view(2 * WIDTH, WIDTH), torch.randn(WIDTH, WIDTH))
        dist.reduce_scatter_tensor(part, whole)

    return step


def piped(rank):
    stage = torch.nn.Linear(WIDTH, WIDTH)

    def step():
        if rank == 0:
            dist.send(stage(torch.randn(BATCH, WIDTH)).detach(), 1)
            dist.recv(torch.empty(BATCH, WIDTH), 1)
        else:
            received = torch.empty(BATCH, WIDTH)
            dist.recv(received, 0)
            dist.send(stage(received).detach(), 0)

    return step


def profiled(folder, kind):
    def body(rank):
        step = kind(rank)
        step()
        observer = ExecutionTraceObserver().register_callback(str(folder / f"et{rank}.json"))
        with profile(
            activities=[ProfilerActivity.CPU],
            record_shapes=True,
            execution_trace_observer=observer,
        ) as profiler:
            for _ in range(STEPS):
                step()
        observer.unregister_callback()
        profiler.export_chrome_trace(str(folder / "traces" / f"rank{rank}.json"))

    return body


@pytest.fixture
def traces(tmp_path, on_ranks):
    """Traces of two ranks that do something, imported."""
    (tmp_path / "traces").mkdir()

    def make(kind):
        on_ranks(profiled(tmp_path, kind))
        return import_trace([tmp_path / "traces"], folder=tmp_path / "out")

    return make


def spans(folder):
    """Microseconds that the files say gloo took."""
    events = [
        event
        for file in (folder / "traces").iterdir()
        for event in json.loads(file.read_text())["traceEvents"]
    ]
    return sum(one["dur"] for one in events if one.get("name", "").startswith("gloo:"))


def simulated(done):
    import allrail

    return allrail.simulate(str(done.scenario)).to_dict()


# (what trains, what it is kept as, how often on both ranks)
KINDS = {
    "replicated": (replicated, "collectives", 2 * 2 * STEPS),
    "sharded": (sharded, "collectives", 2 * 2 * STEPS),
    "piped": (piped, "messages", 2 * 2 * STEPS),
}


@pytest.mark.parametrize("name", KINDS)
def test_all_that_gloo_did_is_there(name, traces, tmp_path):
    kind, kept, count = KINDS[name]
    done = traces(kind)
    assert (done.npus, done.measured, done.warnings) == (2, {}, ())
    assert done.kept[kept] == count
    assert done.measured_us[kept] == pytest.approx(spans(tmp_path), rel=1e-6)
    run = simulated(done)
    assert run["compute_us"] > 0
    if name == "replicated":
        sent = [row["bytes_per_npu"] for row in run["dimensions"]]
        # On two ranks a rank sends the whole buffer in an all-reduce.
        assert sum(sent) == pytest.approx(STEPS * PARAMETERS, rel=0.01)


def test_an_execution_trace_has_the_same_communication(traces, tmp_path):
    profiled_too = traces(replicated)
    files = [tmp_path / f"et{rank}.json" for rank in (0, 1)]
    done = import_trace(files, folder=tmp_path / "et", name="et")
    assert done.kept.get("collectives", 0) <= profiled_too.kept["collectives"]
    assert "holds no times" in done.warnings[-1]
