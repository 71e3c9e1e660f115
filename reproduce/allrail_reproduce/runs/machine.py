"""From cells to a machine: the device, and the network between devices.

Links reach less than their rate: what NCCL's own tests show of an all-reduce on whole nodes
(`bus bandwidth`) over the rate per direction. DGX A100: 235 of 300 GB/s; DGX H100 without NVLS: 365
of 450 GB/s; NVL72: 680 of 900 GB/s; InfiniBand and RoCE: 0.92 of the line. All are figures that
users and NVIDIA post of healthy machines; none is of a training run. Of other makers' links a part
is assumed, as `INSIDE` says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import gcd
from statistics import NormalDist
from typing import Any

from allrail_reproduce.runs.table import Run

DEVICES = (
    # Words that must all be in the cell, without spaces and hyphens, and the device; the first that
    # fits.
    (("gb300",), "gb300"),
    (("gb200",), "gb200"),
    (("b300",), "b300"),
    (("b200",), "b200"),
    (("gh200",), "gh200"),
    (("h200",), "h200"),
    (("h800",), "h800"),
    (("h20",), "h20"),
    (("h100", "pci"), "h100_pcie"),
    (("h100", "96", "500"), "h100_96gb_500w"),
    (("h100", "500w"), "h100_96gb_500w"),
    (("h100", "94"), "h100_94gb"),
    (("h100",), "h100"),
    (("a100", "40"), "a100_40gb"),
    (("a100", "pci"), "a100_pcie"),
    (("a100",), "a100"),
    (("a800",), "a100"),
    (("l40s",), "l40s"),
    (("mi355",), "mi355x"),
    (("mi325",), "mi325x"),
    (("mi300",), "mi300x"),
    (("mi250x",), "mi250x"),
    (("mi250",), "mi250"),
    (("gaudi3",), "gaudi3"),
    (("gaudi2",), "gaudi2"),
    (("v100",), "v100"),
    (("v6e",), "tpu_v6e"),
    (("trillium",), "tpu_v6e"),
    (("v5e",), "tpu_v5e"),
    (("v5lite",), "tpu_v5e"),
    (("v5p",), "tpu_v5p"),
    (("tpu", "v4"), "tpu_v4"),
    (("tpu", "v3"), "tpu_v3"),
    (("trainium2",), "trainium2"),
    (("trn2",), "trainium2"),
    (("trainium",), "trainium1"),
    (("trn1",), "trainium1"),
)

CARDS = 4
"""Cards of a node of MI250s, of two dies each: where a node has more, a table counts dies."""

PCIE = 20
"""GB/s per direction and GPU that a collective reaches over PCIe 4.0 switches (assumed)."""

INSIDE = {
    # GB/s per direction that a collective reaches within a domain, by device.
    "a100": 235,
    "a100_40gb": 235,
    "a100_pcie": PCIE,
    "h100_pcie": PCIE,
    "l40s": PCIE,
    "v100": 130,
    "h800": 160,
    "b200": 680,
    "b300": 680,
    "gb200": 680,
    "gb300": 680,
    "mi300x": 320,
    "mi325x": 320,
    # As much of its links as an MI300X of its own, 320 of 448 (assumed): 538; 6 of 50 of a card.
    "mi355x": 384,
    "mi250": 214,
    "mi250x": 214,
    "mi250_gcd": 107,
    "mi250x_gcd": 107,
    # 21 ports of 100 and 200 Gb/s Ethernet, of which collectives reach as much as of a line.
    "gaudi2": 241,
    "gaudi3": 483,
    # Four fifths of a chip's links (assumed): 300, 200, 400, 600, 384 and 640 GB/s.
    "tpu_v4": 240,
    "tpu_v5e": 160,
    "tpu_v6e": 320,
    "tpu_v5p": 480,
    "trainium1": 307,
    "trainium2": 512,
}
"""What collectives reach inside; 365 elsewhere."""

NIC = {
    "a100": 200,
    "a100_40gb": 200,
    "a100_pcie": 200,
    "v100": 100,
    "b300": 800,
    "gb300": 800,
    "mi250": 200,
    "mi250x": 200,
    "mi250_gcd": 100,
    "mi250x_gcd": 100,
    "gaudi2": 300,
    "gaudi3": 600,
    "trainium1": 50,
    "trainium2": 200,
}
"""Gb/s of a GPU's network interface where the table has none; 400 elsewhere."""

PODS = {"tpu_v3": 1024, "tpu_v4": 4096, "tpu_v5e": 256, "tpu_v6e": 256, "tpu_v5p": 8960}
"""Chips of a pod, which are one network at most."""

LINKS = {"a100": 12, "a100_40gb": 12, "v100": 6}
"""NVLinks of a GPU; 18 elsewhere."""

LINE = 0.92
"""The part of a line's rate that a collective reaches."""

RACKS = ("gb200", "gb300")
"""Devices that are sold in such racks."""

DOMAIN = 72
"""GPUs of an NVL72 rack."""

VARIATION = 0.08
"""How far GPUs of one kind and cluster differ at the same kernels. Sinha et al., "Not All GPUs Are
Created Equal" (SC'22): 8 % on average of five clusters, from manufacturing and power management."""

