"""`make gpu-check`, rehearsed on a CPU: every part but calibration, with a device that is late."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from gpu.place import Late  # noqa: E402

CHECK = Path(__file__).parents[1] / "gpu"


def rehearse(out, *words):
    command = [
        sys.executable,
        str(CHECK),
        "--rehearse",
        "--limit",
        "240",
        "--out",
        str(out),
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def test_parts_pass_and_the_record_says_so(tmp_path):
    done = rehearse(tmp_path, "--skip", "calibrate")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    verdicts = {each["part"]: each["verdict"] for each in record["parts"]}
    assert verdicts.pop("schedule_nccl") == "not here"
    assert set(verdicts.values()) == {"ok"}, record["parts"]
    assert record["rehearsal"] is True
    assert record["torch"] == torch.__version__
    figures = {each["part"]: each["figures"] for each in record["parts"]}
    assert figures["staging"]["sums_checked"] > 0
    assert figures["predict"]["eager"]["measured_us"] > 0


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
