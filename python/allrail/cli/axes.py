"""Axes of comparisons that have an option of their own."""

SHORT = {
    "policy": "schedule.policy",
    "order": "schedule.order",
    "fabric": "fabric",
    "chunks": "schedule.chunks",
    "size": "collective.size",
    "world": "world",
    "model": "workload.model",
    "tensor": "schedule.tensor",
    "coordination": "schedule.coordination",
}
"""Keys that have an option of their own, by its name."""
