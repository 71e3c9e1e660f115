"""The parts of a scenario: what each may say, its default and range.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.algorithms import (
    ByOperation,
    FastestBySize,
    OneByOperation,
    PerDimension,
)
from allrail.scenario.fields import (
    U64_MAX,
    Amount,
    Count,
    CountOrWord,
    Flag,
    Number,
    OneOf,
    Quantity,
    Rate,
    Text,
)
from allrail.scenario.node import Described, Node
from allrail.scenario.policies import Policy, order_of
from allrail.scenario.programs import Programs
from allrail.scenario.sugar import (
    ByGroup,
    Device,
    Mapped,
    Message,
    Model,
    Phases,
    Rows,
)


class Dimension(Node):
    """A dimension. Its NPUs are alike, and so are its links."""

    kind: Annotated[str, OneOf("ring", "fully_connected", "switch", what="a kind of dimension")] = (
        Field(description="How its NPUs are joined.")
    )
    size: Annotated[int, Count(2, hint="a dimension joins 2 NPUs or more")] = Field(
        description="How many NPUs it joins."
    )
    links: Annotated[int, Count(1, 65536, hint="links of one NPU on this dimension")] = Field(
        default=1, description="Links of one NPU."
    )
    bandwidth: Annotated[str, Quantity("bandwidth")] = Field(
        description="Bandwidth of one link, per direction."
    )
    latency: Annotated[str, Quantity("time")] = Field(
        description="Latency of one step of an algorithm: from sending a message to its "
        "arrival, without its serialisation. On a switch that is two links."
    )
    message_latency: Annotated[str, Quantity("time")] = Field(
        default="0 ps",
        description="What a message waits for beside, once, however many links it crosses: its "
        "network interfaces.",
    )
    packet: Annotated[str, OneOf(table="packets")] | None = Field(
        default=None,
        description="Packets of a known network, in place of `payload` and `header`, each of "
        "which may still be another: `infiniband`, `nvlink`. Their headers take "
        "their part of the bandwidth.",
    )
    payload: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="Of a packet's bytes, those that are carried; with `header`, the bandwidth "
        "is that of both.",
    )
    header: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="Of a packet's bytes, those beside its `payload`: they take their part of "
        "the bandwidth.",
    )
    in_network_reduction: Annotated[bool, Flag()] = Field(
        default=False, description="Whether the switch reduces; `kind: switch` only."
    )
    reduction_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None,
        description="With `in_network_reduction`: the bandwidth at which an NPU's data passes "
        "through sums, as published for the switch (the `algbw` of nccl-tests). "
        "That of its links if left out, which no switch reaches.",
    )
    contention: Annotated[str, OneOf("shared", "none", what="a contention")] = Field(
        default="shared",
        description="`none`: messages of a step do not share links, as ASTRA-sim's "
        "congestion-unaware backend counts; below what the links can carry.",
    )
    fastest: Annotated[dict[str, tuple[dict[str, str], ...]], FastestBySize()] = Field(
        default={},
        description="Of `schedule.algorithms: auto`: which algorithm was measured to be the "
        "fastest, by kind of collective, from which size on: `{all_reduce: [{from: "
        "1 B, algorithm: direct}, {from: 4 MiB, algorithm: ring}]}`. Sizes are of "
        "the buffer that reaches this dimension, which dimensions before it have "
        "divided. `allrail calibrate network` writes it. If left out, the model of "
        "the dimension decides.",
    )


class Fabric(Described):
    """The network of a training cluster as a product of dimensions (Themis, ISCA'22, §2)."""

    name: Annotated[str, Text()] = Field(default="inline", description="What people call it.")
    dimensions: tuple[Dimension, ...] = Field(
        min_length=1, max_length=6, description="Innermost (package, node) first."
    )
    memory_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None,
        description="Of an NPU's memory. A step that reduces waits for what it has received to "
        "be read, with what it is added to, and for the sum to be written: three "
        "times its bytes; messages of one step side by side. If left out, reducing "
        "takes no time.",
    )
    window: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Of an NPU's messages in a `direct` algorithm, how many are under way: each"
        " that has come and is reduced lets it send one more, of an all-reduce's "
        "second half once the first has come. If left out, all of a step leave at "
        "once, when all of the step before are reduced.",
    )


class Collective(Node):
    """One collective."""

    name: Annotated[str, Text()] = Field(
        default="", description="Its name in results; its kind if left out."
    )
    kind: Annotated[
        str,
        OneOf(
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "all_to_all",
            "broadcast",
            what="a collective",
        ),
    ] = Field(description="What it does.")
    size: Annotated[str, Quantity("size", positive=True)] = Field(
        description="all_reduce, broadcast: each NPU's buffer; reduce_scatter: each NPU's "
        "input; all_gather: each NPU's output; all_to_all: what each NPU sends, to "
        "itself included."
    )
    start: Annotated[str, Quantity("time")] = Field(default="0 ps", description="When it starts.")
    dimensions: tuple[Annotated[int, Count(0)], ...] | None = Field(
        default=None,
        min_length=1,
        description="The dimensions that it spans, from 0; all if left out.",
    )


class GroupSchedule(Node):
    """What process groups smaller than the job run."""

    algorithms: Annotated[dict[str, str], OneByOperation()] = Field(
        default={},
        description="The algorithm of a kind of collective; `ring_unidirectional` where none is"
        " named.",
    )
    endpoint_delay: Annotated[str, Quantity("time")] = Field(
        default="0 ps", description="In place of the schedule's."
    )


class Schedule(Node):
    """How collectives are scheduled."""

    policy: Annotated[str, OneOf(table="policies")] = Field(
        default="baseline", description="Which dimension a chunk visits next."
    )
    order: Annotated[str, OneOf(table="orders")] = Field(
        default_factory=lambda data: order_of(data.get("policy", "")),
        description="Which waiting stage a dimension serves next. If left out: `fifo` for "
        "`baseline`, `smallest_first` for `themis`, `planned` for `search`.",
    )
    chunks: Annotated[int, Count(1, hint="64 is a good start")] = Field(
        default=64, description="How many parts each collective is cut into."
    )
    cut: Annotated[str, OneOf("even", "rest", "full", what="a cut")] = Field(
        default="even",
        description="How a collective is cut into `chunks`. `even`: parts that differ by one "
        "byte at most. `rest`: parts of the size divided by `chunks`, rounded down,"
        " and the rest as one more. `full`: the same, and the last part is padded "
        "to the size of the others. A part of an all-gather is what its NPUs bring.",
    )
    smallest_chunk: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="A chunk has so many bytes at least, and the collective then as many as its"
        " chunks; an all-gather's do not count.",
    )
    threshold: Annotated[int, Count(1, hint="Themis uses 16")] = Field(
        default=16,
        description="Themis keeps the baseline's order while loads differ by less than the time"
        " of a chunk's 1/threshold.",
    )
    active_chunks: Annotated[int | str, CountOrWord(1, "fill")] | None = Field(
        default=None,
        description="How many stages a dimension runs at once; no limit if left out. `fill`: as"
        " many as fill it, if each has the part of the time in which it sends.",
    )
    send_ahead: Annotated[str, Quantity("size")] = Field(
        default="0 B",
        description="How many bytes of what an NPU has handed to its links on a dimension may "
        "be unsent when it chooses the next stage there; what is handed over is "
        "sent in that order. Without it the links have sent all. `dims` and "
        "`links`.",
    )
    endpoint_delay: Annotated[str, Quantity("time")] = Field(
        default="0 ps", description="Added to every message at its ends."
    )
    programs: Annotated[dict[str, Any], Programs()] | None = Field(
        default={},
        description="Programs that `algorithms` name, by name: those of XML files stand here "
        "when these were read.",
    )
    algorithms: Annotated[str | tuple[str, ...], PerDimension("schedule.algorithms")] | None = (
        Field(
            default=None,
            description="One per dimension; if left out: `ring` on rings, `direct` on fully "
            "connected dimensions, `halving_doubling` on switches; `auto` on networks "
            "without dimensions, and on a fabric whose dimensions all say `fastest`. "
            "`auto`, for all or in the list: for each collective the fastest of its "
            "size, as the dimension's `fastest` says or else its model. An XML file is "
            "a program of MSCCL, for an operation and a number of ranks.",
        )
    )
    algorithms_by_operation: Annotated[dict[str, str | tuple[str, ...]], ByOperation()] = Field(
        default={},
        description="Of a workload: the algorithms of a kind of collective, where they differ "
        "from `algorithms`: `{all_gather: [direct, ring]}`, `{broadcast: auto}`.",
    )
    collective_order: Annotated[
        str, OneOf("fifo", "lifo", "explicit", what="a collective order")
    ] = Field(
        default="fifo", description="Which of several waiting collectives a dimension serves first."
    )
    communicators: Annotated[str, OneOf("share", "queue", what="what communicators do")] = Field(
        default="share",
        description="Of a workload: what its communicators do where they meet on a dimension. "
        "Every process group has one for its collectives and one for its messages. "
        "`share`: they take turns, chunk by chunk, for equal times. `queue`: all "
        "wait in one queue.",
    )
    composition: Annotated[str, OneOf("stages", "merged", "sequential", what="a composition")] = (
        Field(
            default="stages",
            description="How an all-reduce is composed over dimensions. `stages`: reduce-scatters, "
            "then all-gathers; `merged`: the last dimension all-reduces in one stage; "
            "`sequential`: a whole all-reduce per dimension.",
        )
    )
    loads: Annotated[str, OneOf("fixed_delay", "zero", what="a start of the loads")] = Field(
        default="fixed_delay", description="Where Themis' load tracker starts."
    )
    groups: GroupSchedule | None = Field(
        default=None,
        description="Of a workload in `links`: process groups smaller than the job run one "
        "algorithm over all their ranks in order, whatever dimensions these differ "
        "on.",
    )
    accept_plan: Annotated[str, OneOf("same_fabric", "same_shape", what="a rule for plans")] = (
        Field(
            default="same_fabric",
            description="Which plans a simulation takes: made for this very fabric, or for one of "
            "the same kinds and sizes.",
        )
    )
    tensor: Annotated[dict[str, Any], Policy("tensor_policies", "schedule.tensor")] | None = Field(
        default=None,
        description="Of a workload: which part of which gradient goes next; a policy's name, or"
        " `policy` and its keys. `fifo` if left out.",
    )
    coordination: (
        Annotated[dict[str, Any], Policy("coordinations", "schedule.coordination")] | None
    ) = Field(
        default=None,
        description="How ranks agree which gradients of a workload are ready everywhere, and on"
        " a scenario's collectives before each starts; a policy's name, or `policy`"
        " and its keys. `none` if left out.",
    )


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


class Compute(Node):
    """How long compute takes: from a device's kernels, from a roofline, or measured."""

    device: Annotated[str | dict[str, Any], Device()] | None = Field(
        default=None, description="A preset, such as `h100`, or the path of a device's file."
    )
    peak: Annotated[str, Rate()] | None = Field(
        default=None,
        description="Such as `312 TFLOP/s`; the device's at the precision if left out.",
    )
    memory_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None, description="The device's if left out."
    )
    memory: Annotated[str, Quantity("size", positive=True)] | None = Field(
        default=None, description="How much of it there is; the device's if left out."
    )
    efficiency: Annotated[float, Number(above=0, example="0.5")] | None = Field(
        default=None,
        description="The part of the peak that is reached, one number for all: of a device "
        "whose kernels are known, in their place. Of others 0.5 if left out.",
    )
    recipe: Annotated[
        str,
        OneOf(
            "plain",
            "fp8_delayed",
            "fp8_tensorwise",
            "fp8_rowwise",
            "mxfp8",
            "nvfp4",
            what="a recipe",
        ),
    ] = Field(
        default="plain",
        description="In how many bits products with weights are computed; `plain`: in `precision`.",
    )
    attention: (
        Annotated[str, OneOf("unfused", "flash", "flash_2", "flash_3", what="a kind of attention")]
        | None
    ) = Field(
        default=None,
        description="How attention is computed; the fastest that the device is known for if "
        "left out.",
    )
    launch: Annotated[
        str,
        OneOf(
            "eager",
            "compiled",
            "graph",
            "fused",
            "graphed_attention",
            "blocking",
            what="a way to launch kernels",
        ),
    ] = Field(default="eager", description="How kernels get to the device.")
    loss: Annotated[str, OneOf("fused", "unfused", what="a way to compute the loss")] | None = (
        Field(
            default=None,
            description="How the loss treats the head's words, in memory; `fused` where `launch` "
            "fuses elementwise work, if left out.",
        )
    )
    scale: Annotated[float, Number(above=0, example="1.2")] = Field(
        default=1.0, description="Every compute time is multiplied by it."
    )
    forward: Annotated[str, Quantity("time")] | None = Field(
        default=None,
        description="Measured: the forward pass of a replica's batch on one NPU; the roofline "
        "shares it out over layers.",
    )
    backward: Annotated[str, Quantity("time")] | None = Field(
        default=None, description="Measured: its backward pass."
    )
    must_fit: Annotated[bool, Flag()] = Field(
        default=False,
        description="Refuse a layout that does not fit the memory; otherwise it is only said.",
    )


class Straggler(Node):
    """Ranks whose compute takes longer."""

    ranks: tuple[Annotated[int, Count(0)], ...] = Field(min_length=1, description="Which.")
    factor: Annotated[float, Number(above=0, example="1.5")] = Field(
        description="Their compute times are multiplied by it."
    )
    probability: Annotated[float, Number(above=0, example="0.05")] | None = Field(
        default=None,
        description="How likely each of them is slow in an iteration, drawn by the seed for "
        "every rank and iteration; in all iterations if left out.",
    )


class Jitter(Node):
    """Seeded variation of compute times."""

    deviation: Annotated[float, Number(low=0, example="0.05")] = Field(
        description="The standard deviation of the factor around 1: `0.05` is 5 %."
    )


class SlowLinks(Node):
    """Links that carry less than they should, drawn by the seed."""

    share: Annotated[float, Number(low=0, example="0.01")] = Field(
        description="The part of all links that is slow: `0.01` is one in a hundred."
    )
    factor: Annotated[float, Number(above=0, example="0.5")] = Field(
        description="A slow link has this part of its bandwidth, 0.001 to 1."
    )
    dimensions: tuple[Annotated[int, Count(0)], ...] | None = Field(
        default=None,
        description="On which dimensions, from 0; on all if left out. Not in `flows` and "
        "`packets`, where a topology's cables are slow.",
    )


class SparseGradient(Node):
    """An embedding table whose gradient may travel as rows."""

    table: Annotated[str, Text()] = Field(
        description="Name of the model's layer: an embedding table that every replica has."
    )
    exchange: Annotated[
        str, OneOf("auto", "rows", "dense", what="an exchange of a table's gradient")
    ] = Field(
        default="auto",
        description="How its gradient travels: as `rows`, `dense`, or as it makes the simulated"
        " step shorter (`auto`).",
    )
    rows: Annotated[int, Count(1, U64_MAX)] | None = Field(
        default=None,
        description="Number of rows that the batch of a rank touches in an iteration; as many "
        "as it looks up, and at most the table's, if left out.",
    )
    fraction: Annotated[float, Number(above=0, example="0.02")] | None = Field(
        default=None,
        description="The same as a part of the table, above 0 and up to 1, instead of `rows`.",
    )
    overlap: Annotated[float, Number(low=0, example="0.3")] = Field(
        default=0.0,
        description="Part of a rank's rows that all ranks touch, from 0 to 1; the others are "
        "its own.",
    )
    index: Annotated[str, Quantity("size")] = Field(
        default="8 B", description="Size of the place that travels with a row."
    )


class Compression(Node):
    """How gradients are made smaller on their way."""

    kind: Annotated[str, OneOf(table="compressions")] = Field(
        description="Which: `fp16`, `bf16`, `top_k`, `power_sgd`."
    )
    share: Annotated[float, Number(above=0, example="0.01")] | None = Field(
        default=None,
        description="`top_k`: the part of each gradient's numbers that travels, above 0, at "
        "most 1; 0.01 if left out.",
    )
    rank: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="`power_sgd`: the rank of the matrices that travel; 4 if left out.",
    )


class Target(Node):
    """How much is trained, and what an NPU takes meanwhile."""

    samples: Annotated[int, Amount()] | None = Field(
        default=None,
        description="Samples that training goes through, all epochs together. One of `samples`,"
        " `tokens` and `steps`.",
    )
    tokens: Annotated[int, Amount()] | None = Field(
        default=None, description="Tokens that training goes through, where samples have tokens."
    )
    steps: Annotated[int, Amount()] | None = Field(
        default=None, description="Number of iterations."
    )
    statistical_efficiency: Annotated[float, Number(above=0, example="0.8")] | None = Field(
        default=None,
        description="Progress of a sample over what it makes without stale gradients or other "
        "shortcuts, above 0: `0.8` takes a quarter more of them. 1 if left out, and"
        " results say that it is not modelled.",
    )
    price_per_npu_hour: Annotated[float, Number(low=0, example="2.5")] | None = Field(
        default=None,
        description="Price of an NPU for an hour, in any currency; the cost is in the same.",
    )
    watts_per_npu: Annotated[float, Number(low=0, example="700")] | None = Field(
        default=None,
        description="Power that an NPU draws while it trains, W; with its part of host, network"
        " and cooling if these count.",
    )


class Workload(Node):
    """What is trained; see the module."""

    name: Annotated[str, Text()] = Field(
        default="", description="Its name in results; the model's if left out."
    )
    model: Annotated[dict[str, Any], Model()] = Field(
        description="A preset's name, a Hugging Face folder or its `config.json`, a preset's "
        "file, or a mapping with one form."
    )
    batch_per_replica: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Samples per iteration of a replica: the NPUs of `tp`, `cp`, `pp` and `op` "
        "work on them together, those of `dp` and `ep` each have their own.",
    )
    global_batch: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Samples per iteration of the whole job, instead of those of a replica.",
    )
    micro_batch: Annotated[int, Count(1)] | None = Field(
        default=None, description="Samples of a microbatch, instead of `parallelism.microbatches`."
    )
    sequence_length: Annotated[int, Count(1)] | None = Field(
        default=None, description="Tokens per sample; the model's own if left out."
    )
    precision: Annotated[str, OneOf("fp32", "fp16", "bf16", "fp8", what="a precision")] = Field(
        default="fp16", description="Of parameters, activations and gradients."
    )
    gradient_precision: (
        Annotated[str, OneOf("fp32", "fp16", "bf16", "fp8", what="a precision")] | None
    ) = Field(default=None, description="Of the gradients that travel, where it is another.")
    compression: Compression | None = Field(
        default=None,
        description="How gradients are made smaller on their way; not at all if left out.",
    )
    sparse: tuple[SparseGradient, ...] = Field(
        default=(),
        description="Embedding tables whose gradients may travel as rows; all other gradients "
        "are dense. `[{table: embedding, rows: 4000}]`.",
    )
    every: Annotated[int, Count(1)] = Field(
        default=1,
        description="Replicas train apart, and average their parameters after every so many "
        "iterations (local SGD); 1 exchanges gradients in each.",
    )
    parallelism: Parallelism = Field(
        default=Parallelism(), description="How it is cut over the NPUs."
    )
    compute: Compute = Field(default=Compute(), description="How fast an NPU computes.")
    optimizer: Annotated[str, OneOf("adam", "momentum", "sgd", "none", what="an optimizer")] = (
        Field(
            default="adam",
            description="What is kept beside parameters and gradients, and what an update costs.",
        )
    )
    updates: Annotated[str, OneOf("together", "each", what="a time of updates")] | None = Field(
        default=None,
        description="When an NPU updates its parameters: `together`, in one step once all its "
        "gradients are there (`optimizer.step()` in PyTorch, also under Horovod, "
        "DeepSpeed and Megatron-LM), or `each`, as soon as the parameter's own "
        "gradient is there (MXNet, TensorFlow graphs, ByteScheduler, P3). If left "
        "out: `each` where iterations have no barrier (`schedule.tensor`) or "
        "parameter servers update, else `together`.",
    )
    issue: Annotated[str, OneOf("at_once", "in_turn", what="a rule of issue")] = Field(
        default="at_once",
        description="When an NPU begins what is ready: `at_once`, or `in_turn`, one "
        "communication after the other (receives aside), and one delay, of those "
        "that are ready the one that stands first.",
    )
    iterations: Annotated[int, Count(1)] = Field(
        default=2, description="How many are simulated; the first is warm-up where there are more."
    )
    stragglers: tuple[Straggler, ...] = Field(
        default=(), description="Ranks that compute more slowly."
    )
    jitter: Jitter | None = Field(
        default=None, description="Random variation of every compute time."
    )
    slow_links: SlowLinks | None = Field(
        default=None, description="Links that carry less than they should."
    )
    exchange_slowdown: Annotated[float, Number(low=0, example="0.2")] = Field(
        default=0.0,
        description="By how much longer computing takes while gradients of the NPU are "
        "exchanged: `0.2` is a fifth.",
    )
    lag: Annotated[int, Count(0, 64)] = Field(
        default=0,
        description="How many iterations later gradients are applied: with 1, an iteration "
        "waits for those of the one before the last, with `k` for those of the k-th"
        " before the last (bounded staleness).",
    )
    target: Target | None = Field(
        default=None,
        description="How much is trained, and what an NPU takes meanwhile: results then say the"
        " time, cost and energy of all of it. `{tokens: 15e12, price_per_npu_hour: "
        "2.5}`.",
    )


class Algorithms(Node):
    """Which algorithms collectives take on graph fabrics."""

    all_reduce: Annotated[str, OneOf(table="grid_algorithms")] = Field(
        default="ring",
        description="Of all-reduces: over a group's ranks in a grid, or `in_network` where "
        "switches reduce.",
    )
    all_to_all: Annotated[str, OneOf("direct", "pairwise", what="an all-to-all")] = Field(
        default="direct",
        description="`direct`: to everyone at once; `pairwise`: to one after the other, each "
        "when the last one's message has come.",
    )
    groups: Annotated[dict[str, str], ByGroup(pairs=False)] = Field(
        default={}, description="Groups whose all-reduces take another algorithm, by name."
    )
    shapes: Annotated[dict[str, Any], ByGroup(pairs=True)] = Field(
        default={},
        description="Rows and columns of a group's ranks, by name; its first part along rows, "
        "or as square as it goes, if left out.",
    )