WHISKERS = 5.4
"""Standard deviations in that: read as a box plot's, from whisker to whisker, 1.5 interquartile
ranges beyond the quartiles of a normal distribution."""


@dataclass
class Machine:
    """What a job runs on.

    Attributes:
        device: A device's tag.
        fabric: The key `fabric` of a scenario.
        sizes: NPUs of its dimensions.
        assumed: What the table does not say.
    """

    device: str
    fabric: dict[str, Any]
    sizes: list[int]
    assumed: list[str] = field(default_factory=list)


def slowest(gpus: int) -> float:
    """Return the computing time of the slowest of so many GPUs over that of a typical one.

    A step waits for it. The largest of n normal numbers is expected at the quantile (n - 3/8) /
    (n + 1/4) (Blom, 1958).

    Args:
        gpus: How many compute together.
    """
    quantile = NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
    return 1 + VARIATION / WHISKERS * max(0.0, quantile)


def device_of(run: Run) -> str | None:
    """Return the tag of the device that a run names; None where none is known."""
    cell = re.sub(r"[\s_-]", "", run.text("gpu"))
    for words, tag in DEVICES:
        if all(word in cell for word in words):
            dies = tag.startswith("mi250") and (run.count("gpus_per_node") or 2 * CARDS) > CARDS
            return f"{tag}_gcd" if dies else tag
    return None


def machine_of(run: Run, device: str) -> Machine:
    """Return the machine of a run on so many GPUs.

    NCCL sums with one ring over all ranks, of which (n - 1)/n of the data crosses from one island
    of NVLink to the next each way; summed within the islands first, (k - 1)/k of it would.

    Args:
        run: The line.
        device: Its device's tag.
    """
    assumed: list[str] = []
    gpus = run.count("gpus") or 1
    node = run.count("gpus_per_node")
    if node is None:
        node = 8
        assumed.append("8 GPUs a node")
    inside = run.text("intra_node")
    rack = device in RACKS and not inside
    wide = rack or "nvl72" in inside or "nvl72" in run.text("gpu")
    if rack and gpus > node:
        assumed.append(f"{DOMAIN} GPUs to a domain of NVLink")
    most = PODS.get(device, DOMAIN if wide else node)
    domain = _divisor(gpus, most)
    nic = run.number("inter_node_gbps_per_gpu")
    if nic is None:
        nic = NIC.get(device, 400)
        if gpus > domain:
            assumed.append(f"a network interface of {nic:g} Gb/s per GPU")
    rate = INSIDE.get(device, 365)
    if "pcie" in inside:
        rate = PCIE
    dimensions = []
    joined = _joined(inside, device, domain)
    if joined > 1:
        dimensions.append(
            {"kind": "switch", "size": joined, "bandwidth": f"{rate} GB/s", "latency": "3 us"}
        )
    if domain > joined:
        # What no NVLink joins within a node goes over its PCIe switches.
        islands = domain // joined
        ring = min(domain, run.count("tp") or 1)
        crossing = (1 - 1 / islands) / (1 - 1 / ring) if ring > joined else 1
        dimensions.append(
            {
                "kind": "switch",
                "size": islands,
                "bandwidth": f"{PCIE * crossing:.4g} GB/s",
                "latency": "5 us",
            }
        )
    if gpus > domain or not dimensions:
        dimensions.append(
            {
                "kind": "switch",
                # One GPU has a neighbour that stays idle.
                "size": max(2, gpus // domain),
                "bandwidth": f"{LINE * nic / 8:g} GB/s",
                "latency": "8 us",
            }
        )
    sizes = [int(str(one["size"])) for one in dimensions]
    return Machine(device, {"dimensions": dimensions}, sizes, assumed)


def _joined(inside: str, device: str, domain: int) -> int:
    """How many GPUs of a node NVLink joins: all, unless so many links join each pair."""
    found = re.search(r"(\d+) links? per pair", inside)
    if found is None:
        return domain
    links = int(found.group(1))
    return _divisor(domain, LINKS.get(device, 18) // max(1, links) + 1)


def _divisor(count: int, most: int) -> int:
    """The largest divisor that is at most so large."""
    return max(one for one in range(1, min(count, most) + 1) if count % one == 0)


def placed(degrees: list[tuple[str, int]], sizes: list[int]) -> dict[str, list[str]]:
    """Lay degrees over dimensions, the first one innermost.

    Args:
        degrees: Axis and degree, from the innermost outwards; their product is that of `sizes`.
        sizes: NPUs of the dimensions.

    Returns:
        The key `parallelism.map`.
    """
    found: dict[str, list[str]] = {}
    at, taken = 0, 1
    for axis, degree in degrees:
        places = []
        left = degree
        while left > 1:
            room = sizes[at] // taken
            if room == 1:
                at, taken = at + 1, 1
                continue
            part = gcd(left, room)
            if part == 1:
                return {}
            whole = taken == 1 and part == sizes[at]
            places.append(str(at) if whole else f"{at}[{taken}:{taken * part}]")
            taken *= part
            left //= part
        if places:
            found[axis] = places
    return found
