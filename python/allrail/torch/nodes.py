"""Nodes of the native transport: how they are made and ended; operations without a name over one.

A child that is forked, such as a data loader's worker, has its parent's connections, and lets go
of them: else others would not see the parent end.
"""

from __future__ import annotations

import json
import os
import secrets
import weakref
from typing import Any, NoReturn

import torch

from allrail._core import Node, RuntimeFault
from allrail.errors import InputError
from allrail.torch.agreement import Agreement
from allrail.torch.errors import TrainingError

# What a link within one machine is taken to be; plans depend on it, results do not.
LOOPBACK = {"interface": "127.0.0.1", "bandwidth": "20 Gb/s", "latency": "20 us", "kind": "switch"}

_A_WHILE = 1800.0

_open: dict[int, Node] = {}


def settings_of(
    rank: int, ranks: int, agreement: Agreement, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of a node of this rank, with a secret that all ranks share.

    Args:
        rank: This process.
        ranks: How many there are.
        agreement: How ranks hand round the secret.
        settings: What is known beyond that; None for ranks on one machine.
    """
    known = dict(settings or {"dimensions": [{"size": ranks, **LOOPBACK}]})
    # Whoever reads the store can join; on one machine, only what is on it can reach the ports.
    known |= agreement.on("secret", None, lambda _: {"secret": secrets.token_hex(32)})
    return known | {"rank": rank, "ranks": ranks, "job": agreement.name}


def connected(settings: dict[str, Any], agreement: Agreement, topic: str) -> Node:
    """Return a node that is connected with those of all ranks, and not started."""
    with as_ours:
        node = Node(json.dumps(settings))
        mine = {"addresses": node.addresses(), "settings": _common(settings)}
        node.connect(agreement.on(f"addresses of {topic}", mine, _addresses))
    _open[id(node)] = node
    return node


_ALIKE = ("policy", "order", "chunks", "smallest_chunk", "algorithms", "tensor", "partition")
_OWN = ("interface", "port")


def _common(settings: dict[str, Any]) -> dict[str, Any]:
    """What all ranks must have in common, or would decide differently with."""
    common = {key: settings.get(key) for key in _ALIKE}
    for place, one in enumerate(settings.get("dimensions", ())):
        alike = {key: value for key, value in one.items() if key not in _OWN}
        common |= {f"dimensions[{place}].{key}": value for key, value in alike.items()}
    return common


def _addresses(said: list[dict[str, Any]]) -> list[list[str]]:
    """All addresses; nodes find out themselves that a rank differs, but not each of them which."""
    first = said[0]["settings"]
    for rank, one in enumerate(said):
        for key in sorted({*first, *one["settings"]}):
            mine, theirs = first.get(key), one["settings"].get(key)
            if mine != theirs:
                raise InputError(
                    f"rank {rank} has {_shown(theirs)}, rank 0 has {_shown(mine)}",
                    field=key,
                    hint="give every rank the same plan and the same settings",
                )
    return [one["addresses"] for one in said]


def _shown(value: Any) -> str:
    return "its default" if value is None else f"`{value}`"


def is_open(node: Node) -> bool:
    """Whether a node is this process' own, and not closed."""
    return id(node) in _open


def close(node: Node) -> None:
    """Close a node, unless it is closed or belongs to the process that this one was forked from."""
    if _open.pop(id(node), None) is not None:
        node.close()


def _abandon() -> None:
    """This is a forked child: leave the parent's nodes alone."""
    for node in _open.values():
        node.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_abandon)


class Calls:
    """A node for operations without a name; every rank begins the same ones in the same order.

    Args:
        settings: Of the node, as `settings_of` returns them.
        agreement: How ranks tell each other where they listen.
    """

    def __init__(self, settings: dict[str, Any], agreement: Agreement) -> None:
        self._node = connected(settings, agreement, "calls")
        self._node.start()
        self._held: dict[int, torch.Tensor] = {}
        self.close = weakref.finalize(self, close, self._node)

    def begin(self, kind: str, buffer: torch.Tensor, root: int = 0) -> int:
        """Begin an operation in place in a contiguous buffer; return its ticket."""
        dtype = str(buffer.dtype).removeprefix("torch.")
        with as_ours:
            ticket = self._node.call(kind, buffer.data_ptr(), buffer.numel(), dtype, root=root)
        self._held[ticket] = buffer
        return ticket

    def wait(self, ticket: int, timeout: float) -> bool:
        """Wait for it, up to `timeout` seconds; return whether it is over."""
        with as_ours:
            over = self._node.wait_call(ticket, timeout)
        if over:
            self._held.pop(ticket, None)
        return over

    def finish(self, ticket: int) -> None:
        """Wait for it, however long."""
        while not self.wait(ticket, _A_WHILE):
            pass


class _AsOurs:
    """Within it, what a node says is wrong is raised as an error of ours."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, (RuntimeFault, ValueError)):
            raise_from(error)


as_ours = _AsOurs()


def raise_from(error: Exception) -> NoReturn:
    """Raise what a node says as an error of ours."""
    try:
        said = json.loads(str(error.args[0]))
    except (ValueError, IndexError):
        raise error from None
    if "field" in said:
        raise InputError(
            said["why"], field=said["field"], value=str(said["value"]), hint=said["hint"]
        ) from error
    raise TrainingError(
        said["what"], field=said.get("tensor") or "", hint=said.get("hint") or ""
    ) from error
