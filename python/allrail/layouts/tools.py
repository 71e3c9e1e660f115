"""What each tool that trains can do: one table, for `allrail plan --for` and for `allrail apply`.

A tool is judged by what a scenario says under `workload`: its parallelism, precision, recipe. What
the table says was read in the tools' own code of August 2026: Megatron-LM's `arguments.py` and
`initialize.py`, torchtitan's `configs.py`, `parallel_dims.py` and `pipeline_parallel.py`, PyTorch's
`distributed` (DDP, `fully_shard`, `pipelining.schedules`), and the runtime of `allrail.torch`.

Python:
    from allrail.layouts.tools import TOOLS, tools_for

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
        if why := self.rules(asked, workload, sizes or {}):
            return f"{self.title} {why}"
        if not numberings:
            return f"{self.title} numbers ranks from `tp` outwards: no such `map`"
        if not set(numberings) & set(self.numberings):
            where = "outside" if DP_INSIDE in self.numberings else "inside"
            return f"{self.title} numbers the stages of a pipeline {where} of its replicas"
        return ""


def _of_megatron(
    parallelism: Mapping[str, Any], workload: Mapping[str, Any], sizes: Mapping[str, Any]
) -> str:
    del workload
    tp, cp = int(parallelism["tp"]), int(parallelism["cp"])
    # `TransformerConfig.__post_init__`: groups of keys are shared out over ranks, or ranks of them.
    groups = int(sizes.get("kv_heads") or sizes.get("heads") or tp)
    if groups % tp and tp % groups and not sizes.get("latent"):
        return f"cuts {groups} heads of keys neither into `tp: {tp}` nor joins ranks of it"
    tokens = sizes.get("sequence_length")
    if cp > 1 and tokens and int(tokens) % (2 * cp):
        return f"cuts {tokens} tokens into no {2 * cp} equal parts for `cp: {cp}`"
    return ""


def _of_torchtitan(
    parallelism: Mapping[str, Any], workload: Mapping[str, Any], sizes: Mapping[str, Any]
) -> str:
    tp, pp, ep, zero = (int(parallelism[axis]) for axis in ("tp", "pp", "ep", "zero"))
    groups = int(sizes.get("kv_heads") or sizes.get("heads") or tp)
    if groups % tp and not sizes.get("latent"):
        return f"cuts {groups} heads of keys into no `tp: {tp}`"
    # `ParallelDims`: experts lie over `dp_shard * cp * tp`, those of `tp` first.
    if ep > 1 and tp > 1:
        return "lays `ep` over the ranks of `tp`, too"
    if ep > 1 and zero < 2:
        return "lays `ep` over replicas that share states: `zero: 2` or 3"
    launch = (workload.get("compute") or {}).get("launch") or "eager"
    # `TrainingConfig.disable_cuda_graphs`: no graphs of a pipeline yet.
    if pp > 1 and launch not in ("eager", "compiled"):
        return f"has no `launch: {launch}` with a pipeline"
    return ""


TOOLS: dict[str, Tool] = {
    "allrail": Tool("the runtime", {**_CUTS_NOTHING, "zero": (0, 1, 2)}),
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
