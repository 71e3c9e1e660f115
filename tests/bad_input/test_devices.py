"""Mistakes in devices, recipes and layouts of today's jobs: told once, with place and a hint."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

BASE = """\
schema_version: 1
fabric:
  dimensions:
    - {kind: switch, size: 8, bandwidth: 450 GB/s, latency: 3 us}
workload:
  model: gpt2
  batch_per_replica: 8
  precision: bf16
  parallelism: {dp: 4, pp: 2, microbatches: 4}
  compute: {device: h100}
"""

DEVICE: dict[str, Any] = {
    "schema_version": 1,
    "name": "mine",
    "about": "A device of my own",
    "source": "measured",
    "memory": "80 GB",
    "memory_bandwidth": "2 TB/s",
    "peak": {"fp32": "20 TFLOP/s", "bf16": "300 TFLOP/s"},
    "kernels": {
        "units": 100,
        "reached": {"fp32": 0.9, "bf16": 0.8},
        "cache_bandwidth": "7 TB/s",
        "stream": 0.9,
        "start": "2 us",
        "launch": {"eager": "6 us", "compiled": "3 us", "graph": "1 us"},
        "attention": [
            {
                "kind": "flash_2",
                "head": 64,
                "forward": "180 TFLOP/s",
                "backward": "160 TFLOP/s",
                "half": 400,
            }
        ],
    },
}

VIT: dict[str, Any] = {
    "model_type": "vit",
    "architectures": ["ViTModel"],
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "image_size": 224,
    "patch_size": 16,
}

OF = "workload.compute.device"

# What is written in the file, what instead, the field, a part of the message.
SCENARIOS = [
    ("device: h100", "device: h101", OF, "no such device"),
    ("device: h100", "device: nowhere.yaml", "nowhere.yaml", "no such file"),
    ("device: h100", "device: list.yaml", "list.yaml", "calibrate device"),
    ("device: h100", "device: [h100]", OF, ""),
    ("h100", "h100, recipe: fp8_delay", "workload.compute.recipe", "mean `fp8_delayed`?"),
    ("h100", "a100, recipe: fp8_delayed", "workload.compute.recipe", "no products of 8 bits"),
    ("h100", "a100, recipe: fp8_delayed, efficiency: 0.5", "workload.compute.recipe", "8 bits"),
    ("h100", "a100, recipe: mxfp8, peak: 1 PFLOP/s", "workload.compute.recipe", "8 bits"),
    ("h100", "h200, recipe: nvfp4", "workload.compute.recipe", "no products of 4 bits"),
    ("device: h100", "peak: 1 PFLOP/s, recipe: mxfp8", "workload.compute.recipe", "how fast"),
    ("h100", "a100, attention: flash_3", "workload.compute.attention", "flash_2"),
    ("h100", "h100, attention: flash_4", "workload.compute.attention", "mean `flash"),
    ("h100", "l40s, attention: flash", "workload.compute.attention", "nothing is known"),
    ("h100", "v100, attention: flash", "workload.compute.attention", "one of unfused"),
    (
        "h100",
        "h100, efficiency: 0.5, attention: flash_2",
        "workload.compute.attention",
        "one number",
    ),
    ("h100", "h100, launch: graphs", "workload.compute.launch", "mean `graph`?"),
    ("pp: 2", "pp: 2, stages: [7, 6]", "workload.parallelism.stages", "12"),
    ("pp: 2", "pp: 2, stages: [12]", "workload.parallelism.stages", "2"),
    ("pp: 2", "pp: 2, stages: [12, 0]", "workload.parallelism.stages", ""),
    ("pp: 2", "pp: 2, stages: 6", "workload.parallelism.stages", "list"),
    ("pp: 2", "pp: 2, recompute: ful", "workload.parallelism.recompute", "mean `full`?"),
    ("dp: 4, pp: 2", "dp: 4, pp: 3", "workload.parallelism", "8 NPUs"),
]

# The key of the device's file, its value, a part of the message.
FILES = [
    ("schema_version", 2, "another version"),
    ("kernels.reached.bf16", 1.2, "no device is faster than its peak"),
    ("kernels.stream", 0, "no part of the peak"),
    ("kernels.units", 0, "at least 1"),
    ("kernels.attention[0].forward", "400 TFLOP/s", "faster than the peak"),
    ("kernels.attention[0].head", 0, "a head has elements"),
    ("kernels.attention[0].kind", "flash_5", "flash_5"),
    ("kernels.start", "2", "unit"),
    ("peak.bf16", "300", "unit"),
    ("peak.bf17", "300 TFLOP/s", "bf17"),
    ("memory_bandwidth", None, "memory_bandwidth"),
]

# The key of a `config.json` of pictures, its value, a part of the message.
PICTURES = [
    ("patch_size", 0, "no patch fits"),
    ("patch_size", 256, "no patch fits"),
    ("image_size", [224, 224], "not a whole number"),
    ("architectures", ["ViTForMaskedImageModeling"], "last layer is not read"),
]


def told_once(outcome, field: str, told: str) -> None:
    assert (outcome.status, outcome.stdout) == (2, ""), outcome
    message, _, hint = outcome.stderr.partition("\n\nhint: ")
    assert message.startswith("error: "), outcome.stderr
    assert message.count("\n") == 0, outcome.stderr
    assert field in message
    assert hint.strip()
    assert told in outcome.stderr


def changed(tree: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    tree = deepcopy(tree)
    at: Any = tree
    *way, last = path.replace("[0]", ".0").split(".")
    for key in way:
        at = at[int(key)] if key.isdigit() else at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return tree


@pytest.mark.parametrize(("old", "new", "field", "told"), SCENARIOS, ids=str)
def test_a_scenario_s_mistake_is_told_once(folder, allrail_cli, old, new, field, told):
    assert old in BASE
    (folder / "list.yaml").write_text("[1, 2]\n")
    (folder / "step.yaml").write_text(BASE.replace(old, new, 1))
    told_once(allrail_cli("simulate", "step.yaml"), field, told)


@pytest.mark.parametrize(
    ("named", "field", "told"),
    [
        ("folder", "workload.model", "no `config.json`"),
        ("{hugging_face: folder}", "workload.model", "no `config.json`"),
        ("{hugging_face: vgg16}", "workload.model.hugging_face", "no `model_type`"),
        ("{transformer: {layer: 2}}", "workload.model", "unknown field `layer`"),
    ],
    ids=str,
)
def test_a_model_s_mistake_is_told_once(folder, allrail_cli, named, field, told):
    (folder / "folder").mkdir()
    (folder / "step.yaml").write_text(BASE.replace("model: gpt2", f"model: {named}"))
    told_once(allrail_cli("simulate", "step.yaml"), field, told)


@pytest.mark.parametrize(("path", "value", "told"), FILES, ids=str)
def test_a_device_file_s_mistake_is_told_once(folder, allrail_cli, path, value, told):
    (folder / "mine.json").write_text(json.dumps(changed(DEVICE, path, value)))
    (folder / "step.yaml").write_text(BASE.replace("h100", "mine.json"))
    told_once(allrail_cli("simulate", "step.yaml"), OF, told)


@pytest.mark.parametrize(("key", "value", "told"), PICTURES, ids=str)
def test_a_picture_model_s_mistake_is_told_once(folder, allrail_cli, key, value, told):
    (folder / "config.json").write_text(json.dumps(changed(VIT, key, value)))
    (folder / "step.yaml").write_text(BASE.replace("model: gpt2", "model: config.json"))
    told_once(allrail_cli("simulate", "step.yaml"), f"hugging_face.{key}", told)


def test_what_the_rows_change_is_right_itself(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(DEVICE))
    (folder / "config.json").write_text(json.dumps(VIT))
    text = BASE.replace("h100", "mine.json").replace("model: gpt2", "model: config.json")
    (folder / "step.yaml").write_text(text)
    assert allrail_cli("simulate", "step.yaml").status == 0


def test_a_sample_longer_than_the_model_s_positions_is_noted(folder, allrail_cli):
    (folder / "step.yaml").write_text(
        BASE.replace("model: gpt2", "model: gpt2\n  sequence_length: 2048")
    )
    outcome = allrail_cli("simulate", "step.yaml")
    assert outcome.status == 0, outcome.stderr
    assert "2048 tokens a sample, but the model has 1024 positions" in outcome.stdout


@pytest.mark.parametrize("more", ["", ", efficiency: 0.5", ", peak: 300 TFLOP/s"])
def test_a_device_without_8_bits_computes_none(folder, allrail_cli, more):
    text = BASE.replace("precision: bf16", "precision: fp8").replace("h100", f"a100{more}")
    (folder / "step.yaml").write_text(text)
    outcome = allrail_cli("simulate", "step.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(
        "error: step.yaml:8: `workload.precision` is `fp8`: `a100` has"
    )
    assert "hint: take bf16" in outcome.stderr
