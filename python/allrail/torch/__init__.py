"""Gradients travel during the backward pass; steps are made when the next forward pass needs them.

    import allrail.torch as art

    model, optimizer = art.schedule(model, optimizer)

Started with torchrun, the rest of the script stays as it is for one process. Parameters and
optimizer state equal those of `DistributedDataParallel`, bit for bit on two ranks.

With `ALLRAIL_DISABLE=1` in the environment, gradients are exchanged by plain collectives and every
backward pass ends with all of them; nothing else of the script is touched.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import nn

from allrail.base.errors import InputError, TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.job import JobLike, patience_of
from allrail.runtime.report import Report, report_of
from allrail.torch.barrier import BarrierWarning
from allrail.torch.check import check
from allrail.torch.compression import Compression, compression_of
from allrail.torch.request import Request
from allrail.torch.scheduled import Scheduled
from allrail.torch.setup import Installed, Setup
from allrail.torch.store import store_of_job
from allrail.torch.transport import Transport

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

# A scheduled model's hooks hold what belongs to it; who drops the model drops all.
_scheduled: weakref.WeakValueDictionary[int, Installed] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
"""Of the calls of `schedule` in this process: names that are the same on all ranks."""


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
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else optimizer
    request = Request(
        cross_barrier=cross_barrier,
        broadcast_buffers=broadcast_buffers,
        sparse=sparse,
        transport=transport,
        mesh=mesh,
        compression=compression_of(compression),
        every=every,
        backup_workers=backup_workers,
        undo=undo,
        tune=tune,
    )
    _schedule(model, optimizers if isinstance(optimizers, Sequence) else [optimizers], request, job)
    return model, optimizer


def _schedule(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    request: Request,
    job: JobLike | None,
) -> None:
    parameters = check(model, optimizers)
    patience = patience_of(job)
    store, rank, ranks = store_of_job(patience)
    if ranks == 1:
        return
    agreement = Agreement(store, rank, ranks, f"schedule{next(_numbers)}", patience=patience)

    def install(made: Installed) -> None:
        _scheduled[id(model)] = made

    Setup(model, optimizers, parameters, request, agreement, store, install).begin(job)


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


def _of(model: nn.Module | None) -> list[Installed]:
    if model is None:
        return list(_scheduled.values())
    found = _scheduled.get(id(model))
    return [] if found is None else [found]
