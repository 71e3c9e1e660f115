"""A dimension of ASTRA-sim's network as one of ours, and the algorithms that run on it."""

from __future__ import annotations

from typing import Any

from allrail.formats.astra_sim.implementations import Implementation, on_dimension
from allrail.formats.astra_sim.network import AstraDimension, AstraNetwork
from allrail.formats.astra_sim.system import IMPLEMENTATION_KEYS, AstraSystem
from allrail.scenario.astra_sim.source import plain


def dimension_of(
    dimension: AstraDimension, implementation: Implementation, *, network_model: str, aware: bool
) -> tuple[str, dict[str, Any]]:
    """The name of our algorithm, and the dimension that gives its messages what ASTRA-sim does.

    Args:
        dimension: Theirs.
        implementation: The algorithm on it.
        network_model: Ours that carries it.
        aware: Whether the backend is the congestion-aware one.
    """
    algorithm, links, contention = on_dimension(
        implementation, dimension=dimension, network_model=network_model, aware=aware
    )
    message = {}
    if dimension.message_latency:
        message["message_latency"] = f"{plain(dimension.message_latency, decimals=3)} ns"
    return algorithm, {
        "kind": dimension.topology.value,
        "size": dimension.size,
        "links": links,
        "bandwidth": f"{plain(dimension.bandwidth)} GiB/s",
        "latency": f"{plain(dimension.step_latency, decimals=3)} ns",
        "in_network_reduction": False,
        "contention": contention,
        **message,
    }


def implementations_of(
    net: AstraNetwork, sys: AstraSystem, kind: str
) -> tuple[Implementation, ...]:
    """One implementation for each dimension of the network.

    ASTRA-sim reads past the end of its own list where a file names more (an assertion, in a build
    that has them), and leaves dimensions out of the collective where it names fewer.

    Args:
        net: The network.
        sys: The system file.
        kind: What the collective does.

    Raises:
        InputError: The file names none, more or fewer, or one over several dimensions.
    """
    key = IMPLEMENTATION_KEYS[kind]
    names = sys.implementations.get(kind)
    count = len(net.dimensions)
    if names is None:
        raise sys.source.error(
            f"the key `{key}` is missing, and the workload runs a {kind}",
            hint=f"write `{key}` with one implementation per dimension",
        )
    for i, implementation in enumerate(names):
        if implementation.whole and sum(d.size > 1 for d in net.dimensions) > 1:
            raise sys.source.error(
                f"it joins all {net.npus} NPUs of {count} dimensions in one algorithm, which is "
                "not modelled",
                at=(key, i),
                value=implementation.name,
                hint="use one implementation per dimension, or a network of one dimension",
            )
    if len(names) > count or (len(names) < count and not names[0].whole):
        raise sys.source.error(
            f"it names {len(names)} implementations, the network has {count} dimensions",
            at=key,
            value="_".join(implementation.name for implementation in names),
            hint="write one per dimension",
        )
    return names if len(names) == count else (names[0],) * count
