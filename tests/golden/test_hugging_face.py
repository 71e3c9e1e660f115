"""Parameters of configurations beside those of the library's classes; sizes in notes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LARGE = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}


@pytest.mark.parametrize("command", ["import", "simulate"])
def test_two_sizes_have_one_unit(tmp_path, monkeypatch, allrail_cli, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    arguments = ["import", "config.json", "-o", "out"]
    if command == "simulate":
        assert allrail_cli(*arguments).status == 0
        arguments = ["simulate", "out/config.yaml"]
    outcome = allrail_cli(*arguments)
    assert outcome.status == 0, outcome.stderr
    found = re.search(r"does not fit: an NPU needs ([\d.]+) GB and has ([\d.]+) GB", outcome.stdout)
    assert found is not None, outcome.stdout
    # Parameters, gradients and AdamW's states of 12.9 billion: more than twice an A100.
    assert float(found[1]) > 2 * float(found[2]) > 160
    assert "KiB" not in outcome.stdout


def test_a_layout_that_must_fit_is_refused_in_one_unit(tmp_path, monkeypatch, allrail_cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    assert allrail_cli("import", "config.json", "-o", "out").status == 0
    outcome = allrail_cli("simulate", "out/config.yaml", "--set", "workload.compute.must_fit=true")
    assert outcome.status == 2
    assert re.search(r"needs [\d.]+ GB and has [\d.]+ GB", outcome.stderr), outcome.stderr


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("transformers")
    return subprocess.run(
        [sys.executable, ROOT / "benches" / "hugging_face", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.long
def test_counts_are_those_of_the_classes():
    kinds = (
        "llama",
        "gemma3_text",
        "qwen3_moe",
        "deepseek_v2",
        "bart",
        "t5",
        "bert",
        "vit",
        "llava",
    )
    outcome = _bench(*kinds)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert f"{len(kinds)} equal" in outcome.stdout.splitlines()[-1]


@pytest.mark.long
def test_counts_of_all_types():
    outcome = _bench()
    last = outcome.stdout.splitlines()[-1]
    found = re.search(r"(\d+) equal", last)
    assert found is not None, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    assert int(found[1]) >= 150, last
    assert "counts otherwise" not in last, outcome.stdout
    assert outcome.returncode == 0, outcome.stdout
