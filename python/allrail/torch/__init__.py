"""Gradients travel during the backward pass; steps are made when the next forward pass needs them.

    import allrail.torch as art

    model, optimizer = art.schedule(model, optimizer)

Started with torchrun, the rest of the script stays as it is for one process. Parameters and
optimizer state equal those of `DistributedDataParallel`, bit for bit on two ranks.

With `ALLRAIL_DISABLE=1` in the environment, gradients are exchanged by plain collectives and every
backward pass ends with all of them; nothing else of the script is touched.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import nn

from allrail.base.errors import InputError, TrainingError, did_you_mean
from allrail.runtime.agreement import Agreement
from allrail.runtime.job import COMPARED_EVERY, Job, JobLike, job_of_all, patience_of
from allrail.runtime.partial import check_backup_workers
from allrail.runtime.record import folder
from allrail.runtime.report import Report, report_of
from allrail.torch.asked import check_exchange, warn_without_effect
from allrail.torch.auto import AUTO, Auto, ways_of
from allrail.torch.backup import Backup, check_backup, same_backup_workers
from allrail.torch.barrier import BarrierWarning
from allrail.torch.check import check
from allrail.torch.choice import Carrier, plain
from allrail.torch.compression import Compression, compression_of
from allrail.torch.compression.compressed import Compressed, same_compression
from allrail.torch.gradients import Grouping
from allrail.torch.local import Local, check_every, same_every
from allrail.torch.mesh import said_of, shape_of
from allrail.torch.replan import Replan
from allrail.torch.scheduled import Scheduled
from allrail.torch.store import store_of_job
from allrail.torch.switch import Switch, Way
from allrail.torch.transport import Transport
from allrail.torch.tune import Tune, knobs

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "BarrierWarning",
    "TrainingError",
    "barriers",
    "load_state_dict",
    "no_sync",
    "release",
    "report",
    "schedule",
    "state_dict",
    "steps",
    "synchronize",
]

M = TypeVar("M", bound=nn.Module)
O = TypeVar("O", bound="torch.optim.Optimizer | Sequence[torch.optim.Optimizer]")  # noqa: E741

_TRANSPORTS = ("auto", "native", "c10d")
_SPARSE = ("refuse", "densify", "gather")

# A scheduled model's hooks hold what belongs to it; who drops the model drops all.
_scheduled: weakref.WeakValueDictionary[int, Scheduled | Local | Backup] = (
    weakref.WeakValueDictionary()
)
_count = 0


def schedule(
    model: M,
    optimizer: O,
    *,
    cross_barrier: bool = True,
    broadcast_buffers: bool = True,
    job: JobLike | None = None,
    sparse: Literal["refuse", "densify", "gather"] = "refuse",
    transport: Literal["auto", "native", "c10d"] | Transport = "auto",
    mesh: DeviceMesh | None = None,
    compression: str | Mapping[str, Any] | Compression | None = None,
    every: int | None = None,
    backup_workers: int | None = None,
    undo: bool = False,
    tune: bool = False,
) -> tuple[M, O]:
    """Exchange the gradients of `model` among all processes, and step as late as possible.

    Every rank calls it, with the same model, before the first step; afterwards all have the
    parameters and buffers of rank 0. Gradients are averaged over ranks.

    Args:
        model: The model, on its final device and in its final type; compile it before.
        optimizer: Its optimizer, or a list of them if each steps a part of the parameters.
        cross_barrier: Whether a parameter may be stepped as late as the next forward pass needs it.
            If not, every backward pass ends with all gradients averaged, as without allrail.
        broadcast_buffers: Whether each forward pass in training begins with the buffers of rank 0.
        job: The job file, as a path or a mapping; if None, the one that `ALLRAIL_JOB` names, else
            `allrail.yaml` in the current folder, else defaults.
        sparse: What becomes of sparse gradients: `"refuse"` is an error, `"densify"` makes them
            dense, `"gather"` exchanges their rows.
        transport: What carries gradients: `"native"` is allrail's own, which cuts and prioritises
            them; `"c10d"` does so over process groups of torch.distributed, in one order on all
            ranks; `"auto"` is what the job file says, or else the first where parameters are not on
            a GPU and ranks are on one machine, or the job file says by which interfaces they reach
            each other.
        mesh: Which ranks each dimension of the network joins, and over which backends: a
            `DeviceMesh` of all ranks, whose last dimension is the innermost. Gradients then travel
            over process groups (`"c10d"`), one for each of its dimensions, with the same ranks and
            backends as the mesh's own. None: the dimensions of the job file's `fabric`.
        compression: What makes gradients smaller on their way: `"fp16"`, `"bf16"`,
            `{"kind": "top_k", "share": 0.01}`, `{"kind": "power_sgd", "rank": 4}`. None: as the job
            file says, which says nothing of it by itself.
        every: Above 1, ranks step with their own gradients, and average their parameters after
            every so many steps. None: as the job file says, which says 1 by itself.
        backup_workers: How many ranks a step does not wait for: gradients are averaged over those
            that come in time, and later ones are dropped. Gradients then travel whole after the
            backward pass, over allrail's own transport. None: as the job file says, which says 0 by
            itself.
        undo: Whether, when a rank is lost, parameters that have made the step under way are given
            back what they were before it. Costs a copy of parameters and optimizer state.
        tune: Whether the first steps try settings (partition, what is sent ahead, chunks) and the
            job goes on with the best: 12 trials of 12 steps at most, by Optuna (the extra `tune`).
            What is not faster than the start by more than the noise does not stay.

    Returns:
        The same two objects.

    Raises:
        InputError: There is nothing to schedule, ranks differ, or nothing tells of other ranks.
    """
    global _count  # noqa: PLW0603 - names must be alike on all ranks: they count calls
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else optimizer
    if sparse not in _SPARSE:
        raise InputError(
            "sparse gradients are not treated so",
            field="sparse",
            value=str(sparse),
            hint=did_you_mean(str(sparse), _SPARSE),
        )
    if not isinstance(optimizers, Sequence):
        optimizers = [optimizers]
    smaller = compression_of(compression)
    check_backup_workers(backup_workers or 0)
    _check_together(every, smaller, backup=backup_workers or 0)
    parameters = check(model, optimizers)
    if isinstance(transport, str) and transport not in _TRANSPORTS:
        raise InputError(
            "there is no such transport",
            field="transport",
            value=transport,
            hint=did_you_mean(transport, _TRANSPORTS),
        )
    if mesh is not None:
        transport = _over_groups(mesh, transport)
    patience = patience_of(job)
    store, rank, ranks = store_of_job(patience)
    if ranks == 1:
        return model, optimizer
    _count += 1
    disabled = os.environ.get("ALLRAIL_DISABLE", "0") not in {"", "0"}
    name = f"schedule{_count}"
    agreement = Agreement(store, rank, ranks, name, patience=patience)
    chosen = None if isinstance(transport, str) else transport
    if tune and chosen is not None:
        raise InputError(
            "what carries gradients was made by the script, and allrail has nothing to turn",
            field="tune",
            value="True",
            hint="leave `tune` out, or name a transport: `auto`, `native` or `c10d`",
        )
    trace = folder()
    grouping, places_by = Grouping(), None
    compare_every = COMPARED_EVERY
    if isinstance(transport, str):
        more: dict[str, Any] = {"transport of `schedule`": transport}
        if mesh is not None:
            more["mesh of `schedule`"] = said_of(mesh, ranks)
        found = job_of_all(job, agreement, more=more)
        every = found.keys.get("every") if every is None else every
        if smaller is None:
            smaller = compression_of(found.keys.get("compression"))
        exchange = str(found.keys.get("exchange", "overlap"))
        if backup_workers is None:
            backup_workers = int(found.keys.get("backup_workers", 0))
        _check_together(every, smaller, exchange, backup=backup_workers)
        if agreement.on("backup workers", backup_workers, same_backup_workers) and not disabled:
            check_backup(found, transport, undo=undo, tune=tune, mesh=mesh is not None)
            _scheduled[id(model)] = Backup(
                model,
                optimizers,
                parameters,
                agreement,
                store=store,
                job=found,
                backup_workers=backup_workers,
                average_buffers=broadcast_buffers,
            )
            return model, optimizer
        undo = undo or bool(found.keys.get("undo"))
        trace, compare_every = found.trace, found.compared_every
        if disabled:
            chosen = plain(store, agreement)
        else:
            carrier = Carrier(transport, found, agreement, parameters, store=store, mesh=mesh)
            grouping, places_by = carrier.grouping, carrier.places_by
            ways = ways_of(exchange, native=carrier.native)
            if exchange != AUTO:
                check_exchange(found, ways[0])
            if rank == 0:
                warn_without_effect(found, native=carrier.native)
            cross_barrier = cross_barrier and not found.tensor.get("barrier")
            replans = _replans(found, carrier, ways[0])
            if replans or tune:
                anew = [name for name, asked in (("tune", tune), ("replan", replans)) if asked]
                _check_together(every, smaller, exchange, anew=anew)
                _check_knobs(ways[0], tune=tune)
            elif exchange != AUTO:
                chosen = carrier.of(ways[0], agreement)
                cross_barrier = cross_barrier and ways[0].crosses
    elif backup_workers:
        raise InputError(
            "what carries gradients was made by the script, and waits for all ranks",
            field="backup_workers",
            value=str(backup_workers),
            hint="leave it or `transport` out",
        )
    apart = agreement.on("every", every or 1, same_every) > 1
    if apart and chosen is not None and not disabled:
        _scheduled[id(model)] = Local(
            model,
            optimizers,
            parameters,
            chosen,
            agreement,
            every=every or 1,
            broadcast_buffers=broadcast_buffers,
            compare_every=compare_every,
        )
        return model, optimizer
    if smaller is not None and chosen is not None and not disabled:
        agreement.on("compression", smaller.describe(), same_compression)
        chosen = Compressed(chosen, smaller)

    def scheduled(
        transport: Transport, agreement: Agreement, *, crosses: bool, auto: Switch | None = None
    ) -> Scheduled:
        return Scheduled(
            model,
            optimizers,
            parameters,
            transport,
            agreement,
            cross_barrier=cross_barrier and crosses,
            broadcast_buffers=broadcast_buffers,
            sparse=sparse,
            grouping=replace(grouping, pack=0) if disabled or smaller is not None else grouping,
            places_by=places_by,
            undo=undo,
            trace=trace,
            compare_every=0 if disabled else compare_every,
            auto=auto,
        )

    def installed(one: Scheduled) -> None:
        _scheduled[id(model)] = one

    def made(way: Way, agreed: Agreement, auto: Switch) -> Scheduled:
        return scheduled(carrier.of(way, agreed), agreed, crosses=way.crosses, auto=auto)

    def agreed(n: int) -> Agreement:
        return Agreement(store, rank, ranks, f"{name}.{n}", patience=patience, meets=False)

    if chosen is not None:
        installed(scheduled(chosen, agreement, crosses=not disabled))
    elif tune:
        space = knobs(dimensions=len(carrier.dimensions), native=carrier.native)
        Tune(ways[0], space, agreement, made, agreed, installed)
    elif replans:
        sizes, fabric = zip(*carrier.dimensions, strict=True)
        Replan(ways[0], sizes, fabric, carrier.plan_with, made, agreed, installed)
    else:
        Auto(ways, made, agreed, installed)
    return model, optimizer


def _over_groups(mesh: DeviceMesh, transport: str | Transport) -> Literal["c10d"]:
    """Return the transport that has process groups, unless another one is asked for."""
    shape_of(mesh)
    if transport not in ("auto", "c10d"):
        raise InputError(
            "a mesh is of process groups, and another transport is asked for",
            field="mesh",
            hint='leave `transport` out or say `"c10d"`; with `"native"`, `fabric` in the job file'
            " says which ranks each dimension joins",
        )
    return "c10d"


def _check_together(
    every: int | None,
    compression: Compression | None,
    exchange: str = "overlap",
    *,
    anew: Sequence[str] = (),
    backup: int = 0,
) -> None:
    """Refuse what does not go together."""
    apart = check_every(1 if every is None else every) > 1
    if backup and (apart or compression is not None or exchange != "overlap"):
        other = "every" if apart else "compression" if compression is not None else "exchange"
        raise InputError(
            "whole gradients are averaged in every step over those that come in time",
            field="backup_workers",
            value=str(backup),
            hint=f"leave it or `{other}` out",
        )
    if apart and compression is not None:
        raise InputError(
            "ranks that train apart exchange parameters, and gradients are compressed",
            field="every",
            value=str(every),
            hint="leave `every` or `compression` out",
        )
    if exchange == AUTO and (apart or compression is not None):
        raise InputError(
            "it compares ways to exchange whole gradients in every step",
            field="exchange",
            value=exchange,
            hint="leave `every` and `compression` out, or name one way",
        )
    if anew and (len(anew) > 1 or exchange == AUTO or apart or compression is not None):
        others = ", ".join(f"`{name}`" for name in ("every", "compression", *anew[1:]))
        raise InputError(
            "nodes are made anew in the middle of training, and something else counts on them",
            field=anew[0],
            value="true",
            hint=f"leave {others} and `exchange: auto` out, or `{anew[0]}`",
        )


def _check_knobs(way: Way, *, tune: bool) -> None:
    if tune and way.plain:
        raise InputError(
            "gradients go by buckets of torch.distributed, and nothing of them is tuned",
            field="tune",
            value="true",
            hint=f"leave `exchange: {way.name}` or `tune` out",
        )


def _replans(job: Job, carrier: Carrier, way: Way) -> bool:
    """Whether plans may be made anew: they are ours, and there is something to plan around."""
    return (
        bool(job.keys.get("replan"))
        and carrier.native
        and not way.plain
        and not job.plans
        and len(carrier.dimensions) > 1
    )


def synchronize(model: nn.Module | None = None) -> None:
    """Make all steps that were asked for: what you read of parameters afterwards is up to date.

    Needed only where C++ is given a parameter itself between `optimizer.step()` and the next
    forward pass (docs/guides/torch.md lists what is not noticed). Whatever else reads or writes a
    parameter has its step made first.

    Args:
        model: A scheduled model; None takes all of this process.
    """
    for scheduled in _of(model):
        scheduled.synchronize()


def steps(model: nn.Module) -> dict[str, int]:
    """Return how many optimizer steps each parameter has made since the model was scheduled.

    With `exchange: auto`, since the way to exchange was last changed.

    They differ while gradients are under way, and after a rank is lost; `synchronize` makes them
    alike, or raises.

    Args:
        model: A scheduled model.
    """
    return {name: count for one in _of(model) for name, count in one.steps().items()}


def no_sync(model: nn.Module) -> AbstractContextManager[None]:
    """Within it, backward passes accumulate gradients on this rank, and exchange nothing.

    Args:
        model: A scheduled model.
    """
    found = _of(model)
    if not found:
        return nullcontext()
    return found[0].no_sync()


def barriers(model: nn.Module | None = None) -> dict[str, int]:
    """Return how many steps waited for a whole view, by what asked for it.

    Args:
        model: A scheduled model; None adds up all of this process.
    """
    total: dict[str, int] = {}
    for scheduled in _of(model):
        for cause, count in scheduled.barriers.counts.items():
            total[cause] = total.get(cause, 0) + count
    return total


def state_dict(model: nn.Module) -> dict[str, Any]:
    """Return what allrail remembers of a model on this rank, for a checkpoint; makes all steps.

    It is what compression has left out of gradients so far, which differs from rank to rank, or
    with `every` how many steps ago parameters were averaged: save one for each rank, beside
    `model.state_dict()`, which is as it would be without allrail.

    Args:
        model: A scheduled model; of another one it is empty.
    """
    found = _of(model)
    return found[0].state() if found else {}


def load_state_dict(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Go on from what `state_dict` returned, on the same rank.

    With another number of ranks, what is one rank's own is dropped, with a warning: the job goes on
    as if it had just begun to compress.

    Args:
        model: A scheduled model.
        state: What `state_dict` returned; an empty one changes nothing.

    Raises:
        InputError: It is of a model that was scheduled otherwise.
    """
    for scheduled in _of(model):
        scheduled.load_state(state)


def report(model: nn.Module | None = None) -> Report:
    """Return what this rank has seen: step time, waits, dimensions, predicted beside measured.

    `print` it for a table. It takes the time of a simulation: ask for it at the end, or every
    thousand steps.

    Args:
        model: A scheduled model; None takes the one that was scheduled last.

    Raises:
        InputError: No model is scheduled in this process, or not this one.
    """
    found = [each for each in _of(model) if isinstance(each, Scheduled)]
    if not found:
        raise InputError(
            "it is not scheduled",
            field="model",
            hint="call `allrail.torch.schedule` first; a job of one process exchanges nothing, nor"
            " is there a report of one that averages parameters now and then",
        )
    return report_of(found[-1].record())


def release(model: nn.Module) -> None:
    """Undo `schedule`: the model and its optimizers are ordinary again, gradients stay local.

    Args:
        model: A scheduled model.
    """
    scheduled = _scheduled.pop(id(model), None)
    if scheduled is not None:
        scheduled.release()


def _of(model: nn.Module | None) -> list[Scheduled | Local | Backup]:
    if model is None:
        return list(_scheduled.values())
    found = _scheduled.get(id(model))
    return [] if found is None else [found]
