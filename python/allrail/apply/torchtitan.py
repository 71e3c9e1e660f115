"""torchtitan: the flags of a layout, as its command line takes them."""

from __future__ import annotations

from allrail.apply.decision import Decision, Inapplicable

ABOUT = "the flags of torchtitan for the layout"

_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero_bubble": "ZBVZeroBubble",
}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"}
_FLOAT8 = {"fp8_tensorwise": "tensorwise", "fp8_rowwise": "rowwise"}


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: torchtitan cannot do it.
    """
    decision.needs("torchtitan", op=1, schedule=tuple(_SCHEDULES), zero=(0, 2, 3))
    precision, recipe = decision.workload["precision"], decision.workload["compute"]["recipe"]
    if precision not in _DTYPES:
        raise Inapplicable(f"torchtitan has no `precision: {precision}`")
    if recipe not in ("plain", *_FLOAT8):
        raise Inapplicable(f"torchtitan has no recipe `{recipe}`")
    flags = [*_ranks(decision), *_pipeline(decision)]
    flags += [
        f"--training.local_batch_size {decision.samples}",
        f"--training.global_batch_size {decision.global_batch}",
        f"--training.mixed_precision_param {_DTYPES[precision]}",
    ]
    if decision.sequence:
        flags.append(f"--training.seq_len {decision.sequence}")
    flags.append(f"--activation_checkpoint.mode {decision.parallelism['recompute']}")
    if decision.workload["compute"]["launch"] != "eager":
        flags.append("--compile.enable")
    notes = []
    if recipe in _FLOAT8:
        name = _FLOAT8[recipe]
        notes.append(f"# float8: --model.converters float8, with the recipe {name}\n")
    if decision.parallelism["async_tp"]:
        notes.append(
            "# asynchronous TP: --parallelism.enable_async_tensor_parallel, or, in later\n"
        )
        notes.append("# versions, the transform `async_tensor_parallel`\n")
    head = [
        decision.title(),
        "# run_train.sh $(grep -v '^#' torchtitan.args), or the same keys in the job's config\n",
    ]
    return {"torchtitan.args": "".join([*head, *(f"{flag}\n" for flag in flags), *notes])}


def _ranks(decision: Decision) -> list[str]:
    degrees, parallelism = decision.degrees, decision.parallelism
    replicas = decision.replicas
    shard = parallelism.get("shard") or replicas if parallelism["zero"] else 1
    flags = [
        f"--parallelism.data_parallel_replicate_degree {replicas // shard}",
        f"--parallelism.data_parallel_shard_degree {shard}",
        f"--parallelism.tensor_parallel_degree {degrees['tp']}",
        f"--parallelism.context_parallel_degree {degrees['cp']}",
        f"--parallelism.pipeline_parallel_degree {degrees['pp']}",
    ]
    if degrees["ep"] > 1:
        flags.append(f"--parallelism.expert_parallel_degree {degrees['ep']}")
    if parallelism["zero"]:
        given_back = parallelism["zero"] == 3 and parallelism["reshard"]
        how = "always" if given_back else "never"
        flags.append(f"--parallelism.fsdp_reshard_after_forward {how}")
    return flags


def _pipeline(decision: Decision) -> list[str]:
    if decision.degrees["pp"] == 1:
        return []
    name = _SCHEDULES[decision.parallelism["schedule"]]
    flags = [
        f"--parallelism.pipeline_parallel_schedule {name}",
        f"--parallelism.pipeline_parallel_microbatch_size {decision.micro_batch}",
    ]
    less = int(decision.parallelism["ends_as_layers"])
    return [
        *flags,
        f"--parallelism.pipeline_parallel_first_stage_less_layers {less}",
        f"--parallelism.pipeline_parallel_last_stage_less_layers {less}",
    ]
