"""From cells to a layout: degrees, where they lie, batch and microbatches, sharding, schedule.

Ranks are numbered as Megatron and torchtitan do, tp innermost, then cp, ep, dp, and pp outermost.
Experts are spread over replicas (`dp` counts these, too, in Megatron's words), so that dp is
divided by ep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from allrail_reproduce.runs.machine import placed
from allrail_reproduce.runs.table import Run


@dataclass
class Layout:
    """How a job is cut.

    Attributes:
        parallelism: Keys of `workload.parallelism`.
        samples: Of a microbatch.
        microbatches: Of a step of a replica.
        assumed: What the table does not say.
    """

    parallelism: dict[str, Any]
    samples: int
    microbatches: int
    assumed: list[str] = field(default_factory=list)

    @property
    def pp(self) -> int:
        """Stages."""
        return int(self.parallelism["pp"])


def why_no_layout(run: Run) -> str | None:
    """Return why a run has no layout; None where it has one."""
    everything = " ".join(run.text(column) for column in ("flags", "model", "sharding"))
    if "lora" in everything:
        return "LoRA trains few of the parameters"
    if "packed" in everything:
        return "packed sequences have no one length"
    if all(run.count(axis) is None for axis in ("tp", "pp", "dp", "cp", "ep")):
        # All replicas, where these share their parameters.
        return None if sharding_of(run)["zero"] == 3 else "the table has no layout for it"
    return None


def layout_of(run: Run, sizes: list[int], *, sharded: bool = False) -> Layout:
    """Return the layout of a run.

    Args:
        run: The line.
        sizes: NPUs of the machine's dimensions.
        sharded: Whether its recipe shards parameters, whatever the table says.
    """
    assumed: list[str] = []
    degree = {axis: run.count(axis) or 1 for axis in ("tp", "pp", "cp", "ep")}
    gpus = run.count("gpus") or 1
    replicas = max(1, gpus // (degree["tp"] * degree["pp"] * degree["cp"]))
    ep = gcd(degree["ep"], replicas)
    if ep < degree["ep"]:
        assumed.append(f"experts over {ep} GPUs, as {degree['ep']} do not divide the replicas")
    parallelism: dict[str, Any] = {
        "tp": degree["tp"],
        "pp": degree["pp"],
        "ep": ep,
        "dp": replicas // ep,
    }
    order = [("tp", degree["tp"]), ("ep", ep), ("dp", replicas // ep), ("pp", degree["pp"])]
    if degree["cp"] > 1:
        parallelism["cp"] = degree["cp"]
        if run.is_torch:
            # PyTorch's `context_parallel` gathers unless told to pass blocks round.
            parallelism["context"] = "all_gather"
        order.insert(1, ("cp", degree["cp"]))
    places = placed(order, sizes)
    if places:
        parallelism["map"] = places
    if degree["tp"] > 1 and run.text("sp").startswith("y"):
        parallelism["sp"] = True
    parallelism |= {"zero": 3} if sharded else sharding_of(run)
    parallelism |= _copies(run, parallelism, replicas, assumed)
    if run.is_torch and parallelism["zero"] == 3:
        parallelism["by_parameter"] = True
    parallelism |= _overlap(run)
    samples, microbatches = _batch(run, replicas, degree["pp"], parallelism, assumed)
    parallelism |= _schedule(run, degree["pp"], microbatches, assumed)
    schedule, sp = parallelism.get("schedule", ""), "sp" in parallelism
    parallelism |= _messages(run, degree["pp"], schedule, sp=sp)
    layers = run.count("layers")
    pieces = degree["pp"] * int(parallelism.get("virtual_stages", 1))
    if layers is not None and degree["pp"] > 1 and layers % pieces:
        # The embedding and the head take a layer's place where that makes it even.
        parallelism["ends_as_layers"] = (layers + 2) % pieces == 0
    return Layout(parallelism, samples, microbatches, assumed)


def sharding_of(run: Run) -> dict[str, Any]:
    """Return how parameters, gradients and states are sharded."""
    cell = re.sub(r"[\s_-]|stage", "", run.text("sharding"))
    if "gradop" in cell or "zero2" in cell:
        return {"zero": 3, "reshard": False}
    if "fsdp" in cell and (run.count("pp") or 1) > 1:
        # With a pipeline what is gathered is kept (torchtitan's `parallelize_llama.py`; Grattafiori
        # et al., 2407.21783, §3.3.2).
        return {"zero": 3, "reshard": False}
    if any(word in cell for word in ("fsdp", "hsdp", "hybridshard", "fullshard", "zero3")):
        return {"zero": 3}
    if "zero1" in cell or "distributedoptimizer" in cell:
        return {"zero": 1}
    return {"zero": 0}


def _copies(
    run: Run, parallelism: dict[str, Any], replicas: int, assumed: list[str]
) -> dict[str, int]:
    """Over how many replicas states are cut where the rest holds copies (HSDP): those of a node."""
    cell = run.text("sharding")
    hybrid = any(word in cell for word in ("hsdp", "hybrid"))
    if not hybrid or parallelism["zero"] == 0 or parallelism["ep"] > 1:
        return {}
    inner = parallelism["tp"] * (run.count("cp") or 1)
    shard = max(1, (run.count("gpus_per_node") or 8) // inner)
    if shard < 2 or replicas % shard or shard == replicas:
        return {}
    assumed.append(f"states cut over {shard} replicas")
    return {"shard": shard}


def visited_nodes(layout: Layout, node: int, visits: int) -> dict[str, int]:
    """Return `expert_nodes`: on how many nodes a token's experts lie on average.

    Of n nodes with as many experts each, k experts drawn apart lie on n (1 - (1 - 1/n)^k).

    Args:
        layout: The layout.
        node: GPUs of a node.
        visits: Experts of a token.
    """
    inner = layout.parallelism["tp"] * layout.parallelism.get("cp", 1)
    nodes = inner * layout.parallelism["ep"] // max(inner, node)
    if nodes < 2 or not layout.parallelism.get("map"):
        return {}
    return {"expert_nodes": min(nodes, round(nodes * (1 - (1 - 1 / nodes) ** visits)))}


def _messages(run: Run, pp: int, schedule: str, *, sp: bool) -> dict[str, Any]:
    """How stages talk.

    Megatron-LM and DeepSpeed wait for each message unless it is interleaved, PyTorch's schedules
    always (`torch.distributed.pipelining`).

    Without `sp` both send a share from each rank of a tensor group (Megatron-LM's
    `scatter_gather_tensors_in_pipeline`, DeepSpeed's `is_pipe_partitioned`).
    """
    if pp == 1:
        return {}
    found: dict[str, Any] = {}
    if run.is_torch or schedule not in {"interleaved", "zero_bubble", "dual_pipe"}:
        found["overlap_messages"] = False
    if (run.count("tp") or 1) > 1 and not sp:
        found["scatter_messages"] = True
    return found


def _overlap(run: Run) -> dict[str, Any]:
    """Whether gradients travel beside the backward pass."""
    flags = run.text("flags")
    found: dict[str, Any] = {}
    if "deepspeed" in run.text("schedule") + flags or "unoverlapped" in flags:
        found["overlap_gradients"] = False
    tp = run.count("tp") or 1
    named = ("async tp", "asynctp", "tp-comm-overlap", "overlaps on", "overlap per perf")
    asynchronous = any(word in flags for word in named)
    if tp > 1 and asynchronous:
        found["async_tp"] = True
    elif tp > 1 and run.is_torch:
        found["overlap_sums"] = False
    return found


def _batch(
    run: Run, replicas: int, pp: int, parallelism: dict[str, Any], assumed: list[str]
) -> tuple[int, int]:
    """Samples of a microbatch, and microbatches."""
    samples, batch = run.count("micro_batch"), run.count("global_batch")
    if batch is None:
        samples = samples or 1
        microbatches = 4 * pp if pp > 1 else 1
        assumed.append(f"a batch of {samples * microbatches} samples a replica")
        return samples, microbatches
    each = max(1, batch // replicas)
    if samples is None:
        # As many microbatches as stages are torchtitan's default.
        samples = max(1, each // pp) if pp > 1 and parallelism["zero"] == 3 else 1
        if pp > 1 or parallelism["zero"] < 3:
            # Without a pipeline, ZeRO 3 takes what fits (`predict`).
            assumed.append(f"a microbatch of {samples}")
    return samples, max(1, each // samples)


def _schedule(run: Run, pp: int, microbatches: int, assumed: list[str]) -> dict[str, Any]:
    if pp == 1:
        return {}
    cell, pieces = run.text("schedule"), run.count("virtual_stages") or 1
    if "zero" in cell and "bubble" in cell:
        return {"schedule": "zero_bubble"}
    if "dual" in cell:
        return {"schedule": "dual_pipe"}
    if "interleaved" in cell and "not stated" not in cell and pieces == 1:
        pieces = _fewest_pieces(run.count("layers") or 0, pp)
        if pieces > 1 and microbatches % pp == 0:
            assumed.append(f"{pieces} pieces a stage")
    if pieces > 1 and microbatches % pp == 0:
        return {"schedule": "interleaved", "virtual_stages": pieces}
    if "gpipe" in cell:
        return {"schedule": "gpipe"}
    return {"schedule": "1f1b"}


def _fewest_pieces(layers: int, pp: int) -> int:
    """Of a stage, the fewest that interleave and are alike, the ends counted as layers or not."""
    fitting = (
        pieces
        for pieces in range(2, layers // pp + 1)
        if any(places % (pp * pieces) == 0 for places in (layers, layers + 2))
    )
    return next(fitting, 1)
