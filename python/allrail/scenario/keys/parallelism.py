"""Parallelism of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated

from pydantic import Field

from allrail.scenario.fields import Count, Flag, Number, OneOf
from allrail.scenario.node import Node
from allrail.scenario.sugar import Mapped


class Parallelism(Node):
    """How the model is cut. The product of all degrees is the number of NPUs that are used."""

    dp: Annotated[int, Count(1)] | None = Field(
        default=None, description="Data: replicas; what remains of the NPUs if left out."
    )
    tp: Annotated[int, Count(1)] = Field(
        default=1, description="Tensor: each layer cut as Megatron does."
    )
    cp: Annotated[int, Count(1)] = Field(
        default=1,
        description="Context: the tokens of a sample are cut; keys and values of attention travel.",
    )
    context: Annotated[str, OneOf("ring", "all_gather", what="a way of keys and values")] = Field(
        default="ring",
        description="How they travel over `cp`: in a `ring`, block by block beside attention to"
        " the block before, or in an `all_gather` before attention.",
    )
    pp: Annotated[int, Count(1)] = Field(default=1, description="Pipeline: stages.")
    ep: Annotated[int, Count(1)] = Field(
        default=1,
        description="Expert: replicas that share one set of experts; the rest is replicated.",
    )
    capacity_factor: Annotated[float, Number(above=0, example="1.25")] | None = Field(
        default=None,
        description="An expert has room for so many times its even share of tokens, and "
        "computes as much; none is dropped and nothing padded if left out.",
    )
    expert_nodes: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="With `ep`: on how many nodes (places of the first dimension) a token "
        "visits experts at most.",
    )
    op: Annotated[int, Count(1)] = Field(
        default=1, description="Operator: shards of the space of an image, with halos."
    )
    sp: Annotated[bool, Flag()] = Field(
        default=False,
        description="Sequence: with `tp`, reduce-scatter and all-gather instead of all-reduce.",
    )
    async_tp: Annotated[bool, Flag()] = Field(
        default=False,
        description="With `sp`: products of matrices and their gathers and scatters in parts, "
        "beside each other (`--tp-comm-overlap`).",
    )
    overlap_sums: Annotated[bool, Flag()] = Field(
        default=True,
        description="With `tp`: whether gradients of inputs are summed beside the gradient of "
        "the weights, as Megatron-LM does it, or behind it (PyTorch's DTensor, "
        "without `async_tp`).",
    )
    zero: Annotated[int, Count(0, 3, hint="ZeRO has the stages 0 to 3")] = Field(
        default=0,
        description="ZeRO: 1 cuts the optimizer's state over replicas, 2 the gradients too, 3 "
        "the parameters too.",
    )
    shard: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="With `zero`: over how many replicas, the nearest, states are cut; the rest"
        " holds copies (HSDP). Over all if left out.",
    )
    reshard: Annotated[bool, Flag()] = Field(
        default=True,
        description="`zero: 3`: parameters are given back after the forward pass and gathered "
        "again for the backward pass; `false` keeps them until gradients have "
        "travelled.",
    )
    prefetch: Annotated[int, Count(0)] | None = Field(
        default=None,
        description="`zero: 3`: how many blocks ahead parameters are gathered; 1 if left out.",
    )
    by_parameter: Annotated[bool, Flag()] = Field(
        default=False,
        description="`zero: 3`: whether each parameter is cut for itself, as FSDP2 does it, so "
        "that a unit's are copied out of what was gathered, and its gradients into "
        "what is scattered; else a unit is one flat tensor.",
    )
    reduce: (
        Annotated[str, OneOf("step", "microbatch", what="a time at which gradients are reduced")]
        | None
    ) = Field(
        default=None,
        description="Whether gradients travel once a step or after every microbatch; "
        "`microbatch` with `zero: 2` and 3 where there is no pipeline, else `step`,"
        " if left out.",
    )
    overlap_gradients: Annotated[bool, Flag()] = Field(
        default=True,
        description="Whether gradients travel beside the backward pass, or when it is over.",
    )
    separate_sums: Annotated[bool, Flag()] = Field(
        default=False,
        description="Whether a backward pass leaves its gradient, in the precision of "
        "parameters, beside the sum that it is added to (DeepSpeed's `bf16` "
        "optimizer), and not in it: memory holds both.",
    )
    overlap_parameters: Annotated[bool, Flag()] = Field(
        default=True,
        description="`zero: 1` and 2: whether updated parameters are gathered beside the next "
        "forward pass, or before it.",
    )
    overlap_messages: Annotated[bool, Flag()] = Field(
        default=True,
        description="Whether a stage computes on while its output travels to the next one, or "
        "waits until it is there: only interleaved schedules of Megatron-LM overlap"
        " it (`--overlap-p2p-communication`).",
    )
    scatter_messages: Annotated[bool, Flag()] = Field(
        default=False,
        description="Without `sp`: the ranks of a tensor group send a share of a stage's output"
        " each, and the next stage's gather it (Narayanan et al., SC'21, §4.1).",
    )
    microbatches: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Into how many parts the batch is cut; the number of stages if left out.",
    )
    schedule: Annotated[
        str,
        OneOf(
            "gpipe",
            "1f1b",
            "interleaved",
            "chimera",
            "zero_bubble",
            "dual_pipe",
            "pipedream",
            "pipedream_2bw",
            "pipemare",
            what="a schedule of a pipeline",
        ),
    ] = Field(default="1f1b", description="In which order a stage runs its microbatches.")
    virtual_stages: Annotated[int, Count(1)] | None = Field(
        default=None, description="`interleaved`: pieces of the model per stage; 2 if left out."
    )
    stages: tuple[Annotated[int, Count(0)], ...] | None = Field(
        default=None,
        min_length=1,
        description="How many layers each stage has, the first one first (of `interleaved` each"
        " piece); as even as it goes if left out.",
    )
    ends_as_layers: Annotated[bool, Flag()] = Field(
        default=False,
        description="Whether the embedding and the head count as a layer each where layers are "
        "shared out.",
    )
    recompute: Annotated[
        str, OneOf("none", "selective", "alternate", "full", what="a way to recompute activations")
    ] = Field(
        default="none",
        description="Which activations the backward pass computes again instead of keeping them.",
    )
    map: Annotated[dict[str, tuple[int | str, ...]], Mapped()] = Field(
        default={},
        description="Over which dimensions, from 0, each degree lies. `1[0:8]` is the inner 8 "
        "of dimension 1, `1[8:]` the rest; parts of a dimension share its "
        "bandwidth.",
    )
