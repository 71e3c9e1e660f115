"""torchtitan: flags of its releases up to 0.2, and a change of a `Trainer.Config` for later ones.

From 0.3 on it is configured by functions of Python. What batches are called has changed again
after 0.3.0; the function looks which names there are. A long test has torchtitan's own parsers,
meshes and pipelines read what is written here. What no version does is in `layouts/tools.py`; what
0.2 alone does not do, here.
"""

from __future__ import annotations

from allrail.targets.decision import Decision, Inapplicable

ABOUT = "the flags of torchtitan for the layout"

_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    # One stage a rank: ZB-H1. `ZBVZeroBubble` has two, in a V.
    "zero_bubble": "InterleavedZeroBubble",
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
    if decision.transformer is None:
        raise Inapplicable("torchtitan trains transformers, and this model is given otherwise")
    found = {"torchtitan.args": _flags(decision), "torchtitan_layout.py": _function(decision)}
    if _lacking_in_flags(decision):
        del found["torchtitan.args"]
    return found


def _lacking_in_flags(decision: Decision) -> str:
    """What releases up to 0.2 lack and later ones have; empty if nothing."""
    degrees, parallelism = decision.degrees, decision.parallelism
    if parallelism["zero"] == 0 and decision.replicas > 1 and decision.replicas < decision.npus:
        return "`zero: 0` beside `tp`, `cp` or `pp`"
    if degrees["tp"] > 1 and not parallelism["sp"]:
        return "`tp` without `sp`"
    if decision.graphs:
        return "`launch: graph`"
    return ""


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
    parallelism = decision.parallelism
    fields: dict[str, object] = {"pipeline_parallel_schedule": _SCHEDULES[parallelism["schedule"]]}
    if not _names_modules(decision):
        less = int(parallelism["ends_as_layers"])
        fields["pipeline_parallel_first_stage_less_layers"] = less
        fields["pipeline_parallel_last_stage_less_layers"] = less
        if parallelism["schedule"] == "interleaved":
            fields["pipeline_parallel_layers_per_stage"] = decision.stages[0]
    return {f"parallelism.{key}": value for key, value in fields.items()}


def _names_modules(decision: Decision) -> bool:
    """Whether torchtitan's own way to split a model gives other stages."""
    # It gives what schedules of several stages a rank run at least two.
    cut = decision.degrees["pp"] > 1
    return cut and (decision.is_uneven or decision.parallelism["schedule"] == "zero_bubble")


def _shared(decision: Decision) -> dict[str, object]:
    """Fields that all versions have."""
    fields = _ranks(decision) | _pipeline(decision)
    fields["training.mixed_precision_param"] = _DTYPES[decision.workload["precision"]]
    fields["compile.enable"] = decision.workload["compute"]["launch"] != "eager"
    return fields


def _flags(decision: Decision) -> str:
    """The command line of releases up to 0.2."""
    piped = decision.degrees["pp"] > 1
    fields = _shared(decision) | {
        # Without a pipeline microbatches are steps whose gradients are summed.
        "training.local_batch_size": decision.samples if piped else decision.micro_batch,
        "training.global_batch_size": decision.global_batch,
        "activation_checkpoint.mode": _CHECKPOINTS[decision.parallelism["recompute"]][0],
    }
    if fields["activation_checkpoint.mode"] == "selective":
        # By operators; its default repeats every second layer.
        fields["activation_checkpoint.selective_ac_option"] = "op"
    if piped:
        fields["parallelism.pipeline_parallel_microbatch_size"] = decision.micro_batch
    if decision.sequence:
        fields["training.seq_len"] = decision.sequence
    if decision.degrees["cp"] > 1:
        way = "allgather" if decision.parallelism["context"] == "all_gather" else "alltoall"
        fields["parallelism.context_parallel_rotate_method"] = way
    if decision.parallelism["async_tp"]:
        fields["parallelism.enable_async_tensor_parallel"] = True
    lines = [_flag(key, value) for key, value in fields.items()]
    recipe = decision.workload["compute"]["recipe"]
    if recipe in _FLOAT8:
        lines.append("--model.converters quantize.linear.float8")
        if recipe == "fp8_rowwise":
            lines.append("--quantize.linear.float8.recipe_name rowwise")
    if _names_modules(decision):
        parts = " ".join(",".join(part) for part in _parts(decision, head="output"))
        lines.append(f"--parallelism.module_fqns_per_model_part {parts}")
    head = [
        decision.title(),
        "# torchtitan up to 0.2: run_train.sh $(grep -v '^#' torchtitan.args)\n",
    ]
    return "".join([*head, *(f"{line}\n" for line in lines)])


