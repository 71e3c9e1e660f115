"""The CPU at hand, measured by PyTorch in a few seconds."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from allrail.cli.main import cli  # noqa: E402
from allrail.measure.calibrate.device.bench import Bench  # noqa: E402
from allrail.measure.calibrate.device.points import Attention, Product, Start, Stream  # noqa: E402


@pytest.fixture(scope="module")
def one_thread():
    """Threads of a machine that is busy with tests wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bench(one_thread):
    return Bench(torch.device("cpu"))


def test_every_kind_of_point_takes_the_time_that_it_takes(bench):
    for little, more in (
        (Product(64, 64, 64, "fp32"), Product(512, 512, 512, "fp32")),
        (Product(64, 64, 64, "bf16"), Product(512, 512, 512, "bf16")),
        (Stream("copy", 1 << 10), Stream("copy", 1 << 22)),
        (Stream("add", 1 << 10), Stream("add", 1 << 22)),
        (
            Attention("flash_2", 1, 2, 64, 64, backward=False),
            Attention("flash_2", 1, 2, 64, 512, backward=False),
        ),
        (
            Attention("flash_2", 1, 2, 64, 64, backward=True),
            Attention("flash_2", 1, 2, 64, 512, backward=True),
        ),
    ):
        batches = [bench.batch(point) for point in (little, more)]
        # The shortest of some: what disturbs makes none shorter.
        short, long = (min(batch(2) for _ in range(6)) for batch in batches)
        assert 0 < short < long, (little, more)
    assert 0 < min(bench.batch(Start("eager"))(1) for _ in range(3)) < 1e-3


def test_what_a_cpu_has_not_is_an_error_that_run_takes(bench):
    with pytest.raises(RuntimeError):
        bench.batch(Attention("flash_3", 1, 2, 64, 64, backward=False))(1)
    means = bench.means(2)
    assert set(means.rates) == {"fp32", "bf16"}
    assert tuple(means.kinds) == ("flash_2",)
    assert means.modes == ("eager",)


@pytest.fixture(scope="module")
def written(tmp_path_factory, one_thread):
    """What the command prints, and the file that it writes."""
    out = tmp_path_factory.mktemp("device") / "mine.json"
    words = ("calibrate", "device", "--device", "cpu", "--seconds", "1", "--out", str(out))
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out, done.stdout


def test_the_command_shows_every_point_and_says_how_it_was_measured(written):
    out, shown = written
    tree = json.loads(out.read_text())
    for what in ("product", "attention", "stream", "start", "predicted_us", "half of"):
        assert what in shown
    assert f"the device's file is in {out}" in shown
    for word in ("Measured 20", "PyTorch", torch.__version__, tree["about"]):
        assert word in tree["source"]
    assert tree["kernels"]["units"] == 1
    assert all(part <= 1 for part in tree["kernels"]["reached"].values())


def test_a_step_and_a_plan_take_what_it_has_written(written, folder, allrail_cli):
    out, _ = written
    (folder / "step.yaml").write_text(
        "schema_version: 1\n"
        "fabric: {dimensions: [{kind: ring, size: 2, bandwidth: 50 GB/s, latency: 1 us}]}\n"
        f"workload: {{model: gpt2, batch_per_replica: 1, compute: {{device: {out}}}}}\n"
    )
    told = allrail_cli("simulate", "step.yaml", "--json")
    assert told.status == 0, told.stderr
    # Three passes of 124 million parameters and 1,024 tokens are 0.8 TFLOPs: not a blink on a CPU.
    assert json.loads(told.stdout)["step_time_us"] > 1e5
    plan = ("plan", "--model", "gpt2", "--fabric", "dgx-h100", "--npus", "8", "--schedules", "0")
    told = allrail_cli(*plan, "--device", str(out), "--top", "1")
    assert told.status == 0, told.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--device", "cpu", "-o", "mine.yaml"), "a device's file is JSON"),
        (("--device", "toaster"), "it is no device that is measured"),
        (("--device", "meta"), "it is no device that is measured"),
        (("--device", "cuda:99"), "no such GPU here"),
        (("--seconds", "0"), "--seconds"),
    ],
)
def test_what_cannot_be_says_why(options, said, allrail_cli):
    told = allrail_cli("calibrate", "device", *options)
    assert told.status == 2
    assert said in told.stderr


def test_an_interrupted_measurement_leaves_no_file(tmp_path, allrail_cli, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("allrail.measure.calibrate.device.run.fill", interrupted)
    told = allrail_cli("calibrate", "device", "--device", "cpu", "-o", str(tmp_path / "mine.json"))
    assert (told.status, told.stdout) == (130, "")
    assert list(tmp_path.iterdir()) == []
