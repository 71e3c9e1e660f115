"""What each tool that trains can do: one table, for `allrail plan --for` and for `allrail apply`.

A tool is judged by what a scenario says under `workload`: its parallelism, precision, recipe. What
the table says was read in the tools' own code of August 2026: Megatron-LM's `arguments.py` and
`initialize.py`, torchtitan's `configs.py`, `parallel_dims.py` and `pipeline_parallel.py`, PyTorch's
`distributed` (DDP, `fully_shard`, `pipelining.schedules`), and the runtime of `allrail.torch`.

Python:
    from allrail.search.layouts.tools import TOOLS, tools_for

    TOOLS["ddp"].lacks({"parallelism": {"dp": 8, "zero": 3}})  # "DDP has no `zero: 3`"
    tools_for({"parallelism": {"dp": 8, "zero": 3}})  # ["fsdp", "megatron", "torchtitan"]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

ANY = "any"
"""Of `--for`: what is planned may need a tool that is still to be written."""

DEFAULTS: dict[str, Any] = {
    "tp": 1,
    "cp": 1,
    "ep": 1,
    "pp": 1,
    "op": 1,
    "dp": 1,
    "zero": 0,
    "schedule": "1f1b",
    "recompute": "none",
    "reshard": True,
}
"""Of `workload.parallelism`, where a scenario leaves a key out."""

PP_INSIDE, DP_INSIDE = "pp", "dp"
"""How ranks are numbered: with the stages of a pipeline inside of its replicas, or outside."""

_CUTS_NOTHING = {"tp": (1,), "cp": (1,), "ep": (1,), "pp": (1,), "op": (1,)}


def _asked(workload: Mapping[str, Any]) -> dict[str, Any]:
    """`workload.parallelism` with what it leaves out."""
    return DEFAULTS | dict(workload.get("parallelism") or {})


def table_of_rows(workload: Mapping[str, Any]) -> str:
    """Return a table whose gradient travels as rows, or may; empty if there is none.

    Args:
        workload: As a scenario has it.
    """
    said = workload.get("sparse") or ()
    return next((one["table"] for one in said if one.get("exchange") != "dense"), "")


def _nothing(
    parallelism: Mapping[str, Any], workload: Mapping[str, Any], sizes: Mapping[str, Any]
) -> str:
    del parallelism, workload, sizes
    return ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that trains, and what it can do.

    Attributes:
        title: Its name in sentences.
        can: By key of `workload.parallelism` the values that it has; other keys are free.
        beside: Keys of `can` by which other code may cut the model, and the tool does its part:
            `apply` writes for it, `plan --for` does not count on that code.
        recipes: What `workload.compute.recipe` may be; None: computing is the script's own.
        precisions: What `workload.precision` may be.
        launch: How its kernels get to the device (`workload.compute.launch`) if nobody says it.
        numberings: Of `PP_INSIDE` and `DP_INSIDE`: what it can make of ranks; matters where a
            pipeline and its replicas use different dimensions.
        spread: The same with `ep`; None: as without.
        rows: Whether gradients of embedding tables travel as rows (`workload.sparse`).
        lossy: Whether it has `compression` and `every`, which change what replicas exchange.
        rules: Says what it lacks that depends on several keys or on the model's sizes; empty if
            nothing. Given `parallelism`, `workload` and the sizes of the transformer.
        sharded: ZeRO stages that are worth a try with a pipeline.
    """

    title: str
    can: Mapping[str, tuple[object, ...]]
    beside: tuple[str, ...] = ()
    recipes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] = ("fp32", "fp16", "bf16")
    launch: str = "compiled"
    numberings: tuple[str, ...] = (PP_INSIDE, DP_INSIDE)
    spread: tuple[str, ...] | None = None
    rows: bool = False
    lossy: bool = False
    rules: Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], str] = field(
        default=_nothing
    )
    sharded: tuple[int, ...] = (0, 1)

    def lacks(
        self,
        workload: Mapping[str, Any],
        *,
        sizes: Mapping[str, Any] | None = None,
        numberings: Collection[str] = (PP_INSIDE, DP_INSIDE),
        alone: bool = True,
    ) -> str:
        """Return what a workload asks for that the tool has not; empty if it has all.

        Args:
            workload: As a scenario has it, `parallelism` included.
            sizes: Of its transformer, where they are known.
            numberings: Those that place ranks as the scenario does (`mapping.numberings`).
            alone: Whether nothing but the tool cuts the model.
        """
        asked = _asked(workload)
        for key, allowed in self.can.items():
            if asked[key] not in allowed and (alone or key not in self.beside):
                return f"{self.title} has no `{key}: {asked[key]}`"
        precision = workload.get("precision") or "fp16"
        if precision not in self.precisions:
            return f"{self.title} has no `precision: {precision}`"
        recipe = (workload.get("compute") or {}).get("recipe") or "plain"
        if self.recipes is not None and recipe not in self.recipes:
            return f"{self.title} has no recipe `{recipe}`"
        if not self.lossy and workload.get("compression"):
            return f"{self.title} has no `compression`"
        if not self.lossy and (workload.get("every") or 1) > 1:
            return f"{self.title} has no `every: {workload['every']}`"
        if not self.rows and (table := table_of_rows(workload)):
            return f"{self.title} has no `sparse: [{{table: {table}, ...}}]`"
        if workload.get("lag"):
            return f"{self.title} has no `lag: {workload['lag']}`"
        if why := self.rules(asked, workload, sizes or {}):
            return f"{self.title} {why}"
        if not numberings:
            return f"{self.title} numbers ranks from `tp` outwards: no such `map`"
        own = self.numberings if self.spread is None or asked["ep"] == 1 else self.spread
        if not set(numberings) & set(own):
            where = "outside" if DP_INSIDE in own else "inside"
            return f"{self.title} numbers the stages of a pipeline {where} of its replicas"
        return ""


