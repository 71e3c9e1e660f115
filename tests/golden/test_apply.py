"""`allrail apply`: what is written says what was decided, and is read by whom it is for."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import yaml

from allrail import simulate_training
from allrail.apply import TARGETS, apply
from allrail.apply.nccl import _ALGORITHMS
from allrail.errors import InputError
from allrail.runtime.job import find_job

REPLICAS = {
    "schema_version": 1,
    "fabric": {
        "dimensions": [
            {"kind": "switch", "size": 2, "bandwidth": "10 Gb/s", "latency": "10 us"},
            {"kind": "switch", "size": 2, "bandwidth": "1 Gb/s", "latency": "50 us"},
        ]
    },
    "workload": {
        "model": "resnet50",
        "batch_per_replica": 32,
        "precision": "fp32",
        "compute": {"device": "a100", "efficiency": 0.5},
    },
    "schedule": {
        "policy": "themis",
        "chunks": 8,
        "tensor": {"policy": "bytescheduler", "partition": "1 MiB"},
    },
}
LARGE = {
    "schema_version": 1,
    "fabric": "dgx-h100",
    "workload": {
        "model": "llama3_70b",
        "global_batch": 512,
        "micro_batch": 2,
        "precision": "bf16",
        "gradient_precision": "fp32",
        "parallelism": {"tp": 8, "pp": 4, "sp": True, "zero": 1},
        "compute": {"device": "h100"},
    },
    "schedule": {"algorithms": ["ring", "ring"]},
}


def sharded(**more):
    parallelism = {"zero": 3, "dp": 1024, "prefetch": 2, **more}
    workload = {**LARGE["workload"], "micro_batch": None, "global_batch": 1024}
    workload = {key: value for key, value in workload.items() if value is not None}
    return {**LARGE, "workload": {**workload, "parallelism": parallelism}}


def text_of(scenario, target, folder, name, **sets):
    apply(scenario, folder, targets=[target], sets=sets)
    return (folder / name).read_text()


def flags_of(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    # As a shell takes what a command has printed: quotes in it are nothing special.
    words = " ".join(lines).split()
    found, name = {}, None
    for word in words:
        if word.startswith("--"):
            name = word
            found[name] = True
        else:
            found[name] = word
    return found


def test_the_runtime_reads_its_job_and_its_plan(tmp_path):
    text = text_of(REPLICAS, "allrail", tmp_path, "allrail.yaml")
    assert yaml.safe_load(text)["schedule"]["policy"] == "themis"
    job = find_job(tmp_path / "allrail.yaml")
    settings = job.settings(rank=3, ranks=4, local_rank=1)
    assert settings["partition"] == "1048576 B" or "1 MiB" in str(settings["partition"])
    assert [one["size"] for one in settings["dimensions"]] == [2, 2]
    assert json.loads((tmp_path / "plan.json").read_text())["plans"]


def test_the_runtime_takes_one_dimension_without_a_plan(tmp_path):
    one = {**REPLICAS, "fabric": {"dimensions": REPLICAS["fabric"]["dimensions"][:1]}}
    text_of(one, "allrail", tmp_path, "allrail.yaml")
    assert not (tmp_path / "plan.json").exists()
    assert find_job(tmp_path / "allrail.yaml").settings(rank=0, ranks=2)["dimensions"]


def test_buckets_are_those_of_the_simulator(tmp_path):
    named = {**REPLICAS["schedule"], "tensor": {"policy": "ddp", "bucket": "6 MB"}}
    scenario = {**REPLICAS, "schedule": named}
    text = text_of(scenario, "ddp", tmp_path, "ddp_buckets.py")
    assert f"bucket_cap_mb={6e6 / 2**20:.6g}" in text
    rows = [line[1:].split() for line in text.splitlines() if line.startswith("#  ")]
    sizes = [int(size.replace(",", "")) for size, _ in rows]
    # All gradients, once.
    memory = simulate_training(scenario).memory
    assert sum(sizes) == memory.gradients
    # A bucket closes as soon as it holds its cap: all but the first and the last do.
    assert all(size >= 6e6 for size in sizes[1:-1])
    namespace = {}
    exec(compile(text, "ddp_buckets.py", "exec"), namespace) if _torch() else None
    assert not _torch() or callable(namespace["wrap"])


def test_where_none_are_named_the_fastest_cap_is_written(tmp_path):
    text = text_of(REPLICAS, "ddp", tmp_path, "ddp_buckets.py")
    told = next(line for line in text.splitlines() if "the fastest of" in line)
    times = dict(one.rsplit(": ", 1) for one in told.split("step) ")[1].split(", "))
    cap = float(text.split("bucket_cap_mb=")[1].split(")")[0].split(",")[0])
    chosen = min(times, key=lambda name: abs(float(name.split()[0]) * 1e6 / 2**20 - cap))
    assert float(times[chosen]) <= 1.002 * min(map(float, times.values()))


def _torch():
    from importlib.util import find_spec

    return find_spec("torch") is not None


def test_megatron_flags_multiply_to_the_job(tmp_path):
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args"))
    assert flags["--tensor-model-parallel-size"] == "8"
    assert flags["--pipeline-model-parallel-size"] == "4"
    assert flags["--global-batch-size"] == "512"
    assert flags["--micro-batch-size"] == "2"
    assert flags["--sequence-parallel"]
    assert flags["--use-distributed-optimizer"]
    assert flags["--num-layers"] == "80"
    assert flags["--num-query-groups"] == "8"
    assert flags["--normalization"] == "RMSNorm"
    assert "--num-virtual-stages-per-pipeline-rank" not in flags


def test_uneven_stages_are_a_layout_of_layers(tmp_path):
    cut = {"workload.parallelism.stages": [19, 21, 21, 19]}
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **cut))
    stages = flags["--pipeline-model-parallel-layout"].split("|")
    assert [stage.count("t") for stage in stages] == [19, 21, 21, 19]
    assert (stages[0][0], stages[-1][-1]) == ("E", "L")


def test_stages_that_come_out_uneven_and_latent_attention_are_said_to_megatron(tmp_path):
    cut = {
        "workload.model": "deepseek_v3",
        "workload.global_batch": 1024,
        "workload.micro_batch": 1,
        "workload.parallelism.tp": 1,
        "workload.parallelism.sp": False,
        "workload.parallelism.pp": 8,
        "workload.parallelism.ep": 64,
    }
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **cut))
    stages = flags["--pipeline-model-parallel-layout"].split("|")
    assert [stage.count("t") for stage in stages] == [8, 8, 8, 8, 8, 7, 7, 7]
    assert int(flags["--qk-head-dim"]) + int(flags["--qk-pos-emb-head-dim"]) == 192
    assert flags["--moe-layer-freq"] == "([0]*3+[1]*58)"
    interleaved = cut | {
        "workload.parallelism.schedule": "interleaved",
        "workload.parallelism.virtual_stages": 4,
        "workload.parallelism.ends_as_layers": True,
    }
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **interleaved))
    stages = flags["--pipeline-model-parallel-layout"].split("|")
    assert (len(stages), stages[0], stages[-1]) == (32, "Et", "L")
    assert sum(stage.count("t") for stage in stages) == 61
    assert "--num-virtual-stages-per-pipeline-rank" not in flags


def test_torchtitan_flags_multiply_to_the_job(tmp_path):
    flags = flags_of(text_of(sharded(shard=128), "torchtitan", tmp_path, "torchtitan.args"))
    of = {key.rpartition(".")[2]: value for key, value in flags.items()}
    assert (of["data_parallel_replicate_degree"], of["data_parallel_shard_degree"]) == ("8", "128")
    assert of["fsdp_reshard_after_forward"] == "always"
    kept = flags_of(text_of(sharded(reshard=False), "torchtitan", tmp_path, "torchtitan.args"))
    assert kept["--parallelism.fsdp_reshard_after_forward"] == "never"


def test_torchtitan_s_function_changes_a_configuration(tmp_path):
    cut = {
        "workload.parallelism.stages": [19, 21, 21, 19],
        "workload.parallelism.recompute": "none",
        "workload.parallelism.zero": 0,
    }
    text = text_of(LARGE, "torchtitan", tmp_path, "torchtitan_layout.py", **cut)
    made = {}
    exec(text, made)
    config = SimpleNamespace(
        parallelism=SimpleNamespace(), training=SimpleNamespace(), compile=SimpleNamespace()
    )
    assert made["lay_out"](config) is config
    training, ranks = config.training, config.parallelism
    assert training.num_tokens_per_train_step == 512 * training.max_context_length
    assert training.num_tokens_per_microbatch_per_dp_rank == 2 * training.max_context_length
    microbatches = 512 // 2 // ranks.data_parallel_replicate_degree
    assert ranks.num_pp_microbatches == microbatches
    parts = ranks.module_fqns_per_model_part
    layers = [name for part in parts for name in part if name.startswith("layers.")]
    assert layers == [f"layers.{index}" for index in range(80)]
    assert [len(part) for part in parts] == [20, 21, 21, 21]
    assert (parts[0][0], parts[-1][-2:]) == ("tok_embeddings", ["norm", "lm_head"])


def test_every_second_product_again_is_torchtitan_s_and_not_megatron_s(tmp_path):
    cut = {"workload.parallelism.recompute": "alternate", "workload.parallelism.zero": 0}
    flags = flags_of(text_of(LARGE, "torchtitan", tmp_path, "torchtitan.args", **cut))
    assert flags["--activation_checkpoint.mode"] == "selective"
    assert "= SelectiveAC.Config()" in (tmp_path / "torchtitan_layout.py").read_text()
    with pytest.raises(InputError, match="Megatron-LM has no `recompute: alternate`"):
        apply(LARGE, tmp_path, targets=["megatron"], sets=cut)


def test_without_a_pipeline_microbatches_are_steps_of_torchtitan(tmp_path):
    whole = {"workload.global_batch": 8192, "workload.parallelism.microbatches": 1}
    cut = whole | {"workload.parallelism.microbatches": 4}
    few = flags_of(text_of(sharded(), "torchtitan", tmp_path, "torchtitan.args", **whole))
    flags = flags_of(text_of(sharded(), "torchtitan", tmp_path, "torchtitan.args", **cut))
    each = int(few["--training.local_batch_size"])
    assert int(flags["--training.local_batch_size"]) * 4 == each
    assert flags["--training.global_batch_size"] == few["--training.global_batch_size"]


def test_nccl_rows_have_the_fields_of_its_plugin(tmp_path):
    text = text_of(LARGE, "nccl", tmp_path, "nccl_tuner.csv")
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert {len(row) for row in rows} == {8}
    assert {row[3] for row in rows} <= {name for name, _ in _ALGORITHMS.values()}
    assert {row[-1] for row in rows} == {"8", "32"}
    for line in (tmp_path / "nccl.env").read_text().splitlines():
        assert line.startswith("#") or line.partition("=")[1]


def test_nccl_switches_where_it_was_measured_to(tmp_path):
    points = [
        {"from": "1 B", "algorithm": "double_binary_tree"},
        {"from": "1 MiB", "algorithm": "ring"},
    ]
    inner = {"kind": "switch", "size": 8, "bandwidth": "400 GB/s", "latency": "1 us"}
    outer = {"kind": "switch", "size": 32, "bandwidth": "50 GB/s", "latency": "5 us"}
    fabric = {"dimensions": [{**inner, "fastest": {"all_reduce": points}}, outer]}
    auto = {**LARGE, "fabric": fabric, "schedule": {"algorithms": "auto"}}
    text = text_of(auto, "nccl", tmp_path, "nccl_tuner.csv")
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "allreduce,0,1048575,tree,simple,-1,-1,8",
        "allreduce,1048576,4294967295,ring,simple,-1,-1,8",
    ]


def test_what_a_tool_lacks_is_said_and_nothing_is_written(tmp_path):
    written = {one.target: one for one in apply(LARGE, tmp_path)}
    assert set(written) == set(TARGETS)
    assert written["ddp"].files == ()
    assert "`tp: 8`" in written["ddp"].why
    assert written["megatron"].files
    with pytest.raises(InputError, match="DDP has no `tp: 8`"):
        apply(LARGE, tmp_path, targets=["ddp"])
    with pytest.raises(InputError) as error:
        apply(LARGE, tmp_path, targets=["megatrn"])
    assert "did you mean `megatron`" in str(error.value)


def test_the_command_names_its_files(folder, allrail_cli):
    (folder / "job.yaml").write_text(yaml.safe_dump(LARGE))
    told = allrail_cli("apply", "job.yaml", "--out", "files", "--json")
    found = json.loads(told.stdout)
    assert found["megatron"] == {"files": ["files/megatron.args"], "why": None}
    assert found["fsdp"]["files"] == []
    assert "zero" in found["fsdp"]["why"]
