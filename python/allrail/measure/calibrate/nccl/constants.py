"""NCCL's own constants: what its tuner takes algorithms and protocols to cost.

Numbers are those of NCCL 2.30 (commit 5067397): `src/graph/tuning.cc` (latencies, the most that a
protocol or a channel carries, efficiencies), `src/graph/search.cc` (the speeds that a channel may
have) and `src/graph/topo.h` (what a link of NVLink carries). Latencies are µs, rates GB/s.

Two figures are not NCCL's: how much of a cable's rate a network interface carries follows from the
speeds of `search.cc` (12, 24, 48, 96 for 100, 200, 400, 800 Gb/s), and what CPU a machine has is
not known to a fabric, so that machines have Intel's rates.
"""

from __future__ import annotations

from dataclasses import dataclass

RING, TREE = "ring", "tree"
"""NCCL's algorithms of these names, which are not those of `schedule.algorithms`."""

PROTOCOLS = ("LL", "LL128", "Simple")

BASE_US = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "nvls": (0.0, 0.0, 0.0),
    "nvls_tree": (0.0, 0.0, 0.0),
}
"""Of a collective, by algorithm and protocol (`baseLatencies`)."""

HOP_US = {
    "nvlink": {
        "tree": (0.6, 1.25, 4.0),
        "ring": (0.6, 1.9, 3.4),
        "nvls": (0.0, 0.0, 25.0),
        "nvls_tree": (0.0, 0.0, 25.0),
    },
    "pcie": {
        "tree": (1.0, 1.9, 4.0),
        "ring": (1.0, 2.5, 5.7),
        "nvls": (0.0, 0.0, 0.0),
        "nvls_tree": (0.0, 0.0, 0.0),
    },
    "network": {
        "tree": (5.0, 8.5, 14.0),
        "ring": (2.7, 4.0, 14.0),
        "nvls": (0.0, 0.0, 18.0),
        "nvls_tree": (0.0, 0.0, 20.9),
    },
}
"""Of a step, by what it crosses (`hwLatencies`)."""

NET_OVERHEAD_US = 1.0
"""Of a message to the network, on a machine of Intel's; Simple pays it three times."""

PLATEAU = 1.4
"""Times the latency of a ring in Simple over several machines, from 64 B a channel and rank on."""

TREE_SHARE = (
    (*(1, 1, 1, 1), *(0.9, 0.8), *(0.7,) * 4, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    (*(1, 1, 1, 1, 1), 0.9, *(0.8,) * 3, 0.7, *(0.6,) * 6, 0.8, *(0.9,) * 4),
    (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""Of a tree's rate, by protocol and doublings of 64 B (`treeCorrectionFactor`); 1 beyond them."""

LL_WIRE, RING_LL128_WIRE, LL128_WIRE = 0.5, 0.92, 120 / 128
"""Of a ring's bytes, those that are data: flags take the rest."""
TREE_WIRE, TREE_LL_WIRE = 0.92, 1 / 3.8
TREE_LL128_INSIDE = 7 / 9
MAX_HEADS = 32
"""GPUs of a machine that head a channel of NVLS, at most (`NCCL_MAX_NVLS_ARITY`)."""


@dataclass(frozen=True, slots=True)
class Generation:
    """GPUs of one architecture.

    Attributes:
        name: Its name.
        link: Of a link of NVLink's nominal rate, what NCCL counts (`topo.h`).
        channel_inside: Speeds that a channel may have within a machine.
        channel_between: The same between machines.
        ll_most: What LL carries at most: on one machine, on two, on more.
        ring_ll128: What LL128 carries a channel in a ring.
        tree_ll128: The same in a tree.
        tree: What a channel of a tree carries at most.
        nvls_tree: The same where switches sum within machines and a tree joins them.
        nvls: Of a channel's speed, what is left where switches sum; 0 where none can.
    """

    name: str
    link: float
    channel_inside: tuple[float, ...]
    channel_between: tuple[float, ...]
    ll_most: tuple[float, float, float]
    ring_ll128: float
    tree_ll128: tuple[float, float, float]
    tree: tuple[float, float, float]
    nvls_tree: tuple[float, float, float]
    nvls: float


_INSIDE = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
_BETWEEN = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_INTEL = (39.0, 20.4)
"""What LL carries over two machines, and over more."""

VOLTA = Generation(
    name="volta",
    link=20 / 25,
    channel_inside=_INSIDE,
    channel_between=_BETWEEN,
    ll_most=(39.0, *_INTEL),
    ring_ll128=20.0,
    tree_ll128=(20.0, 20.0, 20.0),
    tree=(26.5, 18.5, 10.0),
    nvls_tree=(0.0, 0.0, 0.0),
    nvls=0.0,
)
AMPERE = Generation(
    name="ampere",
    link=20 / 25,
    channel_inside=_INSIDE,
    channel_between=_BETWEEN,
    ll_most=(87.7, *_INTEL),
    ring_ll128=20.0,
    tree_ll128=(20.0, 20.0, 20.0),
    tree=(24.0, 23.6, 17.8),
    nvls_tree=(0.0, 0.0, 0.0),
    nvls=0.0,
)
HOPPER = Generation(
    name="hopper",
    link=20.6 / 25,
    channel_inside=(60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    channel_between=(48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    ll_most=(141.0, *_INTEL),
    ring_ll128=36.7,
    tree_ll128=(36.7, 36.7, 29.0),
    tree=(38.7, 41.4, 36.0),
    nvls_tree=(0.0, 57.7, 45.5),
    nvls=0.85,
)
BLACKWELL = Generation(
    name="blackwell",
    link=40.1 / 50,
    channel_inside=(90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
    channel_between=(
        *(96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22),
        *(20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    ),
    ll_most=(282.0, *_INTEL),
    ring_ll128=40.0,
    tree_ll128=(55.6, 31.67, 20.0),
    tree=(70.0, 42.8, 24.0),
    nvls_tree=(0.0, 96.0, 80.0),
    nvls=0.74,
)

GENERATIONS = (
    (r"\b[GB]+[23]00\b|\bRTX PRO|\bRTX 50|\bB[23]00", BLACKWELL),
    (r"\b(H100|H200|H800|H20|GH200)\b", HOPPER),
    (r"\b(A100|A800|A40|A30|A10|RTX 30)", AMPERE),
    (r"\b(V100|RTX 20|T4)", VOLTA),
)
"""What a driver calls devices, and their generation."""
