"""torchtitan: flags of its releases up to 0.2, and a change of a `Trainer.Config` for later ones.

Later versions are configured by functions of Python; what batches are called has changed, too.
"""

from __future__ import annotations

from allrail.apply.decision import Decision

ABOUT = "the flags of torchtitan for the layout"

_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero_bubble": "ZBVZeroBubble",
}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
_FLOAT8 = {"fp8_tensorwise": "tensorwise", "fp8_rowwise": "rowwise"}
_CHECKPOINTS = {
    "none": ("none", "None"),
    "alternate": ("selective", "SelectiveAC.Config()"),
    "full": ("full", "FullAC.Config()"),
}
"""By `recompute`: the mode of the flags, and of a `Trainer.Config`."""


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: torchtitan cannot do it.
    """
    decision.needs("torchtitan")
    shared = _ranks(decision) | _pipeline(decision)
    shared["training.mixed_precision_param"] = _DTYPES[decision.workload["precision"]]
    if decision.workload["compute"]["launch"] != "eager":
        shared["compile.enable"] = True
    return {
        "torchtitan.args": _flags(decision, shared),
        "torchtitan_layout.py": _function(decision, shared),
    }


def _ranks(decision: Decision) -> dict[str, object]:
    degrees, parallelism = decision.degrees, decision.parallelism
    replicas = decision.replicas
    shard = parallelism.get("shard") or replicas if parallelism["zero"] else 1
    fields: dict[str, object] = {
        "data_parallel_replicate_degree": replicas // shard,
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": degrees["tp"],
        "context_parallel_degree": degrees["cp"],
        "pipeline_parallel_degree": degrees["pp"],
    }
    if degrees["ep"] > 1:
        fields["expert_parallel_degree"] = degrees["ep"]
    if parallelism["zero"]:
        given_back = parallelism["zero"] == 3 and parallelism["reshard"]
        fields["fsdp_reshard_after_forward"] = "always" if given_back else "never"
    return {f"parallelism.{key}": value for key, value in fields.items()}


def _pipeline(decision: Decision) -> dict[str, object]:
    if decision.degrees["pp"] == 1:
        return {}
    fields: dict[str, object] = {
        "pipeline_parallel_schedule": _SCHEDULES[decision.parallelism["schedule"]]
    }
    if not decision.is_uneven:
        less = int(decision.parallelism["ends_as_layers"])
        fields["pipeline_parallel_first_stage_less_layers"] = less
        fields["pipeline_parallel_last_stage_less_layers"] = less
    return {f"parallelism.{key}": value for key, value in fields.items()}


def _flags(decision: Decision, shared: dict[str, object]) -> str:
    """The command line of releases up to 0.2."""
    piped = decision.degrees["pp"] > 1
    fields = shared | {
        # Without a pipeline microbatches are steps whose gradients are summed.
        "training.local_batch_size": decision.samples if piped else decision.micro_batch,
        "training.global_batch_size": decision.global_batch,
        "activation_checkpoint.mode": _CHECKPOINTS[decision.parallelism["recompute"]][0],
    }
    if piped:
        fields["parallelism.pipeline_parallel_microbatch_size"] = decision.micro_batch
    if decision.sequence:
        fields["training.seq_len"] = decision.sequence
    if decision.parallelism["async_tp"]:
        fields["parallelism.enable_async_tensor_parallel"] = True
    lines = [f"--{key}" if value is True else f"--{key} {value}" for key, value in fields.items()]
    recipe = decision.workload["compute"]["recipe"]
    if recipe in _FLOAT8:
        lines.append("--model.converters quantize.linear.float8")
        if recipe == "fp8_rowwise":
            lines.append("--quantize.linear.float8.recipe_name rowwise")
    if decision.is_uneven:
        lines.append("# uneven stages: `parallelism.module_fqns_per_model_part`, as in")
        lines.append("# torchtitan_layout.py")
    head = [
        decision.title(),
        "# torchtitan up to 0.2: run_train.sh $(grep -v '^#' torchtitan.args)\n",
    ]
    return "".join([*head, *(f"{line}\n" for line in lines)])


def _function(decision: Decision, shared: dict[str, object]) -> str:
    """A change of the configuration of later versions."""
    fields = dict(shared)
    if decision.sequence:
        tokens = decision.micro_batch * decision.sequence
        fields |= {
            "training.num_tokens_per_microbatch_per_dp_rank": tokens,
            "training.num_tokens_per_train_step": decision.global_batch * decision.sequence,
            "training.max_context_length": decision.sequence,
        }
    if decision.degrees["pp"] > 1:
        fields["parallelism.num_pp_microbatches"] = decision.microbatches
    if decision.parallelism["async_tp"]:
        fields["compile.enable_async_tensor_parallel"] = True
    fields["training.disable_cuda_graphs"] = not decision.graphs
    lines = [f"    config.{key} = {value!r}" for key, value in fields.items()]
    if decision.is_uneven:
        lines.append("    config.parallelism.module_fqns_per_model_part = [")
        lines += [f"        {part!r}," for part in _parts(decision)]
        lines.append("    ]")
    checkpoint = _CHECKPOINTS[decision.parallelism["recompute"]][1]
    lines.append(f"    config.activation_checkpoint = {checkpoint}")
    imported = checkpoint.partition(".")[0]
    recipe = decision.workload["compute"]["recipe"]
    notes = []
    if recipe in _FLOAT8:
        notes = [
            f"# The model's linear layers need its Float8LinearConverter, {_FLOAT8[recipe]}.\n"
        ]
    return "".join(
        [
            decision.title(),
            "# torchtitan after 0.2: call it in the function that --config names.\n",
            *notes,
            "\n" * (imported != "None"),
            f"from torchtitan.distributed.activation_checkpoint import {imported}\n"
            * (imported != "None"),
            "\n\ndef lay_out(config):\n",
            '    """Change a `Trainer.Config` to this layout, and return it."""\n',
            *(f"{line}\n" for line in lines),
            "    return config\n",
        ]
    )


def _parts(decision: Decision) -> list[list[str]]:
    """The modules of each stage, as torchtitan's decoders name them."""
    parts, layer = [], 0
    for count in decision.layers:
        parts.append([f"layers.{index}" for index in range(layer, layer + count)])
        layer += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts
