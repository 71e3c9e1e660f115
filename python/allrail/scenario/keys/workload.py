"""Workload of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.fields import (
    U64_MAX,
    Amount,
    Count,
    Number,
    OneOf,
    Quantity,
    Text,
)
from allrail.scenario.keys.compute import Compute, Jitter, SlowLinks, Straggler
from allrail.scenario.keys.parallelism import Parallelism
from allrail.scenario.node import Node
from allrail.scenario.sugar import Model


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
