"""A dimension of ASTRA-sim's network as one of ours, under an algorithm."""

from __future__ import annotations

from typing import Any

from allrail.formats.astra_sim.implementations import Implementation, on_dimension
from allrail.formats.astra_sim.network import AstraDimension
from allrail.formats.astra_sim.source import plain


def dimension_of(
    dimension: AstraDimension, implementation: Implementation, *, world: str, aware: bool
) -> tuple[str, dict[str, Any]]:
    """The name of our algorithm, and the dimension that gives its messages what ASTRA-sim does.

    Args:
        dimension: Theirs.
        implementation: The algorithm on it.
        world: Ours that carries it.
        aware: Whether the backend is the congestion-aware one.
    """
    algorithm, links, contention = on_dimension(
        implementation, dimension=dimension, world=world, aware=aware
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
