"""A `DeviceMesh` that says which ranks are on which dimension, for `transport="c10d"`.

A mesh counts its dimensions from the outermost, the fabric of a job file from the innermost. What
counts is which ranks differ on one dimension only: whichever dimension of the mesh joins the same
ranks as one of the fabric is that one.

Its groups are the user's: what a script runs on them comes in no order to gradients, and a mesh of
one dimension may even have the group of all ranks. So allrail makes groups of its own, over the
same ranks and with the same backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from allrail.base.errors import InputError
from allrail.torch.groups import Lines, along

_EXAMPLE = 'torch.distributed.device_mesh.init_device_mesh("cpu", (2, 4))'


def shape_of(mesh: Any) -> list[int]:
    """Return how many ranks each dimension of a mesh joins, the innermost first.

    Args:
        mesh: What the caller says is a `DeviceMesh`.

    Raises:
        InputError: It is none.
    """
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        raise InputError(
            "it is no `DeviceMesh`",
            field="mesh",
            value=type(mesh).__name__,
            hint=f"such as `{_EXAMPLE}`",
        )
    return [int(size) for size in reversed(mesh.mesh.shape)]


def said_of(mesh: Any, ranks: int) -> list[Any]:
    """Return a mesh as ranks compare it: its ranks, and the backends of its groups.

    Args:
        mesh: A `DeviceMesh`.
        ranks: How many the job has.

    Raises:
        InputError: It has not all of them.
    """
    if sorted(mesh.mesh.flatten().tolist()) != list(range(ranks)):
        raise InputError(
            f"it has {mesh.mesh.numel()} of the {ranks} ranks of the job",
            field="mesh",
            value=str(mesh.mesh.tolist()),
            hint="gradients are averaged over all ranks: give a mesh of all, not a part of one",
        )
    backends = [dist.get_backend_config(mesh.get_group(i)) for i in range(mesh.mesh.ndim)]
    return [mesh.mesh.tolist(), backends]


def backends_of(mesh: Any, sizes: Sequence[int]) -> list[str]:
    """Return the backends of the mesh's group for each dimension of a fabric.

    Args:
        mesh: A `DeviceMesh`.
        sizes: How many ranks each dimension of the fabric joins, the innermost first.

    Raises:
        InputError: It joins other ranks than the fabric does.
    """
    joined = {_lines(mesh, place): place for place in range(mesh.mesh.ndim)}
    found = [joined.get(along(sizes, place)) for place in range(len(sizes))]
    if None in found or len(sizes) != mesh.mesh.ndim:
        expected = ", ".join(str(size) for size in reversed(sizes))
        shape = ", ".join(str(size) for size in mesh.mesh.shape)
        raise InputError(
            "it joins other ranks than the dimensions of the job",
            field="mesh",
            value=f"({shape}) over {mesh.mesh.numel()} ranks",
            hint=f"the last dimension of a mesh is the innermost, as the first of `fabric`: shape"
            f" ({expected}) over all ranks in their order; or give `fabric` the sizes of the mesh",
        )
    return [dist.get_backend_config(mesh.get_group(place)) for place in found]


def _lines(mesh: Any, dimension: int) -> Lines:
    """All ranks of a mesh by the group of one dimension that they are in, as `groups.along`."""
    along_it = mesh.mesh.movedim(dimension, -1)
    lines = along_it.reshape(-1, along_it.shape[-1]).tolist()
    return tuple(sorted(tuple(sorted(line)) for line in lines))
