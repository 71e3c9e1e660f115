"""What `art.report()` says: checked against times and bytes that the test knows."""

from __future__ import annotations

import json
import os
import time
import warnings
from datetime import timedelta
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.runtime import record as records  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.runtime.predict import scenario  # noqa: E402
from allrail.runtime.record import Mark  # noqa: E402
from allrail.runtime.steps import OUTSIDE, steps_of  # noqa: E402
from allrail.torch.native import Native  # noqa: E402
from allrail.torch.observed import Observed, waiting  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402

STEPS = 8


class Sleeps:
    """Sleeps for a while, and knows how long that has taken: a busy machine wakes late."""

    def __init__(self, seconds):
        self.seconds, self.took_ns = seconds, []

    def __call__(self, *_):
        begun = time.monotonic_ns()
        time.sleep(self.seconds)
        self.took_ns.append(time.monotonic_ns() - begun)


class Slow(nn.Module):
    """Computes for a known time, forward and backward."""

    def __init__(self, size, forward, backward):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.ahead, self.back = Sleeps(forward), Sleeps(backward)

    def forward(self, x):
        self.ahead()
        y = x * self.weight.sum()
        y.register_hook(self.back)
        return y


def trained(
    *, transport="native", compression=None, outside=0.01, late=0.0, sizes=(100_000, 300_000)
):
    torch.manual_seed(0)
    model = nn.Sequential(Slow(sizes[0], 0.004, 0.006), Slow(sizes[1], 0.008, 0.002))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    art.schedule(model, optimizer, transport=transport, compression=compression)
    model.outside = Sleeps(outside + late)
    for _ in range(STEPS):
        model.outside()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def test_times_bytes_and_a_prediction(on_ranks):
    def body(rank):
        begun = time.monotonic_ns()
        model, _ = trained()
        whole = time.monotonic_ns() - begun
        report = art.report(model)
        record = art._of(model)[0].observed.record()
        steps = steps_of(record)
        of = {row["name"]: place for place, row in enumerate(record["tensors"][:-1])}
        times = {
            "outside": ([step.backward[OUTSIDE] for step in steps], model.outside.took_ns),
            **{
                f"forward {n}": ([s.forward[p] for s in steps], model[int(n[0])].ahead.took_ns)
                for n, p in of.items()
            },
            **{
                f"backward {n}": ([s.backward[p] for s in steps], model[int(n[0])].back.took_ns)
                for n, p in of.items()
            },
        }
        art.release(model)
        computed = sum(step.computed for step in steps)
        return report.to_json(), str(report), times, computed, whole, scenario(record, steps)

    for rank, (report, text, times, computed, whole, tree) in enumerate(on_ranks(body)):
        json.dumps(report)
        assert (report["rank"], report["ranks"], report["steps"]) == (rank, 2, STEPS - 2)
        # 30 ms are slept in a step; how much longer it takes depends on the machine.
        assert 30 <= report["step_ms"] <= whole / 1e6
        assert report["interval_ms"][0] <= report["step_ms"] <= report["interval_ms"][1]
        assert 0 <= report["exposed_ms"] <= report["step_ms"] - 30
        # Each part takes what it has slept, and all of them together no more than there was: none
        # is charged with another's. Of two steps, which set things up, nothing is said.
        for name, (seen, slept) in times.items():
            more = [one - other for one, other in zip(seen, slept[2:], strict=True)]
            assert min(more) >= 0, (name, times)
        assert sum(sum(seen) for seen, _ in times.values()) <= computed <= whole
        # All-reduces of 1.6 MB over two ranks: each sends as much. On a busy machine they end late:
        # up to those of one step fall into the next, at either end of what is looked at.
        [use] = report["dimensions"]
        assert use["bytes_per_step"] == pytest.approx(1.6e6, abs=1.6e6 / report["steps"] + 1)
        assert 0 < use["busy"] <= 1
        # The simulator has the job's own layers, and says so of a fabric that nobody measured.
        layers = tree["workload"]["model"]["layers"]
        assert [one["name"] for one in layers] == ["outside", "0.weight", "1.weight"]
        assert [one["parameters"] for one in layers] == [0, 100_000, 300_000]
        assert tree["fabric"]["dimensions"][0]["size"] == 2
        assert 30 <= report["predicted"]["step_ms"] <= report["step_ms"] * 1.5
        assert report["difference"] == pytest.approx(
            report["predicted"]["step_ms"] / report["step_ms"] - 1
        )
        assert "uncalibrated" in text
        assert "dimension 0" in text


