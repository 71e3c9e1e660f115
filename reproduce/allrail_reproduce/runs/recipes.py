"""What Megatron-Bridge's performance recipes set: its published runs say no more than "per recipe".

`megatron_bridge.csv` has them by configuration: model, GPU, precision and layout. Source: the
releases v0.2.0 to v0.5.1 of NVIDIA-NeMo/Megatron-Bridge, `*workload_base_configs.py` in
`scripts/performance/configs` (`recompute_modules`, `recompute_num_layers`, `cuda_graph_impl` and
`cuda_graph_scope`, `moe_flex_dispatcher_backend`, `moe_a2a_overlap`, `use_megatron_fsdp`,
`cpu_offloading_num_layers`, `pp_layout`). Where releases differ, the newest one that has the layout
counts: a run may not be known by its release.

Of all recipes: gradients are summed in 16 bits (`grad_reduce_in_fp32 = False`), and 8 bits without
another word are per-tensor current scaling (`fp8_cs`).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from allrail_reproduce.runs.table import Run

TABLE = Path(__file__).with_name("megatron_bridge.csv")

KEY = ("model", "gpu", "precision", "tp", "pp", "cp", "vp", "ep", "micro_batch")

PRECISIONS = (
    # Words of the cell, and the recipe's; the first that fits.
    ("nvfp4", "nvfp4"),
    ("mxfp8", "fp8_mx"),
    ("fp8-mx", "fp8_mx"),
    ("fp8", "fp8_cs"),
    ("bf16", "bf16"),
)


@dataclass(frozen=True)
class Recipe:
    """What a recipe sets.

    Attributes:
        recomputed: Parts of layers whose outputs are computed again.
        whole: So many layers of each piece are computed again whole.
        graphs: What is recorded as CUDA graphs: `none`, `full_iteration`, or parts of layers.
        sharded: Whether parameters are sharded (Megatron FSDP).
        offloaded: Layers whose activations go to the host.
        once: Whether a token travels once to a node, however many experts it has there (DeepEP,
            HybridEP).
        beside: Whether tokens travel to experts beside another microbatch's computing.
        release: Which.
    """

    recomputed: tuple[str, ...]
    whole: int
    graphs: str
    sharded: bool
    offloaded: int
    once: bool
    beside: bool
    release: str


def has_recipe(run: Run) -> bool:
    """Whether a run says that it is one of Megatron-Bridge's recipes."""
    return "perf recipe" in run.text("flags")


def recipe_of_run(run: Run, device: str) -> Recipe | None:
    """Return the recipe of a run; None where it names none, or none has its layout.

    Args:
        run: The line.
        device: Its device's tag.
    """
    if not has_recipe(run):
        return None
    cell = run.text("precision").split("(", maxsplit=1)[0]
    precision = next((name for word, name in PRECISIONS if word in cell), "")
    layout = [run.count(axis) or 1 for axis in ("tp", "pp", "cp", "virtual_stages", "ep")]
    key = (_plain(run.text("model")), device, precision, *layout, run.count("micro_batch") or 1)
    return _recipes().get(tuple(str(one) for one in key))


@cache
def _recipes() -> dict[tuple[str, ...], Recipe]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    found: dict[tuple[str, ...], Recipe] = {}
    # Of several numbers of GPUs the one of the newest release.
    for line in sorted(lines, key=lambda line: line["release"]):
        again = line["recompute"]
        whole = int(again.removeprefix("full:")) if again.startswith("full:") else 0
        parts = () if whole or again == "none" else tuple(again.split("+"))
        key = (_plain(line["model"]), *(line[name] for name in KEY[1:]))
        found[key] = Recipe(
            recomputed=parts,
            whole=whole,
            graphs=line["graphs"],
            sharded=line["fsdp"] == "yes",
            offloaded=int(line["offloaded"] or 0),
            once=line["dispatcher"] in {"deepep", "hybridep"},
            beside=line["beside"] == "yes",
            release=line["release"],
        )
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
