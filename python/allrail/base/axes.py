"""Axes of comparisons that have an option of their own."""

SHORT = {
    "policy": "schedule.policy",
    "order": "schedule.order",
    "fabric": "fabric",
    "chunks": "schedule.chunks",
    "size": "collective.size",
    "network_model": "network_model",
    "model": "workload.model",
    "tensor": "schedule.tensor",
    "coordination": "schedule.coordination",
}
"""Keys that have an option of their own, by its name."""


def option(name: str) -> str:
    """Return an argument's option on the command line: `network_model` is `--network-model`."""
    return "--" + name.replace("_", "-")


def short_of(path: str) -> str:
    """Return the name of a key's option; the key where it has none.

    Args:
        path: The key.
    """
    return next((name for name, key in SHORT.items() if key == path), path)
