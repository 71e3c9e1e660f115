"""Numbers of HammingMesh's text that follow from counts: bisections, injection, sizes of models.

Each is computed from the fabric or the model that our other rows run on, so that a wrong count
shows here first.
"""

from __future__ import annotations

from allrail import _core
from allrail.scenario import GraphFabric
from allrail.simulation.graphs import count
from allrail_reproduce.horovod.models import parameters
from allrail_reproduce.published import number
from allrail_reproduce.rows import Row

TEXT = "SC'22, a section that our copy does not name"
WORKLOADS = "SC'22, §V-B"
LINK = "400 Gb/s"
TREE = {
    "topology": "fat_tree",
    "npus": 16384,
    "levels": 3,
    "taper": 0,
    "switch_radix": 64,
    "planes": 1,
    "link": {"bandwidth": LINK, "latency": "20 ns"},
}
TORUS = {
    "topology": "torus",
    "shape": [32, 32, 16],
    "board": [2, 2, 1],
    "planes": 1,
    "link": {"bandwidth": LINK, "latency": "20 ns"},
    "board_link": {"bandwidth": LINK, "latency": "1 ns"},
}
"""16,384 NPUs each, one plane."""
INJECTING = "fat-tree-16k"
HIDDEN, SEQUENCE, EXPERTS = 12288, 2048, 16
"""Of GPT-3, and of its variant with experts."""

ROUNDED = (
    "the text rounds before it multiplies: 12 h^2 is 1.812e9 with h = 12,288, and 1.8e9 over 16 "
    "experts is its number an expert"
)


def rows() -> list[Row]:
    """Return every number that is counted."""
    return [*_bandwidths(), *_sizes()]


def _bandwidths() -> list[Row]:
    gigabytes = _core.parse_quantity("bandwidth", LINK) / 1e9
    cuts = {
        name: count(GraphFabric.model_validate({"name": name, **keys}))["half_plane_cut_links"]
        for name, keys in (("tree", TREE), ("torus", TORUS))
    }
    tree, torus = (cuts[name] * gigabytes / 1e3 for name in ("tree", "torus"))
    injected = count(INJECTING)
    inside = injected["planes"] * injected["ports"] * gigabytes
    return [
        Row(case, ours, number(stated, TEXT), unit, within=1e-6, how="counted")
        for case, ours, stated, unit in (
            ("fat tree of 16,384, bisection of a plane", tree, 409.6, "TB/s"),
            ("torus of 32x32x16, bisection of a plane", torus, 51.2, "TB/s"),
            ("bisection of that torus over that of the tree", 100 * torus / tree, 12.5, "%"),
            ("injection of an NPU, 16 planes", inside, 800.0, "GB/s"),
        )
    ]


def _sizes() -> list[Row]:
    layer = 12 * HIDDEN**2 / 1e9
    activations = 4 * SEQUENCE * HIDDEN / 1e6
    expert = 1e3 * layer / EXPERTS
    told = "counted"
    return [
        Row(case, ours, number(stated, WORKLOADS), unit, within=within, how=told, why=why)
        for case, ours, stated, unit, within, why in (
            ("ResNet-152, parameters", parameters("resnet152") / 1e6, 60.2, "M", 0.01, ""),
            ("CosmoFlow, parameters", parameters("cosmoflow") / 1e6, 8.9, "M", 0.01, ""),
            ("GPT-3, activations of an example", activations, 100.0, "MB", 0.01, ""),
            ("GPT-3, parameters of a layer", layer, 1.82, "G", 0.01, ROUNDED),
            ("GPT-3, bytes of a layer in FP16", 2 * layer, 3.65, "GB", 0.01, ROUNDED),
            ("GPT-3 MoE, parameters of an expert", expert, 112.5, "M", 0.01, ROUNDED),
        )
    ]
