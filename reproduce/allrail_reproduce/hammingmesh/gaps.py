"""Why a number of ours differs from the published one: text that stands beside the number."""

from __future__ import annotations

from allrail_reproduce.hammingmesh.published import (
    DRAGONFLY,
    EXPLAINED_FROM,
    HX4,
    HYPERX,
    TORUS,
    TREE,
    TREE_50,
    TREE_75,
    Published,
)
from allrail_reproduce.published import chosen

COSTS = {
    ("large", TREE_50): "the paper's text counts 390 leaves, which hold 16,380 NPUs, and 418.3 M$",
    ("large", HYPERX): "the paper's text has twice the switches of its own price",
    ("small", TORUS): "all cables optical: only so the printed price comes out; the text says DAC",
    ("large", TORUS): "all cables optical: only so the printed price comes out; the text says DAC",
}

DIAMETERS = {
    ("small", DRAGONFLY, "diameter"): "3 is the number of links between switches; with the cables "
    "at the NPUs it would be 5, and 4 where two groups' routers are neighbours",
    ("small", DRAGONFLY, "diameter_bfs"): "3 needs all 64 switches to be neighbours",
    ("small", HX4, "diameter_bfs"): "8 has one switch per row of NPUs; the merged switch that is "
    "priced lets a packet change rows in it",
}

MIX = (
    "the paper does not print its distribution of job sizes; the claims hold on one with more "
    "small jobs, and two large jobs do not share a small mesh"
)

JUMPS = (
    "on 8x8 boards a mix is either placed whole or lacks one large job: the median of the mixes "
    "stands on one side or the other, as the seed has it"
)

ROUNDS = (
    "moves that wait for boards which others leave go in rounds, and all moves of a mix are added "
    "up; a round, all boards of a job at once, takes 0.17 s on boards of 2x2 and 0.34 s of 4x4"
)

MERGED = (
    "the paper prices one switch per row of boards and simulates one tree per row of NPUs: the "
    "links between such a switch and a board are the same, but a packet that arrives there may "
    "leave on any of the board's rows"
)

SAVINGS = (
    "five printed ones do not follow by rounding: small Hx2Mesh and torus all-reduce, small "
    "Hx4Mesh all-to-all, large dragonfly all-to-all, large torus all-reduce"
)

RINGS = (
    "both algorithms send the same bytes over every cable of a square, and rings have more steps, "
    "so they never win, in packets on the small clusters neither. The paper's formula for rows and "
    "columns has S(1 + 2q)/(4q) of bytes, q the root of p, where its own terms give "
    "S(1 + q)/(2q) and the exact count S/2 (1 - 1/p): with the former rings win on large buffers"
)

ORDER = (
    "what an all-reduce loses is latency, and how much depends on the bytes in a plane: with 32 GB "
    "over all planes a tree's 16 planes have 2 GB each, and the 4 of the others 8; with 2 GB in "
    "every plane trees are above meshes and tori as printed. The paper does not print the size"
)

A_PLANE = chosen("bytes in a plane", by="the order of the large all-reduces")

WINDOW = chosen(
    "window of 8 phases",
    "what ends a phase",
    by="the all-to-alls of Hx2Mesh and the tapered fat trees in packets",
)
"""Without a barrier; the paper prints neither."""

OPTICAL = chosen("optical cables on a torus", by="the printed costs")
"""The text says copper, which gives 1.1 and 17.8 M$."""

SAVED = "a saving goes with our cost and two of our shares; what it differs by, they differ by"

_FILLS = (
    "a fluid with the best splitting fills every link of a phase; packets choose by the queues "
    "at one switch"
)
_TREE_PACKETS = (
    "phases overlap without a barrier, so that leaves with fewer NPUs lend their uplinks; the tree "
    "is wired as the authors' simulator wires it, one cable from each leaf to each spine"
)
_ONE_BY_ONE = "with a barrier after each phase every collision at a link counts alone"
_FREE = (
    "a sample of few phases, split evenly over shortest paths: without a barrier phases lend one "
    "another what they leave idle, as far as a window of messages goes"
)
_BUFFERS = (
    "the share is a matter of buffers: without a barrier phases overlap as far as buffers let "
    "them. With 16 phases and 32 MB, 256 kB, 64 kB it is 5.2, 1.1, 0.3 %; with a barrier after "
    "each phase, 2.3 %"
)
_UGAL = (
    "routed by UGAL-L, a packet compares the queues of its own router only; SST 11.1 with the "
    "paper's settings and 8 KiB messages gives 47.2 %, below the published share too"
)

_LATENCY = (
    "with a barrier after each, every phase of 64 KiB a plane pays its latency; without latency "
    "the share is 100 %"
)

_ALL_TO_ALL = {
    ("small", TREE, "flows"): _LATENCY,
    ("large", TREE, "flows"): _LATENCY,
    ("small", HX4, "flows"): _FILLS,
    ("small", TORUS, "flows"): _FILLS,
    ("small", HYPERX, "flows"): "one link between any two routers of a row: without queues nothing "
    "is lost; as it is priced, a HammingMesh of 1x1 boards, no more than 51.6 % is possible",
    ("small", HYPERX, "packets"): "without a barrier phases overlap, and no link is short; with "
    "one after each phase some are",
    ("small", TREE_50, "packets"): _TREE_PACKETS,
    ("small", TREE_75, "packets"): _TREE_PACKETS,
    ("small", DRAGONFLY, "packets"): _UGAL,
    ("small", HX4, "packets"): "equal splitting gives 9.2 %, the best 12.4 %: packets choose by "
    "the queues at one NPU, in between",
    ("small", TORUS, "packets"): _BUFFERS,
    ("large", TREE_50, "flows"): "a sample of few phases; over all, the fluid is 52.5 % (its "
    "leaves' uplinks)",
    ("large", TREE_75, "flows"): "a sample of few phases; over all, the fluid is 25.6 % (its "
    "leaves' uplinks)",
    ("large", DRAGONFLY, "flows"): "a sample of few phases; a shift puts each group's traffic on "
    "one or two others, and how much depends on the shift",
    ("large", HX4, "flows"): _FILLS,
    ("large", TORUS, "flows"): "a sample of few phases, and phase by phase; the published value "
    "lies between that and uniform traffic (1.56 %), as if phases overlapped",
}

_SIZE = (
    "the message size behind the published share is not printed; it sets what latency takes from it"
)


def share(cluster: Published, kind: str, network_model: str, ours: float, published: float) -> str:
    """Return the reason for a share's difference; empty if it is small.

    Args:
        cluster: Where.
        kind: `all-to-all` or `all-reduce`.
        network_model: What predicted ours.
        ours: Our share.
        published: The printed one, in the same unit.
    """
    if abs(ours / published - 1) <= EXPLAINED_FROM:
        return ""
    if kind == "all-reduce":
        return _SIZE
    if network_model == "packets with barrier":
        return _ONE_BY_ONE
    if network_model == "flows without barrier":
        return _FREE
    return _ALL_TO_ALL.get((cluster.size, cluster.name, network_model), "not explained yet")
