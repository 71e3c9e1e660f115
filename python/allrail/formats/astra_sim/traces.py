"""A Chakra trace under ASTRA-sim 2.x's network and system files, as a scenario.

The trace is a training step whose nodes are read where it runs; here are the network and the
schedule that the other files describe. What ASTRA-sim 2.x does with a trace, each a key of the
scenario:

- a collective of `S` bytes is cut into chunks of `floor(S / preferred-dataset-splits)` bytes, the
  last one padded, of as many bytes at least as there are NPUs (`schedule.cut`, `smallest_chunk`);
- a step that reduces waits for memory (`fabric.memory_bandwidth`);
- every stage of the `active-chunks-per-dimension` hands its messages to the links at once
  (`schedule.send_ahead`, in `links`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allrail.errors import InputError
from allrail.formats.astra_sim.implementations import on_dimension, operations_of
from allrail.formats.astra_sim.network import AstraDimension, AstraNetwork
from allrail.formats.astra_sim.source import plain
from allrail.formats.astra_sim.system import AstraSystem


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
) -> dict[str, Any]:
    """The `workload` of the scenario.

    Args:
        prefix: The trace.
        comm_group: Its process groups.
        comm_scale: Multiplies bytes.
        compute_scale: Multiplies compute times.
        num_passes: How many iterations there are.

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
    return {
        "name": prefix.name,
        "model": {"trace": trace},
        "iterations": num_passes,
        "compute": {"scale": compute_scale},
    }


def scenario(net: AstraNetwork, sys: AstraSystem, *, world: str) -> dict[str, Any]:
    """The network and the schedule.

    Args:
        net: The network.
        sys: The system.
        world: `dims` or `links`.
    """
    kept = [i for i, dimension in enumerate(net.dimensions) if dimension.size > 1]
    algorithms = {}
    for kind, names in sys.implementations.items():
        used = [(names[min(i, len(names) - 1)], net.dimensions[i]) for i in kept]
        listed = [on_dimension(name, dimension=one, world=world)[0] for name, one in used]
        if kind != "all_to_all" or all(kind in operations_of(name) for name in listed):
            algorithms[kind] = listed
    return {
        "schema_version": 1,
        "fabric": {
            "name": net.name,
            "dimensions": [_dimension(net.dimensions[i], world) for i in kept],
            **({} if sys.memory is None else {"memory_bandwidth": f"{plain(sys.memory)} GB/s"}),
        },
        "schedule": {
            "policy": "baseline",
            "order": "fifo",
            "chunks": sys.splits,
            "cut": "full",
            "smallest_chunk": f"{net.npus} B",
            "active_chunks": sys.active_chunks,
            "endpoint_delay": f"{plain(sys.endpoint_delay, decimals=3)} ns",
            "algorithms": None,
            "algorithms_by_operation": algorithms,
            "collective_order": sys.collective_order,
            "composition": "merged" if sys.local_bw_aware else "sequential",
            # Every stage that is chosen sends at once; links serve in the order in which it came.
            **({"send_ahead": "1 PiB"} if world == "links" else {}),
            "tensor": {"policy": "fifo", "barrier": False},
        },
        "world": world,
        "seed": 0,
    }


def _dimension(dimension: AstraDimension, world: str) -> dict[str, Any]:
    from allrail.formats.astra_sim.implementations import Implementation

    direct = Implementation("direct", "direct", whole=False)
    _, links, contention = on_dimension(direct, dimension=dimension, world=world)
    return {
        "kind": dimension.topology.value,
        "size": dimension.size,
        "links": links,
        "bandwidth": f"{plain(dimension.bandwidth)} GiB/s",
        "latency": f"{plain(dimension.step_latency, decimals=3)} ns",
        "in_network_reduction": False,
        "contention": contention,
    }
