"""Groups for several types of devices, such as `cpu:allrail,cuda:nccl`.

Whichever backend's process group torch makes first for such a group is the whole group, where it is
one in Python. So the group of `allrail` makes the others, when a tensor of theirs first comes: a
group of the same ranks for one type of device, to which it hands on what concerns that type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from allrail.base.errors import InputError
from allrail.torch import private
from allrail.torch.staging import Cuda
from allrail.torch.through_host import ThroughHost


def by_device(method: Callable[..., Any]) -> Callable[..., Any]:
    """Have a collective on another device's tensors done by that device's group."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        tensor = _first(arguments)
        if tensor is None or tensor.is_cpu:
            return method(self, *arguments, **options)
        return getattr(self.others.of(tensor.device), name)(*arguments, **options)

    return call


def _first(arguments: Any) -> torch.Tensor | None:
    """The first tensor among arguments, which may be lists."""
    for one in arguments:
        if isinstance(one, torch.Tensor):
            return one
        if isinstance(one, (list, tuple)) and (found := _first(one)) is not None:
            return found
    return None


class Others:
    """The groups of a group's other types of devices.

    Args:
        group: A group for tensors on the CPU.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._made: dict[str, dist.ProcessGroup | ThroughHost] = {}
        self._making: set[str] = set()

    def backends(self) -> dict[str, str]:
        """The backend of each type of device, as `init_process_group` was told.

        None while torch is making the group: it would have C++, which knows of no backend, record
        what the group does.
        """
        config = private.process_groups().pg_backend_config.get(self._group)
        if config is None:
            return {}
        parts = (part.partition(":") for part in str(config).split(",") if ":" in part)
        found = {device: backend for device, _, backend in parts if device not in self._making}
        return {"cpu": "allrail"} | found

    def of(self, device: torch.device) -> dist.ProcessGroup | ThroughHost:
        """What does the collectives of a type of device; all ranks of the group come here."""
        found = self._made.get(device.type)
        if found is None:
            if device.type in self._making:
                # The other backend looks for one that it could be split from.
                raise RuntimeError(f"No backend type associated with device type {device.type}")
            backend = self._backend_of(device.type)
            if backend == "allrail":
                found = self._made[device.type] = ThroughHost(self._group, Cuda())
                return found
            self._making.add(device.type)
            try:
                found = self._made[device.type] = self._make(f"{device.type}:{backend}")
            finally:
                self._making.discard(device.type)
        return found

    def _backend_of(self, device: str) -> str:
        backend = self.backends().get(device)
        if backend is None or (backend == "allrail" and device != "cuda"):
            raise InputError(
                f"tensors on {device} are not supported by allrail; use host memory, or a backend"
                " of that device beside it",
                field="tensor",
                value=device,
                hint=f"`init_process_group('cpu:allrail,{device}:{_USUAL.get(device, '...')}')`",
            )
        return backend

    def _make(self, backend: str) -> dist.ProcessGroup:
        ranks = dist.get_process_group_ranks(self._group)
        made: Any = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
        return made


_USUAL = {"cuda": "nccl", "xpu": "xccl", "hpu": "hccl"}
