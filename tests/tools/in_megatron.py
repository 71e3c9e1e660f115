"""Runs what Megatron-LM's `pretrain_gpt.py` does before it touches a GPU, on many lists of flags.

    python in_megatron.py CHECKOUT < cases.json > answers.json

A case is {"flags": [...], "world": ranks, "env": {...}}; an answer is {"error": text} or what
Megatron-LM has made of the flags. Parsing, validation and every configuration are Megatron-LM's
own; its process groups are made over torch's fake backend. What a machine without GPUs lacks is
stood in for: the capability of a device (Hopper) and the version of Transformer Engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import types
import typing
import warnings


def stand_in(checkout: str) -> None:
    """Make the checkout importable here."""
    sys.path.insert(0, checkout)
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda method: method
    import torch
    from packaging.version import Version

    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)
    torch.cuda.current_device = lambda: "cpu"
    import megatron.core.utils

    megatron.core.utils._te_version = Version("2.12.0")
    from megatron.core.models.common.embeddings import rope_utils

    rope_utils.fused_apply_rotary_pos_emb = print  # Transformer Engine's; it is not called


def groups(args) -> dict[str, list[int]]:
    """The ranks that rank 0 meets on each axis, as Megatron-LM numbers them."""
    import torch.distributed as dist
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=args.world_size)
    try:
        parallel_state.initialize_model_parallel(
            args.tensor_model_parallel_size,
            args.pipeline_model_parallel_size,
            args.virtual_pipeline_model_parallel_size,
            context_parallel_size=args.context_parallel_size,
            expert_model_parallel_size=args.expert_model_parallel_size,
            num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            expert_tensor_parallel_size=args.expert_tensor_parallel_size,
            order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
            create_gloo_process_groups=False,
        )
        found = {
            "tp": parallel_state.get_tensor_model_parallel_group(),
            "pp": parallel_state.get_pipeline_model_parallel_group(),
            "cp": parallel_state.get_context_parallel_group(),
            "ep": parallel_state.get_expert_model_parallel_group(),
            "dp": parallel_state.get_data_parallel_group(),
        }
        return {axis: sorted(dist.get_process_group_ranks(group)) for axis, group in found.items()}
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def answer(case) -> dict[str, object]:
    """What Megatron-LM says to one case."""
    from megatron.training import arguments
    from megatron.training.argument_utils import (
        gpt_config_from_args,
        pretrain_cfg_container_from_args,
    )

    for name in ("CUDA_DEVICE_MAX_CONNECTIONS",):
        os.environ.pop(name, None)
    os.environ.update(case["env"], WORLD_SIZE=str(case["world"]), RANK="0")
    sys.argv = ["pretrain_gpt.py", *case["flags"]]
    args = arguments.validate_args(arguments.parse_args(), {"tokenizer_type": "GPT2BPETokenizer"})
    model = gpt_config_from_args(args)
    whole = pretrain_cfg_container_from_args(args, model)
    config = model.transformer
    microbatches = args.global_batch_size // (args.micro_batch_size * args.data_parallel_size)
    virtual = args.virtual_pipeline_model_parallel_size or 1
    if virtual > 1 and (microbatches < args.pipeline_model_parallel_size):
        raise ValueError("fewer microbatches than stages")
    layout = config.pipeline_model_parallel_layout
    return {
        "data_parallel": args.data_parallel_size,
        "microbatches": microbatches,
        "virtual": virtual,
        "layers": config.num_layers,
        "vocabulary": model.vocab_size,
        "positions": args.max_position_embeddings,
        "rotary_base": args.rotary_base,
        "position_embedding": model.position_embedding_type,
        "tied": model.share_embeddings_and_output_weights,
        "query_groups": config.num_query_groups,
        "experts": config.num_moe_experts,
        "parameters": str(args.params_dtype),
        "reduced_in_fp32": whole.ddp.grad_reduce_in_fp32,
        "sharded_optimizer": whole.ddp.use_distributed_optimizer,
        "bucket": whole.ddp.bucket_size,
        "stages": None
        if layout is None
        else [[len(one) for one in rank] for rank in layout.layout],
        "groups": groups(args),
    }


def main() -> None:
    """Answer the cases on the standard input."""
    warnings.simplefilter("ignore")
    stand_in(sys.argv[1])
    answers = []
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        for case in cases:
            try:
                answers.append(answer(case))
            except SystemExit as stop:
                answers.append({"error": f"its parser stopped with status {stop.code}"})
            except Exception as why:  # noqa: BLE001, whatever it says is the answer
                answers.append({"error": f"{type(why).__name__}: {why}"})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
