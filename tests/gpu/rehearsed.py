"""A backend `rehearsed` that treats tensors in host memory as if they were on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.distributed as dist
from place import Late

from allrail.torch.backend import Group
from allrail.torch.through_host import ThroughHost


class Rehearsed(Group):
    """A group whose collectives go through `ThroughHost`, over a device whose copies are late."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.through = ThroughHost(self, Late(0.001))


def _through(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Rehearsed, *arguments: Any, **options: Any) -> Any:
        return self.through._call(name, partial(method, self), *arguments, **options)

    return call


for _name, _method in vars(Group).items():
    if hasattr(_method, "__wrapped__"):  # chosen by device
        setattr(Rehearsed, _name, _through(_name, _method))

dist.Backend.register_backend("rehearsed", Rehearsed, devices=["cpu"])
