"""How one model is scheduled: which object takes its gradients, by what is asked for.

| request | what is made |
|---|---|
| `backup_workers` | `Backup` |
| `every` | `Local`, over one transport |
| `exchange: auto`, `tune`, `replan` | a `Switch`, which makes one `Scheduled` after the other |
| anything else | `Scheduled`, over one transport |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from allrail.runtime.agreement import Agreement, same
from allrail.runtime.job import COMPARED_EVERY, Job, JobLike
from allrail.runtime.job_agreed import job_of_all
from allrail.runtime.record import folder
from allrail.torch.asked import check_exchange, warn_without_effect
from allrail.torch.backup import Backup
from allrail.torch.choice import Carrier, plain
from allrail.torch.compression.compressed import Compressed
from allrail.torch.gradients import Grouping
from allrail.torch.local import Local
from allrail.torch.mesh import said_of
from allrail.torch.replan import Replan
from allrail.torch.request import Request
from allrail.torch.scheduled import Scheduled
from allrail.torch.switch import Switch
from allrail.torch.transport import Transport
from allrail.torch.tune import Tune, knobs, settings, ways
from allrail.torch.ways import AUTO, Way, ways_of

Installed = Scheduled | Local | Backup
_SAME_NUMBER = "schedule with the same number on every rank"


class Setup:
    """Schedules one model; a `switch.Maker` where it is scheduled again in the middle of training.

    Args:
        model: The model.
        optimizers: Its optimizers.
        parameters: Its trainable parameters by name.
        request: What is asked for.
        agreement: Among all ranks.
        store: Where they find each other.
        install: Told of each object that takes the model's gradients, from then on.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: dict[str, nn.Parameter],
        request: Request,
        agreement: Agreement,
        store: Any,
        install: Callable[[Installed], None],
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._parameters = parameters
        self._request = request
        self._agreement = agreement
        self._store = store
        self.install = install
        self._disabled = os.environ.get("ALLRAIL_DISABLE", "0") not in {"", "0"}
        self._carrier: Carrier

    def begin(self, job: JobLike | None) -> None:
        """Schedule the model, on all ranks.

        Args:
            job: As of `schedule`; not read where the script has made the transport.
        """
        agreement = self._agreement
        if not isinstance(self._request.transport, str):
            self._over(self._request.transport)
            return
        found = self._read(job)
        backup_workers = agreement.on(
            "backup workers",
            self._request.backup_workers,
            same("backup_workers", _SAME_NUMBER),
        )
        if self._disabled:
            self._over(plain(self._store, agreement))
        elif backup_workers:
            self._average_partially(found, backup_workers)
        else:
            self._exchange(found)

    def make(self, way: Way, agreement: Agreement, switch: Switch) -> Scheduled:
        """See `switch.Maker`."""
        transport = self._carrier.of(way, agreement)
        return self._scheduled(
            transport, agreement, crosses=way.crosses, carrier=self._carrier, switch=switch
        )

    def agree(self, number: int) -> Agreement:
        """See `switch.Maker`."""
        first = self._agreement
        name = f"{first.name.rsplit('/', 1)[-1]}.{number}"
        return Agreement(
            self._store, first.rank, first.ranks, name, patience=first.patience, meets=False
        )

    def _read(self, job: JobLike | None) -> Job:
        """Read the job file, and take what it says into the request."""
        more: dict[str, Any] = {}
        if (mesh := self._request.mesh) is not None:
            self._request = replace(self._request, transport="c10d")
            more["mesh of `schedule`"] = said_of(mesh, self._agreement.ranks)
        more["transport of `schedule`"] = self._request.transport
        found = job_of_all(job, self._agreement, more=more)
        self._request = self._request.with_job(found)
        return found

    def _average_partially(self, job: Job, backup_workers: int) -> None:
        self.install(
            Backup(
                self._model,
                self._optimizers,
                self._parameters,
                self._agreement,
                store=self._store,
                job=job,
                backup_workers=backup_workers,
                average_buffers=self._request.broadcast_buffers,
            )
        )

    def _exchange(self, job: Job) -> None:
        """Exchange gradients over a transport of allrail's."""
        request, agreement = self._request, self._agreement
        carrier = self._carrier = Carrier(
            str(request.transport),
            job,
            agreement,
            self._parameters,
            store=self._store,
            mesh=request.mesh,
        )
        had = ways_of(request.exchange, native=carrier.native)
        way = had[0]
        if request.exchange != AUTO:
            check_exchange(job, way)
        if agreement.rank == 0:
            warn_without_effect(job, native=carrier.native)
        if request.exchange == AUTO:
            Tune(*ways(had), agreement, self)
        elif request.tune:
            space = knobs(dimensions=len(carrier.dimensions), native=carrier.native)
            Tune(*settings(way, space), agreement, self)
        elif _replans(request, carrier, job, way):
            sizes, fabric = zip(*carrier.dimensions, strict=True)
            Replan(way, sizes, fabric, carrier.plan_with, self)
        else:
            self._over(carrier.of(way, agreement), crosses=way.crosses, carrier=carrier)

    def _over(
        self, transport: Transport, *, crosses: bool = True, carrier: Carrier | None = None
    ) -> None:
        """Schedule the model over one transport, for as long as it trains."""
        request, agreement = self._request, self._agreement
        every = agreement.on("every", request.every or 1, same("every", _SAME_NUMBER))
        if every > 1 and not self._disabled:
            self.install(
                Local(
                    self._model,
                    self._optimizers,
                    self._parameters,
                    transport,
                    agreement,
                    every=every,
                    broadcast_buffers=request.broadcast_buffers,
                    compare_every=self._compare_every,
                )
            )
            return
        if request.compression is not None and not self._disabled:
            agreement.on(
                "compression",
                request.compression.describe(),
                same("compression", "schedule with the same compression on every rank"),
            )
            transport = Compressed(transport, request.compression)
        self.install(self._scheduled(transport, agreement, crosses=crosses, carrier=carrier))

    @property
    def _compare_every(self) -> int:
        job = self._request.job
        return COMPARED_EVERY if job is None else job.compared_every

    def _scheduled(
        self,
        transport: Transport,
        agreement: Agreement,
        *,
        crosses: bool,
        carrier: Carrier | None,
        switch: Switch | None = None,
    ) -> Scheduled:
        request = self._request
        grouping = Grouping() if carrier is None else carrier.grouping
        if self._disabled or request.compression is not None:
            grouping = replace(grouping, pack=0)
        return Scheduled(
            self._model,
            self._optimizers,
            self._parameters,
            transport,
            agreement,
            cross_barrier=request.cross_barrier and crosses and not self._disabled,
            broadcast_buffers=request.broadcast_buffers,
            sparse=request.sparse,
            grouping=grouping,
            places_by=None if carrier is None else carrier.places_by,
            undo=request.undo,
            trace=folder() if request.job is None else request.job.trace,
            compare_every=0 if self._disabled else self._compare_every,
            auto=switch,
        )


def _replans(request: Request, carrier: Carrier, job: Job, way: Way) -> bool:
    """Whether plans may be made anew: they are ours, and there is something to plan around."""
    if not request.replan or way.plain or job.plans:
        return False
    return carrier.native and len(carrier.dimensions) > 1
