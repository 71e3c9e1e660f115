"""A whole training loop as a scenario: the layers as its workload, the system's settings for all.

What changes its form on the way, beside what `case` says:

- A model's NPUs that end within a dimension cut it in two. ASTRA-sim gives each part a queue and
  the whole bandwidth of its own, so the fabric here has two dimensions for it. (It counts the hops
  of a cut ring along the whole ring; here a part is a ring of its own.)
- Each kind of collective has its own algorithms.
- The number of passes is the number of iterations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from allrail.formats.astra_sim.network import AstraDimension, AstraNetwork, Topology
from allrail.formats.astra_sim.system import AstraSystem
from allrail.scenario.astra_sim.header import DLRMS, TRANSFORMERS
from allrail.scenario.astra_sim.layers import LARGEST_SIZE, AstraLayer
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import times
from allrail.scenario.astra_sim.workload import AstraWorkload


def kinds(work: AstraWorkload) -> tuple[str, ...]:
    """Which kinds of collective the layers name, in the order of the first of each.

    Args:
        work: The file.
    """
    found = [phase.kind for layer in work.layers for phase in layer.phases if phase.size]
    return tuple(dict.fromkeys(kind for kind in found if kind is not None))


def broken(net: AstraNetwork, work: AstraWorkload, *, notes: Notes) -> tuple[AstraNetwork, int]:
    """The network with the dimension cut in two where a model's NPUs end within it.

    Args:
        net: The network.
        work: The file, which says how many NPUs hold a model.
        notes: Takes what a cut ring is counted as.

    Returns:
        The network, and which dimension was cut; -1 if none was.

    Raises:
        InputError: The model's NPUs cut a dimension unevenly, or are more than there are.
    """
    if work.header.loop not in TRANSFORMERS:
        return net, -1
    group = work.header.options["model_parallel"]
    inner = 1
    for i, dimension in enumerate(net.dimensions):
        if group <= inner:
            break
        if group % (inner * dimension.size) == 0:
            inner *= dimension.size
            continue
        part = group // inner
        if group % inner or dimension.size % part:
            raise work.source.error(
                f"it cuts dimension {i + 1}, of {dimension.size}, unevenly",
                at="model_parallel_NPU_group",
                value=group,
                hint=f"the dimensions are {_shown(net)}: take whole ones, or a divisor of the last",
            )
        if dimension.topology is Topology.RING:
            notes.add("model_parallel_NPU_group", "it cuts a ring, whose parts are rings here")
        parts = (_part(dimension, part), _part(dimension, dimension.size // part))
        cut = (*net.dimensions[:i], *parts, *net.dimensions[i + 1 :])
        return replace(net, dimensions=cut), i
    if group > inner:
        raise work.source.error(
            f"the network has {net.npus} NPUs",
            at="model_parallel_NPU_group",
            value=group,
            hint=f"{net.npus} at most",
        )
    return net, -1


def compute_ns(work: AstraWorkload, *, compute_scale: float) -> int:
    """How long one pass computes, ns: what the loop runs of each layer, and what it runs again.

    Args:
        work: The file.
        compute_scale: Multiplies every time, which is then rounded down.
    """
    forward, inputs, weights = (
        [int(times(layer.phases[i].compute_ns, compute_scale)) for layer in work.layers]
        for i in range(3)
    )
    loop = work.header.loop
    if loop == "DISTRIBUTED_INFERENCE":
        return sum(forward)
    options = work.header.options
    kept, initiates = (options.get(key, []) for key in ("checkpoints", "checkpoint_initiates"))
    total = sum(forward)
    layer = len(work.layers) - 1
    while layer >= 0:
        if layer in initiates:
            start = max(below for below in kept if below < layer)
            stop = min(above for above in initiates if above > start)
            total += sum(forward[start:stop])
            layer = stop
        lowest = layer == 0 and (loop == "DATA" or loop in DLRMS)
        total += weights[layer] + (0 if lowest else inputs[layer])
        layer -= 1
    return total


def _part(dimension: AstraDimension, size: int) -> AstraDimension:
    links = dimension.links
    if links is not None and dimension.topology is Topology.FULLY_CONNECTED:
        links = links // (dimension.size - 1) * (size - 1)
    return replace(dimension, size=size, links=links)


def _shown(net: AstraNetwork) -> str:
    return " × ".join(str(dimension.size) for dimension in net.dimensions)


def check_sizes(work: AstraWorkload, sys: AstraSystem, *, comm_scale: float, npus: int) -> None:
    """Every collective can be cut into the system's chunks and is not too large.

    Args:
        work: The file.
        sys: The system.
        comm_scale: Multiplies bytes.
        npus: Of the network.

    Raises:
        InputError: One cannot, or is.
    """
    for layer in work.layers:
        for phase in layer.phases:
            if phase.kind is None or phase.size == 0:
                continue
            size = int(times(phase.size, comm_scale))
            if size < sys.splits:
                raise sys.source.error(
                    f"a collective of {size} B (layer `{layer.name}`) has no {sys.splits} chunks",
                    at="preferred-dataset-splits",
                    value=sys.splits,
                    hint=f"{max(size, 1)} at most",
                )
            gathers = phase.kind == "all_gather" and "gathered" not in work.header.options
            if size * (npus if gathers else 1) > LARGEST_SIZE:
                raise _too_large(work, layer, phase.size, comm_scale)


def _too_large(work: AstraWorkload, layer: AstraLayer, size: int, scale: float) -> Exception:
    return work.source.error(
        f"with `--comm-scale {scale:g}` a collective of layer `{layer.name}` is more than 1 PiB",
        at="bytes",
        line=layer.line,
        value=size,
        hint="scale it otherwise",
    )


def workload(
    work: AstraWorkload, *, name: str, comm_scale: float, compute_scale: float, num_passes: int
) -> dict[str, Any]:
    """The `workload` of the scenario.

    Args:
        work: The file.
        name: For tables.
        comm_scale: Multiplies bytes.
        compute_scale: Multiplies compute times.
        num_passes: How many iterations there are.
    """
    model = work.to_json(comm_scale=comm_scale, compute_scale=compute_scale)
    return {"name": name, "model": {"astra_sim": model}, "iterations": num_passes}