def _of_megatron(
    parallelism: Mapping[str, Any], workload: Mapping[str, Any], sizes: Mapping[str, Any]
) -> str:
    tp, cp, pp = (int(parallelism[axis]) for axis in ("tp", "cp", "pp"))
    launch = (workload.get("compute") or {}).get("launch") or "eager"
    recompute, experts = parallelism["recompute"], sizes.get("experts")
    if sizes.get("decoder_layers") or sizes.get("patch"):
        return "trains decoders of words by these flags (`pretrain_gpt.py`)"
    if (sizes.get("head") or "language") != "language":
        return f"has no `head: {sizes['head']}` in `pretrain_gpt.py`"
    if sizes.get("next_tokens") and sizes.get("positions"):
        return "predicts further tokens with rotary positions alone"
    if why := _of_cut_layers(parallelism, sizes):
        return why
    tokens = sizes.get("sequence_length")
    if cp > 1 and tokens and int(tokens) % (2 * cp):
        return f"cuts {tokens} tokens into no {2 * cp} equal parts for `cp: {cp}`"
    # `MoELayer.forward`.
    if experts and tp > 1 and not parallelism.get("sp"):
        return "has no experts with `tp` and without `sp`"
    # `validate_args`: two ranks would send and receive several messages of one batch.
    interleaved = parallelism["schedule"] == "interleaved"
    if interleaved and pp == 2 and not parallelism.get("overlap_messages", True):
        return "interleaves two stages with `overlap_messages` alone"
    # `TransformerConfig.__post_init__`: what a graph of attention repeats is inside of it.
    if recompute == "full" and launch == "graphed_attention":
        return "has no `recompute: full` with graphs of attention"
    if recompute == "selective" and sizes.get("dropout") and launch.startswith("graph"):
        return "repeats no attention with dropout in a graph"
    return ""


def _of_cut_layers(parallelism: Mapping[str, Any], sizes: Mapping[str, Any]) -> str:
    """What of the model `tp` does not cut, as `TransformerConfig` and its layers want it."""
    tp, biases = int(parallelism["tp"]), sizes.get("biases") or {}
    heads = int(sizes.get("heads") or tp)
    if heads % tp:
        return f"cuts {heads} heads into no `tp: {tp}`"
    # Groups of keys are shared out over ranks, or ranks share them.
    groups = int(sizes.get("kv_heads") or heads)
    if groups % tp and tp % groups and not sizes.get("latent"):
        return f"cuts {groups} heads of keys neither into `tp: {tp}` nor joins ranks of it"
    experts = sizes.get("experts") or {}
    widths = (sizes.get("feed_forward"), experts.get("feed_forward"), experts.get("shared"))
    for width in widths:
        if width and int(width) % tp:
            return f"cuts the inner width {width} into no `tp: {tp}`"
    biased = biases.get("output", True) or biases.get("feed_forward", True)
    if experts and biased and tp > 1 and sizes.get("layers"):
        return "cuts no experts with biases over `tp`"
    tokens = int(sizes.get("sequence_length") or 0) // int(parallelism["cp"])
    if parallelism.get("sp") and tokens % tp:
        return f"cuts {tokens} tokens into no `tp: {tp}` for `sp`"
    return ""


