"""ByteScheduler's speed-ups: the testbed as it is described, and the picture.

`make reproduce` runs everything; here single points of it.
"""

from __future__ import annotations

import pytest

from allrail.output.report import style
from allrail_reproduce import bytescheduler
from allrail_reproduce.bytescheduler.testbed import RESNET50, VGG16, Network
from allrail_reproduce.bytescheduler.work import Work
from allrail_reproduce.pictures.bytescheduler import machines


def test_compute_times_are_published_throughputs():
    network = Network()
    trees = [network.scenario(case, network.baseline) for case in (RESNET50, VGG16)]
    resnet50, vgg16 = (result.compute_us for result in Work(None, 1).simulate(trees))
    assert resnet50 == pytest.approx(32 / 360 * 1e6)
    assert vgg16 == pytest.approx(resnet50 * 195 / 144)


def test_what_is_as_it_starts_is_never_better_than_what_is_tuned():
    for best in Work(None, 1).compare(Network(bandwidth="10 Gb/s"), (VGG16, RESNET50)):
        assert best.ceiling >= best.gain >= best.untuned_gain
        assert best.ours.step_time_us >= best.ours.compute_us


def test_on_slow_links_cut_tensors_come_back_while_others_still_go():
    """VGG16's 553 MB take 442 ms each way at 10 Gb/s: whole tensors wait for one another."""
    (best,) = Work(None, 1).compare(Network(bandwidth="10 Gb/s"), [VGG16])
    assert best.ours.step_time_us > 442_000
    assert best.gain > 20


def test_horovod_s_baseline_is_tuned():
    """Its threshold and cycle are the best of the grid, as the paper tunes them."""
    network = Network(bandwidth="10 Gb/s", servers=False)
    work = Work(None, 1)
    (best,) = work.compare(network, [RESNET50])
    trees = [network.scenario(RESNET50, tensor) for tensor in network.baselines()]
    steps = [one.step_time_us for one in work.simulate(trees)]
    assert best.fifo.step_time_us == min(steps) < max(steps)
    assert best.default.step_time_us == steps[0] > min(steps)
    assert best.baseline == {"policy": "fusion", "threshold": "4 MiB", "cycle": "1 ms"}
    # Servers sum tensors as they come: there is nothing to tune.
    (best,) = Work(None, 1).compare(Network(bandwidth="10 Gb/s"), [RESNET50])
    assert best.fifo is best.default


def test_the_picture_repeats():
    header = ("setup", "model", "gpus", "linear", "baseline", "bytescheduler", "untuned")
    rows = [("x", model, n, 9.0 * n, 5.0 * n, 8.0 * n, 7.0 * n) for model in "ab" for n in (8, 16)]
    detail = bytescheduler.Detail("machines", header, rows)
    first, second = (style.svg(machines(detail, "x"), name="machines") for _ in range(2))
    assert first == second
    assert first.count("samples/s") == 1


@pytest.fixture(scope="module")
def outcome():
    return bytescheduler.run()


def test_a_range_has_both_its_ends_and_they_are_those_of_its_table(outcome):
    """A loss is not hidden behind the largest gain: every `largest` has its `least`."""
    rows = {row.case: row.ours for row in outcome.rows}
    largest = [case for case in rows if ", largest gain" in case]
    assert largest
    assert all(case.replace(", largest", ", least") in rows for case in largest)
    tables = {detail.name: detail for detail in outcome.details}
    bandwidths = [
        dict(zip(tables["bandwidths"].header, row, strict=True))
        for row in tables["bandwidths"].rows
    ]
    for model in ("VGG16", "ResNet50", "Transformer"):
        gains = [row["untuned_%"] for row in bandwidths if row["model"] == model]
        label = f"{model}, MXNet, PS, RDMA, 1 Gb/s to 100 Gb/s"
        assert rows[f"{label}, least gain without tuning"] == min(gains)
        assert rows[f"{label}, largest gain without tuning"] == max(gains)
    machines = [
        dict(zip(tables["machines"].header, row, strict=True)) for row in tables["machines"].rows
    ]
    for setup in bytescheduler.SETUPS:
        for case in setup.cases:
            some = [
                100 * (row["untuned"] / row["baseline"] - 1)
                for row in machines
                if (row["setup"], row["model"]) == (setup.name, case.label) and row["gpus"] > 8
            ]
            label = f"{case.label}, {setup.name}, 16-128 GPUs"
            assert rows[f"{label}, least gain without tuning"] == pytest.approx(min(some), abs=1e-6)
            assert rows[f"{label}, largest gain without tuning"] == pytest.approx(
                max(some), abs=1e-6
            )


def test_what_tuning_the_baseline_changes_is_a_table(outcome):
    """Nothing to speak of at 100 Gb/s: the rows with NCCL are those of Horovod's defaults."""
    table = next(detail for detail in outcome.details if detail.name == "baselines")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert {row["setup"] for row in rows} == {"PyTorch, NCCL, TCP"}
    assert len(rows) == 3 * 4
    assert all(0.98 * row["default_us"] <= row["tuned_us"] <= row["default_us"] for row in rows)


def test_the_rows_that_are_out_are_these(outcome):
    """Who brings one in, or puts one out, says so here and in the change log."""
    met = [row.case for row in outcome.targets if row.ok]
    assert met == [
        "VGG16, MXNet, PS, RDMA, 16-128 GPUs, largest gain",
        "ResNet50, MXNet, PS, RDMA, 16-128 GPUs, least gain",
        "VGG16, PyTorch, NCCL, TCP, 16-128 GPUs, largest gain",
        *(f"VGG16, MXNet, PS, RDMA, {speed} Gb/s, gain" for speed in (10, 25, 40, 50, 100)),
        *(f"ResNet50, MXNet, PS, RDMA, {speed} Gb/s, gain" for speed in (1, 10, 25, 40, 50, 100)),
        "BERT-large, 256 GPUs, slower networks, BytePS over Horovod, most",
    ]
    assert len(outcome.misses) == 19
    assert not outcome.free
    rows = {row.case: row.ours for row in outcome.rows}
    for case, ours in (
        ("VGG16, MXNet, PS, RDMA, 16-128 GPUs, least gain", 89.2),
        ("VGG16, MXNet, PS, RDMA, 16-128 GPUs, largest gain", 97.2),
        ("VGG16, TensorFlow, PS, RDMA, 16-128 GPUs, largest gain", 97.2),
        ("Transformer, MXNet, PS, RDMA, 16-128 GPUs, largest gain", 24.4),
        ("largest gain of all", 117.9),
        ("BERT-large, 256 GPUs, 100 Gb/s, BytePS, efficiency", 97.4),
        ("BERT-large, 256 GPUs, 100 Gb/s, Horovod, efficiency", 96.6),
        ("BERT-large, 256 GPUs, slower networks, BytePS over Horovod, most", 1.93),
    ):
        assert rows[case] == pytest.approx(ours, abs=0.1), case
