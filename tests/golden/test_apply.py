"""`allrail apply`: what is written says what was decided, and is read by whom it is for."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import yaml

from allrail import simulate
from allrail.base.errors import InputError
from allrail.runtime.job import find_job
from allrail.targets import TARGETS, apply_to

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
    apply_to(scenario, folder, targets=[target], sets=sets)
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
    # The first one closes at 1 MiB, as DDP's does where nobody says a cap.
    assert f"bucket_cap_mb_list=[1, {6e6 / 2**20:.6g}]" in text
    rows = [line[1:].split() for line in text.splitlines() if line.startswith("#  ")]
    sizes = [int(size.replace(",", "")) for size, _ in rows]
    # All gradients, once.
    memory = simulate(scenario).memory
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


def test_megatron_is_told_what_its_validation_asks_for(tmp_path):
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args"))
    assert int(flags["--max-position-embeddings"]) >= int(flags["--seq-length"])
    assert (flags["--rotary-base"], flags["--vocab-size"]) == ("500000", "128256")
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun" in (tmp_path / "megatron.args").read_text()
    learned = {"workload.model": "gpt3_175b"}
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **learned))
    assert flags["--position-embedding-type"] == "learned_absolute"
    assert flags["--max-position-embeddings"] == "2048"
    assert "--rotary-base" not in flags


def test_positions_are_those_of_a_hugging_face_configuration(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 5632,
        "vocab_size": 32000,
        "tie_word_embeddings": True,
        "max_position_embeddings": 131072,
        "rope_theta": 250000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 16.0},
    }
    cut = {"workload.model": {"hugging_face": config}, "workload.sequence_length": 8192}
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **cut))
    assert (flags["--max-position-embeddings"], flags["--seq-length"]) == ("131072", "8192")
    assert (flags["--rotary-base"], flags["--rope-scaling-factor"]) == ("250000", "16.0")
    assert "--untie-embeddings-and-output-weights" not in flags
    # transformers 5 writes the base into an object of its own.
    config["rope_parameters"] = {"rope_theta": 750000.0, "rope_type": "default"}
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **cut))
    assert flags["--rotary-base"] == "750000"
    assert "--use-rope-scaling" not in flags


def test_experts_of_some_layers_and_of_one_choice_are_said_to_megatron(tmp_path):
    cut = {
        "workload.model": "llama4_maverick",
        "workload.micro_batch": 1,
        "workload.parallelism.ep": 8,
    }
    flags = flags_of(text_of(LARGE, "megatron", tmp_path, "megatron.args", **cut))
    assert flags["--moe-layer-freq"] == "([0]*1+[1]*1)*24"
    assert flags["--moe-router-pre-softmax"] is True


@pytest.mark.parametrize(
    ("precision", "summed", "flag"),
    [
        ("bf16", None, "--grad-reduce-in-bf16"),
        ("bf16", "bf16", "--grad-reduce-in-bf16"),
        ("bf16", "fp32", None),
        ("fp16", "fp32", "--accumulate-allreduce-grads-in-fp32"),
        ("fp16", None, None),
        ("fp32", None, None),
    ],
)
def test_gradients_travel_in_the_precision_that_was_simulated(tmp_path, precision, summed, flag):
    workload = {**LARGE["workload"], "precision": precision, "gradient_precision": summed}
    scenario = {**LARGE, "workload": {key: one for key, one in workload.items() if one}}
    flags = flags_of(text_of(scenario, "megatron", tmp_path, "megatron.args"))
    said = {"--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"} & set(flags)
    assert said == ({flag} if flag else set())


@pytest.mark.parametrize(
    ("tool", "cut", "why"),
    [
        ("torchtitan", {"zero": 1}, "torchtitan has no `zero: 1`"),
        ("torchtitan", {"zero": 2, "microbatches": 2}, "no `1f1b` of 2 microbatches over 4"),
        ("torchtitan", {"zero": 0, "cp": 2}, "shares states over the ranks of `cp`"),
        ("megatron", {"schedule": "zero_bubble"}, "Megatron-LM has no `schedule: zero_bubble`"),
        (
            "megatron",
            {"schedule": "interleaved", "pp": 2, "overlap_messages": False},
            "interleaves two stages with `overlap_messages` alone",
        ),
    ],
)
def test_a_layout_that_a_tool_would_refuse_gets_no_file(tmp_path, tool, cut, why):
    sets = {f"workload.parallelism.{key}": value for key, value in cut.items()}
    if "microbatches" in cut:
        sets["workload.micro_batch"] = 8
    with pytest.raises(InputError) as error:
        apply_to(LARGE, tmp_path, targets=[tool], sets=sets)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("bert_large", "has no `head: pretraining`"),
        ("transformer_big", "trains decoders of words"),
        ("resnet50", "trains transformers"),
        ("gpt3_moe", "cuts no experts with biases over `tp`"),
    ],
)
def test_a_model_that_megatron_does_not_build_gets_no_file(tmp_path, model, why):
    layout = {"tp": 2 if "gpt3" in model else 1, "sp": "gpt3" in model, "dp": 64}
    compute = {"device": "h100", "memory": "9 TB"}
    scenario = {**LARGE, "workload": {"model": model, "parallelism": layout, "compute": compute}}
    with pytest.raises(InputError, match=why):
        apply_to(scenario, tmp_path, targets=["megatron"])


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


def configuration(**training):
    """A `Trainer.Config` of torchtitan, as far as the function looks at it."""
    return SimpleNamespace(
        parallelism=SimpleNamespace(),
        training=SimpleNamespace(**training),
        compile=SimpleNamespace(),
    )


@pytest.mark.parametrize(("pp", "each"), [(1, 2), (4, 32)])
def test_torchtitan_s_function_counts_batches_as_its_version_does(tmp_path, pp, each):
    cut = {"workload.parallelism.zero": 2, "workload.parallelism.pp": pp}
    cut |= {"workload.parallelism.dp": 64 // pp, "workload.global_batch": 2048 // pp}
    made = {}
    exec(text_of(LARGE, "torchtitan", tmp_path, "torchtitan_layout.py", **cut), made)
    released = made["lay_out"](configuration(local_batch_size=8))  # 0.3.0
    assert released.training.local_batch_size == each
    assert released.training.global_batch_size == 2048 // pp
    later = made["lay_out"](configuration())
    assert not hasattr(later.training, "local_batch_size")
    tokens = later.training.max_context_length
    assert tokens == released.training.seq_len
    assert later.training.num_tokens_per_train_step == tokens * 2048 // pp
    assert later.training.num_tokens_per_microbatch_per_dp_rank == 2 * tokens
    if pp > 1:
        assert released.parallelism.pipeline_parallel_microbatch_size == 2
        assert later.parallelism.num_pp_microbatches == each // 2


def test_torchtitan_s_zero_bubble_has_one_stage_a_rank(tmp_path):
    cut = {"workload.parallelism.schedule": "zero_bubble", "workload.parallelism.zero": 2}
    flags = flags_of(text_of(LARGE, "torchtitan", tmp_path, "torchtitan.args", **cut))
    assert flags["--parallelism.pipeline_parallel_schedule"] == "InterleavedZeroBubble"
    text = (tmp_path / "torchtitan.args").read_text()
    parts = text.split("module_fqns_per_model_part ")[1].splitlines()[0].split()
    assert [part.count("layers.") for part in parts] == [20] * 4
    # Releases up to 0.2 call the head otherwise.
    assert parts[-1].endswith(",norm,output")
    assert "'lm_head'" in (tmp_path / "torchtitan_layout.py").read_text()


def test_what_old_releases_of_torchtitan_lack_is_said_to_new_ones(tmp_path):
    cut = {"workload.parallelism.zero": 0}
    (written,) = apply_to(LARGE, tmp_path, targets=["torchtitan"], sets=cut)
    assert [path.name for path in written.files] == ["torchtitan_layout.py"]
    text = written.files[0].read_text()
    assert "up to 0.2 have no `zero: 0` beside `tp`, `cp` or `pp`" in text


def test_torchtitan_s_function_changes_a_configuration(tmp_path):
    cut = {
        "workload.parallelism.stages": [19, 21, 21, 19],
        "workload.parallelism.recompute": "none",
        "workload.parallelism.zero": 0,
    }
    text = text_of(LARGE, "torchtitan", tmp_path, "torchtitan_layout.py", **cut)
    made = {}
    exec(text, made)
    config = configuration()
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
    cut = {"workload.parallelism.recompute": "alternate", "workload.parallelism.zero": 2}
    flags = flags_of(text_of(LARGE, "torchtitan", tmp_path, "torchtitan.args", **cut))
    assert flags["--activation_checkpoint.mode"] == "selective"
    # Its own default repeats every second layer.
    assert flags["--activation_checkpoint.selective_ac_option"] == "op"
    assert "= SelectiveAC.Config()" in (tmp_path / "torchtitan_layout.py").read_text()
    with pytest.raises(InputError, match="Megatron-LM has no `recompute: alternate`"):
        apply_to(LARGE, tmp_path, targets=["megatron"], sets=cut)


def test_without_a_pipeline_microbatches_are_steps_of_torchtitan(tmp_path):
    whole = {"workload.global_batch": 8192, "workload.parallelism.microbatches": 1}
    cut = whole | {"workload.parallelism.microbatches": 4}
    few = flags_of(text_of(sharded(), "torchtitan", tmp_path, "torchtitan.args", **whole))
    flags = flags_of(text_of(sharded(), "torchtitan", tmp_path, "torchtitan.args", **cut))
    each = int(few["--training.local_batch_size"])
    assert int(flags["--training.local_batch_size"]) * 4 == each
    assert flags["--training.global_batch_size"] == few["--training.global_batch_size"]


def test_algorithms_by_name_leave_protocols_to_nccl(tmp_path):
    (written,) = apply_to(LARGE, tmp_path, targets=["nccl"])
    # A row would force Simple on small messages, too.
    assert [path.name for path in written.files] == ["nccl.env"]
    lines = written.files[0].read_text().splitlines()
    assert "NCCL_ALGO=Ring" in lines
    assert not any("NCCL_PROTO" in line.partition("=")[0] for line in lines)
    assert all(line.startswith("#") or line.partition("=")[1] for line in lines)
    # Trees are of all-reduces alone.
    fabric = {"dimensions": REPLICAS["fabric"]["dimensions"][:1]}
    trees = {**REPLICAS, "fabric": fabric, "schedule": {"algorithms": ["double_binary_tree"]}}
    assert 'NCCL_ALGO="allreduce:tree"' in text_of(trees, "nccl", tmp_path / "tree", "nccl.env")


def measured(*points, dimension=0):
    """A scenario whose dimension was measured to switch, with algorithms left open."""
    found = {"all_reduce": [{"from": start, "algorithm": name} for start, name in points]}
    inner = {"kind": "switch", "size": 8, "bandwidth": "400 GB/s", "latency": "1 us"}
    outer = {"kind": "switch", "size": 32, "bandwidth": "50 GB/s", "latency": "5 us"}
    both = [inner, outer]
    both[dimension] = {**both[dimension], "fastest": found}
    return {**LARGE, "fabric": {"dimensions": both}, "schedule": {"algorithms": "auto"}}


@pytest.mark.parametrize("dimension", [0, 1])
def test_nccl_switches_where_it_was_measured_to(tmp_path, dimension):
    points = [("1 B", "double_binary_tree"), ("64 MiB", "ring")]
    auto = measured(*points, dimension=dimension)
    text = text_of(auto, "nccl", tmp_path, "nccl_tuner.csv")
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert {len(row) for row in rows} == {10}
    spans = {row[3]: (int(row[1]), int(row[2])) for row in rows}
    assert spans["ring"] == (64 * 2**20, 2**64 - 1)
    # Small sizes are LL's and LL128's, which a row would have to name: they are left to NCCL.
    assert spans.get("tree", (2**20,))[0] >= 2**20
    assert all(last == 64 * 2**20 - 1 for name, (_, last) in spans.items() if name == "tree")
    left = [line for line in text.splitlines() if "left to NCCL" in line]
    assert left
    assert left[0].startswith("# allreduce of 0 to")
    env = (tmp_path / "nccl.env").read_text()
    assert "nChannels = 0" in env
    assert "NCCL_ALGO" not in env


def test_what_a_tool_lacks_is_said_and_nothing_is_written(tmp_path):
    written = {one.target: one for one in apply_to(LARGE, tmp_path)}
    assert set(written) == set(TARGETS)
    assert written["ddp"].files == ()
    assert "`tp: 8`" in written["ddp"].why
    assert written["megatron"].files
    with pytest.raises(InputError, match="DDP has no `tp: 8`"):
        apply_to(LARGE, tmp_path, targets=["ddp"])
    with pytest.raises(InputError) as error:
        apply_to(LARGE, tmp_path, targets=["megatrn"])
    assert "did you mean `megatron`" in str(error.value)


def test_the_command_names_its_files(folder, allrail_cli):
    (folder / "job.yaml").write_text(yaml.safe_dump(LARGE))
    told = allrail_cli("apply", "job.yaml", "--out", "files", "--json")
    found = json.loads(told.stdout)
    left = ["schedule.algorithms: [ring, ring]"]
    assert found["megatron"] == {"files": ["files/megatron.args"], "why": None, "left": left}
    assert found["fsdp"]["files"] == []
    assert "zero" in found["fsdp"]["why"]


def test_what_a_tool_leaves_to_others_is_in_its_line(folder, allrail_cli):
    (folder / "job.yaml").write_text(yaml.safe_dump(LARGE))
    told = allrail_cli("apply", "job.yaml", "--out", "files", "--for", "megatron")
    line = "megatron  files/megatron.args; not in it: schedule.algorithms: [ring, ring]\n"
    assert told.stdout == line
