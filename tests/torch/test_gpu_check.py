"""`make gpu-check`, rehearsed on a CPU: every part but calibration, with a device that is late.

Parts run on ranks that are forked from here, where torch is imported; one is started as all are on
a GPU, by torchrun.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from gpu.parts import PARTS  # noqa: E402
from gpu.place import Late  # noqa: E402
from testbed.local import LocalJob  # noqa: E402

CHECK = Path(__file__).parents[1] / "gpu"


def rehearse(out, *words):
    command = [
        sys.executable,
        str(CHECK),
        "--rehearse",
        "--limit",
        "900",
        "--out",
        str(out),
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def forked(part, out):
    """What a part has found."""

    def body(_):
        log = os.open(out / f"{part}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        warnings.simplefilter("default")
        sys.path.insert(0, str(CHECK))
        importlib.import_module("rank").main(part, str(out / f"{part}.json"), "rehearsal", "600")

    ranks, _ = PARTS[part]
    job = LocalJob(ranks)
    job.start(body)
    answers = job.wait(900)
    log = (out / f"{part}.log").read_text()
    assert [kind for kind, _ in answers] == ["returned"] * ranks, f"{answers}\n{log}"
    return json.loads((out / f"{part}.json").read_text())


@pytest.mark.parametrize("part", sorted(PARTS.keys() - {"calibrate"}))
def test_a_part_passes(part, tmp_path):
    found = forked(part, tmp_path)
    assert found["verdict"] == ("not here" if part == "schedule_nccl" else "ok"), found
    if part == "staging":
        assert found["figures"]["sums_checked"] > 0
    if part == "predict":
        assert found["figures"]["eager"]["measured_us"] > 0


def passes(tmp_path, *words):
    done = rehearse(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["rehearsal"] is True
    assert record["torch"] == torch.__version__
    return {each["part"]: each["verdict"] for each in record["parts"]}


def test_the_record_says_so(tmp_path):
    assert passes(tmp_path, "mixed") == {"mixed": "ok"}


@pytest.mark.long
def test_all_parts_pass_as_they_are_started_on_a_gpu(tmp_path):
    verdicts = passes(tmp_path, "--skip", "calibrate")
    assert verdicts.pop("schedule_nccl") == "not here"
    assert set(verdicts.values()) == {"ok"}
    assert verdicts.keys() == PARTS.keys() - {"calibrate", "schedule_nccl"}


def test_a_part_that_fails_is_told_and_fails_the_check(tmp_path):
    done = rehearse(tmp_path, "mixed", "--limit", "0.1")
    assert done.returncode == 1
    assert "failed    mixed" in done.stdout
    assert "not over after 0 s" in done.stdout


def test_an_unknown_part_is_refused(tmp_path):
    done = rehearse(tmp_path, "stagings")
    assert done.returncode == 2
    assert "no part is called stagings: staging, schedule" in done.stderr


def test_the_fake_device_shows_rubbish_until_its_copy_is_done():
    device = Late()
    device.stream.runs.clear()
    tensor = torch.ones(3)
    buffer = device.buffer(tensor)
    copied = device.fetch(tensor, buffer)
    assert (buffer != 1).all()
    device.stream.runs.set()
    copied.synchronize()
    assert (buffer == 1).all()
