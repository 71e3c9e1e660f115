"""What a job file asks of the schedule, and the way to exchange or the transport does not do.

What cannot go together is an error; what a transport that was chosen has no use for is a warning.
"""

from __future__ import annotations

import warnings

from allrail.base.errors import InputError
from allrail.runtime.job import OWN_TO_GROUPS, Job
from allrail.torch.ways import Way


def not_native(job: Job) -> InputError:
    """Return the error of a schedule that takes ranks which agree on one order, over `native`.

    Args:
        job: A job file with such a key.
    """
    key = job.one_order[0]
    return _wrong(
        job,
        key,
        "over `native` every rank starts what is ready there, and this takes one order on all",
        f"write `transport: c10d`, or leave `{key}` out",
    )


def check_exchange(job: Job, way: Way) -> None:
    """Refuse keys of the schedule that a way to exchange replaces.

    Args:
        job: The job file.
        way: The one that it names.

    Raises:
        InputError: Names the key.
    """
    if way.plain and job.schedule:
        raise InputError(
            "gradients go in buckets of torch.distributed, and nothing of it is carried out",
            field="schedule",
            hint=f"leave it out, or `exchange: {way.name}`",
        )
    own = way.settings.get("tensor")
    replaced = [key for key in job.tensor if key not in ("pack", "barrier")] if own else []
    if replaced == ["policy"] and job.tensor["policy"] == own:
        replaced = []
    if replaced:
        raise _wrong(
            job,
            f"schedule.tensor.{replaced[0]}",
            f"`exchange: {way.name}` sends gradients whole, as they become ready (`{own}`)",
            "leave it out, or write `exchange: overlap` and `schedule.tensor.barrier: true`",
        )
    if job.tensor.get("barrier") is False and not way.crosses:
        raise _wrong(
            job,
            "schedule.tensor.barrier",
            f"with `exchange: {way.name}` each backward pass ends with all gradients",
            "leave it out, or write `exchange: overlap`",
        )
    order = way.settings.get("order")
    if order and job.schedule.get("order") not in (None, order):
        raise _wrong(
            job,
            "schedule.order",
            f"`exchange: {way.name}` is the order `{order}`",
            "leave it out, or write `exchange: overlap`",
        )


def warn_without_effect(job: Job, *, native: bool) -> None:
    """Warn of keys of the schedule that process groups of torch.distributed do not carry out.

    Args:
        job: The job file.
        native: Whether gradients travel over allrail's own transport.
    """
    keys = [key for key in OWN_TO_GROUPS if f"schedule.{key}" not in job.one_order]
    keys = [key for key in keys if key in job.schedule]
    if native or not keys:
        return
    named = ", ".join(f"`schedule.{key}`" for key in keys)
    warnings.warn(
        f"gradients go over process groups of torch.distributed, which decide for themselves what"
        f" {named} would: leave it out, or write `transport: native`",
        RuntimeWarning,
        stacklevel=6,
    )


def _wrong(job: Job, key: str, why: str, hint: str) -> InputError:
    value = job.keys
    for part in key.split("."):
        value = value[part]
    return job.at_place(InputError(why, field=key, value=_shown(value), hint=hint))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("policy", "..."))
    return str(value).lower() if isinstance(value, bool) else str(value)