def _flag(key: str, value: object) -> str:
    section, _, name = key.rpartition(".")
    if isinstance(value, bool):
        return f"--{section}.{'' if value else 'no_'}{name}"
    return f"--{key} {value}"


def _function(decision: Decision) -> str:
    """A change of the configuration of later versions."""
    fields = _shared(decision)
    if decision.degrees["tp"] > 1:
        fields["parallelism.enable_sequence_parallel"] = bool(decision.parallelism["sp"])
    if decision.parallelism["async_tp"]:
        fields["compile.enable_async_tensor_parallel"] = True
    fields["training.disable_cuda_graphs"] = not decision.graphs
    lines = [f"    config.{key} = {value!r}" for key, value in fields.items()]
    lines += _batches(decision)
    if _names_modules(decision):
        lines.append("    config.parallelism.module_fqns_per_model_part = [")
        lines += [f"        {part!r}," for part in _parts(decision, head="lm_head")]
        lines.append("    ]")
    checkpoint = _CHECKPOINTS[decision.parallelism["recompute"]][1]
    lines.append(f"    config.activation_checkpoint = {checkpoint}")
    imported = checkpoint.partition(".")[0]
    return "".join(
        [
            decision.title(),
            "# torchtitan from 0.3 on: call it in the function that --config names.\n",
            *_notes(decision),
            "\n" * (imported != "None"),
            f"from torchtitan.distributed.activation_checkpoint import {imported}\n"
            * (imported != "None"),
            "\n\ndef lay_out(config):\n",
            '    """Change a `Trainer.Config` to this layout, and return it."""\n',
            *(f"{line}\n" for line in lines),
            "    return config\n",
        ]
    )


def _batches(decision: Decision) -> list[str]:
    """Batches and samples, which 0.3.0 and what came after it name otherwise."""
    piped, tokens = decision.degrees["pp"] > 1, decision.sequence
    if not tokens:
        return []
    each = decision.samples if piped else decision.micro_batch
    before = [
        f"config.training.seq_len = {tokens}",
        f"config.training.local_batch_size = {each}",
        f"config.training.global_batch_size = {decision.global_batch}",
    ]
    after = [
        f"config.training.max_context_length = {tokens}",
        f"config.training.num_tokens_per_microbatch_per_dp_rank = {decision.micro_batch * tokens}",
        f"config.training.num_tokens_per_train_step = {decision.global_batch * tokens}",
    ]
    if piped:
        size = decision.micro_batch
        before.append(f"config.parallelism.pipeline_parallel_microbatch_size = {size}")
        after.append(f"config.parallelism.num_pp_microbatches = {decision.microbatches}")
    return [
        '    if hasattr(config.training, "local_batch_size"):  # 0.3.0',
        *(f"        {line}" for line in before),
        "    else:",
        *(f"        {line}" for line in after),
    ]


def _notes(decision: Decision) -> list[str]:
    """Comments: what the function leaves to the model's own configuration, and what differs."""
    notes = []
    why = _lacking_in_flags(decision)
    if why:
        notes.append(f"# Releases up to 0.2 have no {why}: there is no torchtitan.args.\n")
    workload = decision.workload
    if not workload.get("gradient_precision") and workload["precision"] != "fp32":
        notes.append(f"# Gradients are summed in fp32 there; simulated: {workload['precision']},\n")
        notes.append("# since the scenario says no `workload.gradient_precision`.\n")
    recipe = workload["compute"]["recipe"]
    if recipe in _FLOAT8:
        notes.append(
            f"# The model's linear layers need its Float8LinearConverter, {_FLOAT8[recipe]}.\n"
        )
    if decision.degrees["cp"] > 1 and decision.parallelism["context"] != "all_gather":
        notes.append("# Keys and values of `cp` are gathered there, and not sent in a ring.\n")
    return notes


def _parts(decision: Decision, *, head: str) -> list[list[str]]:
    """The modules of each stage, as torchtitan's decoders name them; versions name the head."""
    parts, layer = [], 0
    for count in decision.layers:
        parts.append([f"layers.{index}" for index in range(layer, layer + count)])
        layer += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", head]
    return parts