class Messages(Node):
    """How communication becomes messages."""

    paths: Annotated[str, Text()] | None = Field(
        default=None,
        description="`flows`: over which paths a message is split: `ecmp` (if left out; of a "
        "collective `minimal`), `single`, `minimal`, `ideal`. All that a collective"
        " without a workload has of these keys.",
    )
    overhead: Annotated[str, Quantity("time")] = Field(
        default="0 ps",
        description="What every message waits for at its ends: processors, network interfaces.",
    )
    endpoint_delay: Annotated[str, Quantity("time")] | None = Field(
        default=None,
        description="`links`: what a message between two ranks waits for at either end; "
        "`schedule.endpoint_delay` if left out, as messages of collectives do.",
    )
    acknowledged: Annotated[bool, Flag()] = Field(
        default=False,
        description="Whether a send is over when its message has arrived; if not, when it has "
        "left.",
    )
    steady: Annotated[bool, Flag()] = Field(
        default=False,
        description="`flows`: one message for alike steps of an algorithm, exact while nothing "
        "disturbs them.",
    )
    algorithms: Algorithms | None = Field(
        default=None,
        description="What collectives are made of on graphs, instead of the chunks of a plan on"
        " the topology's dimensions.",
    )


class Traffic(Node):
    """What is sent."""

    pattern: Annotated[
        str,
        OneOf(
            "all_to_all",
            "uniform",
            "permutation",
            "incast",
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "broadcast",
            "trace",
            what="a pattern",
        ),
    ] = Field(
        description="all_to_all: every NPU to every other, in shift phases; uniform: to all at "
        "once (`flows`) or to NPUs drawn one by one (`packets`); permutation: every"
        " NPU to one other, drawn; incast: many to one; all_reduce, reduce_scatter,"
        " all_gather, broadcast: by an algorithm; trace: messages with times."
    )
    size: Annotated[str, Quantity("size", positive=True)] | None = Field(
        default=None,
        description="From one NPU to another, over all planes, split evenly; of a collective: "
        "the buffer (before a reduce_scatter, after an all_gather). A trace has "
        "none.",
    )
    phases: Annotated[int | None, Phases()] = Field(
        default=None,
        description="all_to_all: `all`, or how many shift phases are drawn and simulated; the "
        "time is scaled.",
    )
    phase_barrier: Annotated[bool, Flag()] | None = Field(
        default=None,
        description="all_to_all: whether a phase begins when the one before is over everywhere."
        " If left out: so in `flows`, not in `packets`.",
    )
    window: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="`all_to_all` without a barrier: how many phases an NPU has begun and not "
        "done (sent in and received in). `uniform` in `packets`: how many messages "
        "of an NPU may be leaving it at once. 8 if left out.",
    )
    paths: (
        Annotated[str, OneOf("ideal", "minimal", "ecmp", "single", what="a choice of paths")] | None
    ) = Field(
        default=None,
        description="In `flows`: best splitting (`ideal`; on a dragonfly over detours too), "
        "best splitting over minimal paths, equal splitting, one path. `ideal` if "
        "left out.",
    )
    count: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="uniform, in `packets`: how many messages each NPU sends; 16 if left out.",
    )
    fan_in: Annotated[int, Count(1)] | None = Field(
        default=None, description="incast: how many NPUs send, drawn; all others if left out."
    )
    destination: Annotated[int, Count(0)] | None = Field(
        default=None, description="incast: to which NPU; 0 if left out."
    )
    algorithm: Annotated[str, OneOf(table="grid_algorithms")] | None = Field(
        default=None,
        description="Collectives: by which algorithm; `in_network` and `tree` do not do all of "
        "them.",
    )
    shape: tuple[Annotated[int, Count(1)], Annotated[int, Count(1)]] | None = Field(
        default=None,
        description="Collectives: rows and columns of the ranks; the fabric's own if left out.",
    )
    root: Annotated[int, Count(0)] | None = Field(
        default=None, description="broadcast: which NPU has the buffer; 0 if left out."
    )
    segments: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="broadcast: into how many segments each tree's part of the buffer is cut; "
        "if left out, as many as the tree is deep, and 16 at least.",
    )
    skip: Annotated[bool, Flag()] | None = Field(
        default=None,
        description="Collectives: whether steps, or segments, that repeat are skipped once they"
        " are steady; so if left out.",
    )
    messages: Annotated[tuple[Message, ...], Rows()] | None = Field(
        default=None,
        description="trace: rows of time, source, destination and size, in the order of time.",
    )