def _of_torchtitan(
    parallelism: Mapping[str, Any], workload: Mapping[str, Any], sizes: Mapping[str, Any]
) -> str:
    tp, cp, pp, ep, zero = (int(parallelism[axis]) for axis in ("tp", "cp", "pp", "ep", "zero"))
    compute = workload.get("compute") or {}
    launch = compute.get("launch") or "eager"
    groups = int(sizes.get("kv_heads") or sizes.get("heads") or tp)
    if groups % tp and not sizes.get("latent"):
        return f"cuts {groups} heads of keys into no `tp: {tp}`"
    if sizes.get("decoder_layers") or (sizes.get("head") or "language") != "language":
        return "trains decoders with a head for words"
    # `ParallelDims`: experts lie over `dp_shard * cp * tp`, those of `tp` first.
    if ep > 1 and tp > 1:
        return "lays `ep` over the ranks of `tp`, too"
    if ep > 1 and zero < 2:
        return "lays `ep` over replicas that share states: `zero: 2` or 3"
    # `Trainer.Config`: what dispatches tokens asks the host how many there are.
    if ep > 1 and launch not in ("eager", "compiled"):
        return f"has no `launch: {launch}` with `ep`"
    shard = parallelism.get("shard")
    if ep > 1 and shard and int(shard) % ep:
        return f"lays `ep: {ep}` within the {shard} replicas that share states"
    # Its mesh `fsdp` is `dp_shard * cp`.
    if cp > 1 and zero < 2:
        return "shares states over the ranks of `cp`: `zero: 2` or 3"
    if parallelism.get("capacity_factor"):
        return "drops and pads no tokens: it has no `capacity_factor`"
    # `TrainingConfig.mixed_precision_reduce`.
    summed = workload.get("gradient_precision") or "fp32"
    if summed != "fp32":
        return f"sums gradients in fp32, not {summed} (`gradient_precision`)"
    tokens, parts = sizes.get("sequence_length"), tp * (2 * cp if cp > 1 else 1)
    if tokens and int(tokens) % parts:
        return f"cuts {tokens} tokens into no {parts} equal parts for `tp` and `cp`"
    if parallelism.get("async_tp") and launch == "eager":
        return "has no `async_tp` without a compiler (`launch: compiled`)"
    return _of_its_pipeline(parallelism, launch) if pp > 1 else ""


def _of_its_pipeline(parallelism: Mapping[str, Any], launch: str) -> str:
    """What PyTorch's schedules lack, which torchtitan runs."""
    pp, schedule = int(parallelism["pp"]), parallelism["schedule"]
    # `TrainingConfig.disable_cuda_graphs`: no graphs of a pipeline yet.
    if launch not in ("eager", "compiled"):
        return f"has no `launch: {launch}` with a pipeline"
    # `_check_torch_compile_compatibility`: passes that are cut in two are not compiled.
    if schedule == "zero_bubble" and launch != "eager":
        return "compiles no `zero_bubble`"
    many = parallelism.get("microbatches")
    if many and schedule == "1f1b" and int(many) < pp:
        return f"has no `1f1b` of {many} microbatches over {pp} stages"
    rounds = max(1, int(many or pp) // pp)
    if schedule in ("interleaved", "zero_bubble") and int(many or pp) % rounds:
        return f"shares no {many} microbatches over {rounds} rounds of `{schedule}`"
    return ""


TOOLS: dict[str, Tool] = {
    # Every rank keeps the whole state of the optimizer, as it would under DDP.
    "allrail": Tool("the runtime", {**_CUTS_NOTHING, "zero": (0,)}, rows=True, lossy=True),
    "ddp": Tool("DDP", {**_CUTS_NOTHING, "zero": (0,)}),
    "fsdp": Tool("FSDP2", {**_CUTS_NOTHING, "zero": (2, 3)}, beside=("tp", "cp", "pp")),
    "megatron": Tool(
        "Megatron-LM",
        {
            "op": (1,),
            "schedule": ("1f1b", "interleaved"),
            "recompute": ("none", "selective", "full"),
        },
        recipes=("plain", "fp8_delayed", "fp8_tensorwise", "mxfp8", "nvfp4"),
        launch="fused",
        # `initialize_model_parallel` wants the pipeline outermost where experts are spread.
        spread=(DP_INSIDE,),
        rules=_of_megatron,
    ),
    "torchtitan": Tool(
        "torchtitan",
        {
            "op": (1,),
            "schedule": ("gpipe", "1f1b", "interleaved", "zero_bubble"),
            "zero": (0, 2, 3),
            # Its `selective` keeps what `alternate` keeps.
            "recompute": ("none", "alternate", "full"),
        },
        recipes=("plain", "fp8_tensorwise", "fp8_rowwise"),
        precisions=("fp32", "bf16"),
        numberings=(DP_INSIDE,),
        rules=_of_torchtitan,
        sharded=(0, 2),
    ),
}
"""By the name that `--for` takes."""


def tools_for(
    workload: Mapping[str, Any],
    *,
    sizes: Mapping[str, Any] | None = None,
    numberings: Collection[str] = (PP_INSIDE, DP_INSIDE),
) -> list[str]:
    """Return the tools that can do what a workload says.

    Args:
        workload: As a scenario has it.
        sizes: Of its transformer, where they are known.
        numberings: Those that place ranks as the scenario does.
    """
    return [
        name
        for name, tool in TOOLS.items()
        if not tool.lacks(workload, sizes=sizes, numberings=numberings)
    ]
