"""Runs what torchtitan does before it touches a GPU, on many lists of flags and configurations.

    python in_torchtitan.py < cases.json > answers.json

torchtitan is whatever `import torchtitan` finds: a release or a checkout on PYTHONPATH. A case is
{"flags": [...], "function": text, "world": ranks, "model": [...], "package": name, "registered":
name, "layers": count}: releases of 0.2 are given the flags, later ones a module whose function
changes a registered configuration.
An answer is {"error": text} or what torchtitan has made of it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import types
from pathlib import Path


def parsed(case, folder: str):
    """The configuration, by torchtitan's own ConfigManager."""
    from torchtitan.config import ConfigManager

    if not has_functions():
        return ConfigManager().parse_args([*case["model"], *case["flags"]])
    name = f"laid_out_{abs(hash(case['function']))}"
    Path(folder, f"{name}.py").write_text(
        f"from torchtitan.models.{case['package']}.config_registry import"
        f" {case['registered']} as registered\n"
        + case["function"]
        + "\n\ndef laid_out():\n    return lay_out(registered())\n"
    )
    return ConfigManager().parse_args(["--module", name, "--config", "laid_out"])


def has_functions() -> bool:
    """Whether configurations are functions of Python (0.3 and later)."""
    import importlib.util

    return importlib.util.find_spec("torchtitan.config.configs") is not None


def dimensions(config, world: int):
    """`ParallelDims`, which checks the degrees, and its meshes over torch's fake backend."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.distributed import ParallelDims

    of = config.parallelism
    if hasattr(ParallelDims, "from_config"):
        dims = ParallelDims.from_config(of, world)
    else:
        dims = ParallelDims(
            dp_shard=of.data_parallel_shard_degree,
            dp_replicate=of.data_parallel_replicate_degree,
            cp=of.context_parallel_degree,
            tp=of.tensor_parallel_degree,
            pp=of.pipeline_parallel_degree,
            ep=of.expert_parallel_degree,
            etp=of.expert_tensor_parallel_degree,
            world_size=world,
        )
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        dims.build_mesh()
    finally:
        dist.destroy_process_group()
    return dims


def stages(config, dims, layers: int) -> list[list[str]]:
    """The modules of each stage, as its pipeline splits a model of so many layers."""
    from torchtitan.distributed import pipeline_parallel as pp

    of = config.parallelism
    if of.module_fqns_per_model_part is not None:
        parts = of.module_fqns_per_model_part
    elif hasattr(pp, "_get_pipeline_metadata"):
        model = types.SimpleNamespace(layers=range(layers))
        parts = pp._generate_llm_fqn_per_model_part(*pp._get_pipeline_metadata(dims, of, model))
    else:
        single = of.pipeline_parallel_schedule in ("GPipe", "1F1B")
        less = (
            of.pipeline_parallel_first_stage_less_layers,
            of.pipeline_parallel_last_stage_less_layers,
        )
        count = dims.pp * (1 if single else 2)
        if of.pipeline_parallel_layers_per_stage:
            count = -(-(layers + sum(less)) // of.pipeline_parallel_layers_per_stage)
        parts = pp.generate_llm_fqn_per_model_part(count, layers, *less)
    if len(parts) % dims.pp:
        raise ValueError(f"{len(parts)} stages over {dims.pp} ranks")
    return parts


def microbatches(config, degree: int) -> tuple[int, int]:
    """Microbatches of a pipeline, and steps whose gradients are summed, as its trainer counts."""
    training, of = config.training, config.parallelism
    if hasattr(training, "local_batch_size"):
        local, whole = training.local_batch_size, training.global_batch_size
        size = of.pipeline_parallel_microbatch_size
        many = local // size if of.pipeline_parallel_degree > 1 else 1
    else:
        many = of.num_pp_microbatches if of.pipeline_parallel_degree > 1 else 1
        local = training.num_tokens_per_microbatch_per_dp_rank * many
        whole = training.num_tokens_per_train_step
    if whole % (local * degree):
        raise ValueError(f"{whole} is no multiple of {local} times {degree}")
    return many, whole // (local * degree)


def schedule(config, count: int, many: int) -> None:
    """Make PyTorch's schedule of so many stages: it refuses what it cannot run."""
    import torch
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

    of = config.parallelism
    found = get_schedule_class(of.pipeline_parallel_schedule)
    ranks = of.pipeline_parallel_degree
    own = [
        types.SimpleNamespace(
            stage_index=index,
            num_stages=count,
            group_size=ranks,
            group_rank=0,
            group=None,
            is_first=index == 0,
            is_last=index == count - 1,
            has_backward=True,
            submod=torch.nn.Linear(1, 1),
            device="cpu",
            get_mesh=None,
            stage_index_to_group_rank=None,
        )
        for index in range(0, count, ranks)
    ]
    try:
        found(
            own if issubclass(found, PipelineScheduleMulti) else own[0],
            n_microbatches=many,
            loss_fn=lambda *_: None,
        )
    except AttributeError:
        return  # it has begun to look at the stages: what it refuses it has refused


def answer(case, folder: str) -> dict[str, object]:
    """What torchtitan says to one case."""
    config = parsed(case, folder)
    of, training = config.parallelism, config.training
    dims = dimensions(config, case["world"])
    degree = dims.dp_replicate * dims.dp_shard
    many, steps = microbatches(config, degree)
    parts = stages(config, dims, case["layers"]) if dims.pp > 1 else []
    if parts:
        schedule(config, len(parts), many)
    checkpoint = config.activation_checkpoint
    return {
        "degrees": [dims.pp, dims.dp_replicate, dims.dp_shard, dims.cp, dims.tp, dims.ep],
        "microbatches": many,
        "steps": steps,
        "tokens": getattr(training, "seq_len", None) or training.max_context_length,
        "parts": parts,
        "schedule": of.pipeline_parallel_schedule,
        "reshard": of.fsdp_reshard_after_forward,
        "compiled": config.compile.enable,
        "checkpoint": getattr(checkpoint, "mode", type(checkpoint).__qualname__),
        "option": getattr(checkpoint, "selective_ac_option", None),
    }


def main() -> None:
    """Answer the cases on the standard input."""
    answers = []
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for case in cases:
            try:
                answers.append(answer(case, folder))
            except SystemExit as stop:
                answers.append({"error": f"its parser stopped with status {stop.code}"})
            except Exception as why:  # noqa: BLE001, whatever it says is the answer
                answers.append({"error": f"{type(why).__name__}: {why}"})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
