"""Which transport carries a model's gradients: as the script or the job file says, or what fits."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from allrail import _core
from allrail.base.errors import InputError
from allrail.runtime.agreement import Agreement
from allrail.runtime.environment import local_rank
from allrail.runtime.job import Job
from allrail.runtime.job_agreed import settings_of_all
from allrail.runtime.nodes import same_machine
from allrail.runtime.report import planned_gbps
from allrail.scenario.policies import keys_of
from allrail.torch.asked import not_native
from allrail.torch.gradients import Grouping
from allrail.torch.mesh import backends_of, shape_of
from allrail.torch.native import Native
from allrail.torch.ordered import Ordered, reach
from allrail.torch.ranked import PlacesBy
from allrail.torch.staging import Cuda, Staged
from allrail.torch.transport import Transport
from allrail.torch.ways import BUCKETS, Way
from allrail.torch.whole import Whole


class Carrier:
    """What the script or the job file asks for to carry gradients, or what fits.

    Args:
        asked: The transport that the script asks for; `auto` leaves it to the job file.
        job: The job file.
        agreement: Among all ranks.
        parameters: The model's, by name.
        store: Where ranks tell each other things.
        mesh: A `DeviceMesh` that says which ranks each dimension joins, and over which backends;
            it asks for process groups.

    Attributes:
        native: Whether it is allrail's own transport; alike on all ranks.
    """

    def __init__(
        self,
        asked: str,
        job: Job,
        agreement: Agreement,
        parameters: dict[str, nn.Parameter],
        *,
        store: Any,
        mesh: Any = None,
    ) -> None:
        rank, ranks = agreement.rank, agreement.ranks
        one_host = same_machine(agreement)
        self.native = _is_native(asked, job, agreement, parameters, one_host=one_host)
        if not (self.native or one_host or job.names_interfaces):
            # Another's transport carries gradients; what ranks agree on goes where they have met.
            job = job.reached_by(reach())
        self._store, self._mesh = store, mesh
        self._ranking = job.ranking
        self._staged = any(each.device.type == "cuda" for each in parameters.values())
        if mesh is not None:
            job = job.over(shape_of(mesh))
        self._settings = settings_of_all(
            job,
            agreement,
            rank=rank,
            ranks=ranks,
            one_host=one_host,
            local_rank=local_rank(),
            size=sum(each.numel() * each.element_size() for each in parameters.values()),
        )
        if mesh is not None:
            backends_of(mesh, [each["size"] for each in self._settings["dimensions"]])

    @property
    def dimensions(self) -> list[tuple[int, float]]:
        """Of each dimension how many ranks it joins, and what plans are made with, Gb/s."""
        return [(each["size"], planned_gbps(each)) for each in self._settings["dimensions"]]

    @property
    def grouping(self) -> Grouping:
        """What gradients are sent as."""
        coordination = self._settings.get("coordination") or {}
        return Grouping(
            pack=_core.parse_quantity("size", self._settings["pack"]),
            groups=coordination.get("groups") or 0,
            whole="partition" not in keys_of("tensor_policies", self._settings["tensor"]),
        )

    @property
    def places_by(self) -> PlacesBy | None:
        """What ranks parameters, where the job file names a tensor scheduler of one's own."""
        size = self._settings.get("partition")
        if self._ranking is None or size is None:
            return None
        return PlacesBy(self._ranking, _core.parse_quantity("size", size))

    def plan_with(self, gbps: Sequence[float]) -> None:
        """Have transports that are made from now on plan with other bandwidths.

        Args:
            gbps: Of each dimension, over all its links.
        """
        dimensions = [
            {**one, "bandwidth": f"{round(1e9 * each / one.get('links', 1))} b/s"}
            for one, each in zip(self._settings["dimensions"], gbps, strict=True)
        ]
        self._settings = {**self._settings, "dimensions": dimensions}

    def of(self, way: Way, agreement: Agreement) -> Transport:
        """Return a transport for a way to exchange gradients, which it has."""
        rank, ranks = agreement.rank, agreement.ranks
        if way.plain:
            return plain(self._store, agreement, buckets=BUCKETS)
        if self.native:
            native = Native(rank, ranks, agreement, {**self._settings, **way.settings})
            return Staged(native, Cuda()) if self._staged else native
        group_of_all(self._store, agreement)
        settings = {**self._settings, **way.settings}
        return Ordered(rank, ranks, agreement, settings, mesh=self._mesh)


def plain(store: Any, agreement: Agreement, *, buckets: tuple[int, int] | None = None) -> Transport:
    """Return what carries gradients where allrail is switched off, or steps aside."""
    group_of_all(store, agreement)
    return Whole(agreement, buckets=buckets)


def group_of_all(store: Any, agreement: Agreement) -> None:
    """Have torch.distributed ready, unless the script has it.

    Args:
        store: Where ranks tell each other things.
        agreement: Among all ranks.

    Raises:
        InputError: The store is none of torch's, and ranks are on several machines.
    """
    if not dist.is_initialized():
        if not isinstance(store, dist.Store) and same_machine(agreement):
            store = _store_in_a_file(agreement)
        if not isinstance(store, dist.Store):
            raise InputError(
                "process groups of torch.distributed are needed, and nothing has made them ready",
                field="transport",
                hint="start the script with torchrun, or call"
                " `torch.distributed.init_process_group` before `allrail.torch.schedule`",
            )
        dist.init_process_group(store=store, rank=agreement.rank, world_size=agreement.ranks)


def _store_in_a_file(agreement: Agreement) -> dist.Store:
    """Return a store that torch takes, where a launcher of one host has started the ranks."""
    mine = ""
    if agreement.rank == 0:
        where = tempfile.mkdtemp(prefix="allrail-")
        atexit.register(shutil.rmtree, where, ignore_errors=True)
        mine = str(Path(where, "store"))
    return dist.FileStore(agreement.on("file", mine, lambda said: said[0]), agreement.ranks)


def _is_native(
    asked: str,
    job: Job,
    agreement: Agreement,
    parameters: dict[str, nn.Parameter],
    *,
    one_host: bool,
) -> bool:
    """Whether allrail's own transport carries these parameters; alike on all ranks."""
    asked = job.transport if asked == "auto" else asked
    if job.one_order:
        if asked == "native":
            raise not_native(job)
        return False
    if asked != "auto":
        return asked == "native"
    here = all(each.device.type == "cpu" for each in parameters.values())
    if not agreement.on("on the host", here, all):
        return False
    if job.names_interfaces or one_host:
        return True
    if agreement.rank == 0:
        warnings.warn(
            "ranks are on several hosts: gradients go over torch.distributed, in one order. Say in"
            " `allrail.yaml` how hosts reach each other, such as `interfaces: [eth0]` and `secret:"
            " job.secret`, and they go over allrail's own transport, where the urgent overtake",
            RuntimeWarning,
            stacklevel=7,
        )
    return False