def test_a_transport_that_knows_no_fabric_says_so(on_ranks, monkeypatch):
    monkeypatch.setenv("ALLRAIL_DISABLE", "1")

    def body(rank):
        os.environ["ALLRAIL_DISABLE"] = "1"
        model, _ = trained(sizes=(10, 10))
        report = art.report(model)
        art.release(model)
        try:
            art.report(model)
        except InputError as error:
            return report, str(error)
        return report, ""

    for report, error in on_ranks(body):
        assert report.step_ms >= 30
        assert report.predicted is None
        assert "`Whole` tells of no fabric" in str(report)
        assert "is not scheduled" in error


@pytest.mark.parametrize("kind", ["bf16", {"kind": "power_sgd", "rank": 2}], ids=str)
def test_compressed_gradients_are_counted_as_they_travel(kind, on_ranks):
    def body(rank):
        model, _ = trained(compression=kind, sizes=((40, 40), (40, 40)))
        report = art.report(model)
        rows = {row["name"]: row["bytes"] for row in art._of(model)[0].observed.watched.tensors}
        art.release(model)
        return report, min(rows[name] for name, each in model.named_parameters() if each.dim() > 1)

    for report, weight in on_ranks(body):
        assert report.dimensions[0].bytes_per_step > 0
        assert report.predicted is not None, report.unpredicted
        assert weight == (40 * 40 * 2 if kind == "bf16" else (40 + 40) * 2 * 4)


def test_a_rank_that_is_late_is_blamed(on_ranks):
    def body(rank):
        model, _ = trained(late=0.15 if rank == 1 else 0.0, outside=0.03, sizes=(10, 10))
        until = time.monotonic() + 60
        while time.monotonic() < until:
            findings = art.report(model).findings
            if any("later than the median" in line for line in findings):
                break
            time.sleep(0.1)  # until a sign of life has told it
        store, _, ranks = store_of_job()
        store.set(f"late: heard by {rank}", "1")  # the other hears of it as long as both are there
        store.wait([f"late: heard by {each}" for each in range(ranks)], timedelta(seconds=100))
        art.release(model)
        return findings

    for_0, for_1 = on_ranks(body)
    assert any("rank 1 is" in line and "later than the median" in line for line in for_0), for_0
    assert any("this rank is" in line for line in for_1), for_1


def test_who_waits_is_warned_with_whom_for(on_ranks):
    def body(rank):
        store, _, ranks = store_of_job()
        dimension = {"size": 2, "bandwidth": "20 Gb/s", "latency": "20 us"}
        seconds = {"connect": "60 s", "link": "60 s", "silent": "60 s", "stalled": "1800 s"}
        timeouts = {**seconds, "heartbeat": "50 ms", "warn": "1500 ms"}
        transport = Native(
            rank,
            ranks,
            Agreement(store, rank, ranks, "warns"),
            {"dimensions": [dimension], "timeouts": timeouts},
        )
        tensor = torch.ones(10)
        key = transport.register("conv1.weight", tensor.dtype, (10,), (1,), 0)
        transport.start()
        caught = []

        def hear(message, *_):
            caught.append(str(message))
            store.set("warned", "1")

        if rank == 1:
            store.wait(["warned"], timedelta(seconds=200))
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = hear
            transport.wait(key, transport.submit(key, tensor))
        transport.close()
        return caught

    for_0, for_1 = on_ranks(body)
    assert len(for_0) == 1
    assert "`conv1.weight`: rank 1 did not submit it; rank 0 waits for it" in for_0[0]
    assert for_1 == []


