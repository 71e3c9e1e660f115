"""Cases of presets: each fabric under each network model, each workload, each device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import yaml

from frozen.cases import ROOT, Case, scenario

NETWORK_MODELS = ("dims", "links", "flows", "packets")
FABRICS = ROOT / "python" / "allrail" / "presets" / "fabrics"
WORKLOADS = ROOT / "python" / "allrail" / "presets" / "workloads"
DEVICES = ROOT / "crates" / "workload" / "src" / "device" / "presets"
COLLECTIVE = {
    "collective": {"kind": "all_reduce", "size": "64 KiB"},
    "schedule": {"policy": "themis", "chunks": 2},
}
HALF = {
    "collective": {"kind": "reduce_scatter", "size": "64 KiB"},
    "schedule": {"policy": "themis", "chunks": 1},
}
LAYER = {"name": "a", "parameters": 4096, "output": 1, "forward": "100 us", "backward": "200 us"}
STEP = {
    "workload": {
        "model": {"layers": [LAYER]},
        "batch_per_replica": 1,
        "compute": {"device": "a100"},
        "iterations": 1,
    },
    "schedule": {"policy": "baseline", "chunks": 1, "tensor": "priority"},
}
# Of large models in few packets: a step of gigabytes is then a second of computing.
PACKETS = {"packet": "16 MiB", "buffer": "1 GiB"}
# NPUs up to which a model of messages simulates a step, and anything; beyond, only `dims` does.
LARGEST_STEP, LARGEST = 256, 2048
TRAFFIC = {"traffic": {"pattern": "permutation", "size": "64 KiB"}}
TWO_LEVELS = {
    "dimensions": [
        {"kind": "switch", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"kind": "ring", "size": 2, "bandwidth": "25 GB/s", "latency": "2 us"},
    ]
}


def names(folder: Path, ending: str) -> list[str]:
    """The presets in a folder."""
    return sorted(path.stem for path in folder.glob(f"*{ending}"))


def npus(fabric: str) -> int:
    """About how many NPUs a preset has."""
    tree = yaml.safe_load((FABRICS / f"{fabric}.yaml").read_text(encoding="utf-8"))
    if "dimensions" in tree:
        return math.prod(one["size"] for one in tree["dimensions"])
    return 16384 if "16k" in fabric else math.prod(tree.get("shape", [1024]))


def cases() -> Iterator[Case]:
    """All of them; what a network model refuses is a case too."""
    for fabric in names(FABRICS, ".yaml"):
        commands = (("fabric", "show", fabric), ("fabric", "advise", fabric), ("cost", fabric))
        yield Case(f"presets/fabrics/{fabric}", commands)
        size = npus(fabric)
        for model in NETWORK_MODELS:
            dims = model == "dims"
            jobs = {"collective": COLLECTIVE if dims else HALF}
            if dims or size <= LARGEST_STEP:
                jobs["step"] = STEP
            if not dims:
                jobs["traffic"] = TRAFFIC
            for job, keys in jobs.items() if dims or size <= LARGEST else ():
                name = f"presets/fabrics/{fabric}/{model}/{job}"
                yield scenario(name, {"fabric": fabric, **keys, "network_model": model})
    for workload in names(WORKLOADS, ".yaml"):
        for model in NETWORK_MODELS:
            tree = {
                "fabric": TWO_LEVELS,
                "workload": {"model": workload, "compute": {"device": "h100"}, "iterations": 1},
                "schedule": {"policy": "baseline", "chunks": 1},
                "network_model": model,
                **({"packets": PACKETS} if model == "packets" else {}),
            }
            yield scenario(f"presets/workloads/{workload}/{model}", tree)
    for device in names(DEVICES, ".json"):
        tree = {
            "fabric": TWO_LEVELS,
            "workload": {"model": "resnet50", "compute": {"device": device}, "iterations": 1},
        }
        yield scenario(f"presets/devices/{device}", tree)
    yield Case("presets/lists", (("fabric", "list"),))
