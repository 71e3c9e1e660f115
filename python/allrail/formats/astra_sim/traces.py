"""A Chakra trace under ASTRA-sim 2.x's network and system files, as a scenario.

The trace is a training step whose nodes are read where it runs; here are the network and the
schedule that the other files describe. What ASTRA-sim 2.x does with a trace, each a key of the
scenario:

- a collective of `S` bytes is cut into chunks of `floor(S / preferred-dataset-splits)` bytes, the
  last one padded, of as many bytes at least as there are NPUs (`compat.cut`, `smallest_chunk`);
- an NPU runs one communication at a time, receives aside, and one node on its processor, of those
  that are ready the first (`compat.issue`); a send is over when its message has arrived
  (`messages.acknowledged`);
- a process group smaller than the job runs one ring, or on one dimension what the job runs
  (`compat.groups`);
- a dimension has one queue for all (`compat.communicators`);
- a step that reduces waits for memory (`fabric.memory_bandwidth`);
- every stage of the `active-chunks-per-dimension` hands its messages to the links at once
  (`schedule.send_ahead`, in `links`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.formats.astra_sim.dimensions import dimension_of, implementations_of
from allrail.formats.astra_sim.implementations import (
    ONE_WAY,
    Implementation,
    is_staged,
    of_kind,
    operations_of,
    window_of,
)
from allrail.formats.astra_sim.network import AstraNetwork
from allrail.formats.astra_sim.system import AstraSystem
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import plain

BESIDE = "comm_group.json"
"""The process groups of a trace that none are named for."""

PEERS = (b"comm_dst", b"comm_src")
"""Attributes that only messages have."""

PIECE = 1 << 18

GROUP_DELAY = "10 ns"
"""What a message of a process group waits for at its ends, whatever the system file says."""


def is_prefix(workload: str | Path) -> bool:
    """Whether a workload is a trace: what the names of its files begin with.

    Args:
        workload: As the user gave it.
    """
    path = Path(workload)
    return not path.is_file() and path.with_name(f"{path.name}.0.et").is_file()


def workload(
    prefix: Path,
    comm_group: str | Path | None,
    *,
    comm_scale: float,
    compute_scale: float,
    num_passes: int,
    sys: AstraSystem,
) -> dict[str, Any]:
    """The `workload` of the scenario.

    Args:
        prefix: The trace.
        comm_group: Its process groups.
        comm_scale: Multiplies bytes.
        compute_scale: Multiplies compute times.
        num_passes: How many iterations there are.
        sys: The system, which may say how fast an NPU computes.

    Raises:
        InputError: Sizes are to be scaled, which a trace's are not.
    """
    if comm_scale != 1:
        raise InputError(
            "the sizes of a trace are those of its nodes",
            field="--comm-scale",
            value=f"{comm_scale:g}",
            hint="leave it out",
        )
    trace: dict[str, Any] = {"path": str(prefix.absolute())}
    if comm_group is not None:
        trace["groups"] = str(Path(comm_group).absolute())
    if sys.customs:
        trace["collectives"] = sys.customs
    roofline: dict[str, Any] = {}
    if sys.peak is not None:
        roofline = {"peak": f"{plain(sys.peak)} TFLOP/s", "efficiency": 1.0}
        if sys.memory is not None:
            roofline["memory_bandwidth"] = f"{plain(sys.memory)} GB/s"
    return {
        "name": prefix.name,
        "model": {"trace": trace},
        "iterations": num_passes,
        "compute": {"scale": compute_scale} | roofline,
    }


def carried(
    net: AstraNetwork,
    sys: AstraSystem,
    prefix: Path,
    comm_group: str | Path | None,
    network_model: str,
) -> str:
    """The network model of ours that carries a trace.

    Where ranks send to each other, process groups are smaller than the job, or an algorithm's
    ranks are not alike (trees), messages of ranks (`links`); else stages of ranks that are alike
    (`dims`), whose cost does not depend on how many there are.

    Args:
        net: The network.
        sys: The system.
        prefix: The trace.
        comm_group: Its process groups.
        network_model: As it was asked for; `links` is the congestion-aware backend.
    """
    groups = prefix.parent / BESIDE if comm_group is None else Path(comm_group)
    names = [name for listed in sys.implementations.values() for name in listed]
    alike = all(is_staged(name.algorithm) for name in names)
    if network_model == "links" or sys.customs or not alike or _has_parts(groups, net.npus):
        return "links"
    named = prefix.parent.glob(f"{prefix.name}.*.et")
    return "links" if any(_has_messages(file) for file in named) else "dims"


def _has_parts(groups: Path, npus: int) -> bool:
    """Whether a file names process groups smaller than the job; its mistakes are said later."""
    try:
        named = json.loads(groups.read_bytes())
        return any(len(ranks) < npus for ranks in named.values())
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return True


def _has_messages(file: Path) -> bool:
    """Whether a rank sends or receives: of all versions of the format, two name an attribute.

    Read in pieces, up to the first that does: traces are large, and pipelines begin with a message.
    """
    rest = b""
    with file.open("rb", buffering=0) as opened:
        while piece := opened.read(PIECE):
            if any(name in rest + piece for name in PEERS):
                return True
            rest = piece[-len(PEERS[0]) :]
    return False


def scenario(
    net: AstraNetwork, sys: AstraSystem, *, network_model: str, aware: bool, notes: Notes
) -> dict[str, Any]:
    """The network and the schedule.

    Args:
        net: The network.
        sys: The system.
        network_model: Ours, from `carried`.
        aware: Whether the backend is the congestion-aware one.
        notes: Takes what is not modelled.
    """
    kept = [i for i, dimension in enumerate(net.dimensions) if dimension.size > 1]
    if not kept:
        raise net.source.error(
            "no dimension has more than one NPU: there is nobody to talk to",
            hint="give a dimension 2 NPUs at least",
        )
    usual = Implementation("direct", "direct", whole=False)
    dimensions = [
        dimension_of(net.dimensions[i], usual, network_model=network_model, aware=aware)[1]
        for i in kept
    ]
    algorithms = {}
    asked = []
    for kind in sys.implementations:
        names = implementations_of(net, sys, kind)
        used = [(names[i], net.dimensions[i]) for i in kept]
        asked += used
        given = [
            dimension_of(one, name, network_model=network_model, aware=aware)[0]
            for name, one in used
        ]
        listed = [of_kind(algorithm, kind) for algorithm in given]
        if kind != "all_to_all" or all(kind in operations_of(name) for name in listed):
            algorithms[kind] = listed
    schedule = {
        "policy": "baseline",
        "order": "fifo",
        "chunks": sys.splits,
        "smallest_chunk": f"{net.npus} B",
        "active_chunks": sys.active_chunks,
        "endpoint_delay": f"{plain(sys.endpoint_delay, decimals=3)} ns",
        "algorithms": None,
        "algorithms_by_operation": algorithms,
        "collective_order": sys.collective_order,
        "composition": "merged" if sys.local_bw_aware else "sequential",
        "tensor": {"policy": "fifo", "barrier": False},
    }
    compat: dict[str, Any] = {
        "cut": "full",
        "communicators": "queue",
        "issue": "in_turn",
        "message_endpoint_delay": "0 ns",
    }
    if network_model == "links":
        # Every stage that is chosen sends at once; links serve in the order in which it came.
        schedule["send_ahead"] = "1 PiB"
        # Of several dimensions, a part of them is a ring; of one, it runs what all run.
        own = {kind: listed[0] for kind, listed in algorithms.items() if len(kept) == 1}
        own = {"all_to_all": of_kind(ONE_WAY["ring"], "all_to_all")} | own
        compat["groups"] = {"algorithms": own, "endpoint_delay": GROUP_DELAY}
    memory = {} if sys.memory is None else {"memory_bandwidth": f"{plain(sys.memory)} GB/s"}
    window = window_of(asked, npus=net.npus, network_model=network_model, notes=notes)
    return {
        "schema_version": 1,
        "fabric": {"name": net.name, "dimensions": dimensions, **memory, **window},
        "schedule": schedule,
        "compat": compat,
        "messages": {"acknowledged": True},
        "network_model": network_model,
        "seed": 0,
    }