def test_a_record_is_written_when_a_model_is_released_and_holds_no_secret(on_ranks, tmp_path):
    def body(rank):
        os.environ["ALLRAIL_TRACE"] = str(tmp_path)
        model, _ = trained(sizes=(10, 10))
        art.release(model)

    on_ranks(body)
    found = records.read(tmp_path)
    assert [one["rank"] for one in found] == [0, 1]
    assert found[0]["settings"]["records"] > 1 << 16
    assert "secret" not in found[0]["settings"]
    assert len(found[0]["timeline"]["exchanges"]) == STEPS  # both tensors in one pack
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == [".allrail.json"]


def observed(marks, rank=0):
    """What a rank has seen that has these marks, and made no exchange."""
    transport = SimpleNamespace(rank=rank, ranks=2)
    given = {"model": "model", "crosses": True, "trace": None, "passes": None}
    seen = Observed(transport, None, **given)
    for mark in marks:
        seen.marks.add(mark)
    return seen


def passes_that_wait(share, passes=10):
    """Ends of passes 100 ns apart, of which waits take this share."""
    for number in range(1, passes + 1):
        end = 100 * number
        yield ("wait", 0, end - round(100 * share), end)
        yield ("round", -1, end, end)


@pytest.mark.parametrize(("share", "said"), [(0.0, 0), (0.1, 0), (0.33, 0), (0.34, 1), (0.9, 1)])
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_told_of_waits_names_their_share_and_what_to_set(share, said, rank):
    seen = observed(passes_that_wait(share), rank)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen.advise()
    texts = [str(one.message) for one in caught]
    assert len(texts) == (said if rank == 0 else 0)
    for text in texts:
        assert f"waits for gradients in {100 * share:.0f} % of its time" in text
        assert "`exchange: auto` in allrail.yaml" in text


@pytest.mark.parametrize(("share", "said"), [(0.9, 1), (0.1, 0)])
def test_a_script_is_told_of_its_waits_once_and_by_one_rank(share, said, on_ranks, monkeypatch):
    monkeypatch.setattr("allrail.torch.scheduled.ADVISED_AFTER", 4)
    monkeypatch.setattr("allrail.torch.observed.waiting", lambda _: share)

    def body(rank):
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(12):
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                told = [one for one in caught if "waits for gradients" in str(one.message)]
                # The fifth forward pass is the first after four rounds.
                assert len(told) == (said if rank == 0 and step >= 4 else 0), step
        art.release(model)

    on_ranks(body)


@pytest.mark.parametrize(("pack", "packs"), [("auto", 2), ("4 KiB", 8), ("0 B", 16)])
def test_as_many_packs_are_predicted_as_are_sent(pack, packs, on_ranks, tmp_path, monkeypatch):
    """The simulated job has a layer for each pack: of 16 tensors of 2 KB, and of a large one."""
    (tmp_path / "allrail.yaml").write_text(
        f"schema_version: 1\nschedule: {{tensor: {{pack: {pack}}}}}\n"
    )
    monkeypatch.setenv("ALLRAIL_JOB", str(tmp_path / "allrail.yaml"))
    packs += pack != "auto"  # the large one; with `auto` it is the second

    def body(rank):
        layers = [nn.Linear(22, 22, bias=False) for _ in range(16)]
        model = nn.Sequential(*layers, nn.Linear(22, 60_000, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        art.schedule(model, optimizer)
        for _ in range(STEPS):
            model(torch.ones(1, 22)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        art.synchronize()
        record = art._of(model)[0].observed.record()
        art.release(model)
        timeline = record["timeline"]
        travels = [name != records.USERS for name in timeline["names"]]
        sent = [one for one in timeline["exchanges"] if travels[one["name"]]]
        layers = scenario(record, steps_of(record))["workload"]["model"]["layers"]
        return len(layers) - 1, len(sent) / STEPS

    for predicted, sent in on_ranks(body):
        assert predicted == sent == packs


def test_the_share_of_waits_counts_what_lies_between_ends_of_passes():
    marks = [("wait", 0, 0, 10), ("round", -1, 20, 20), ("wait", 0, 15, 40), ("wait", 0, 90, 110)]
    marks += [("round", -1, 120, 120), ("wait", 0, 120, 140)]
    assert waiting([Mark(*each) for each in marks]) == 0.4
    assert waiting([]) == 0
