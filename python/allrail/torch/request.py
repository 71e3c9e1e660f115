"""What a script and its job file ask of `allrail.torch.schedule`, and what of it excludes what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allrail.base.errors import InputError, did_you_mean
from allrail.runtime.job import Job
from allrail.runtime.partial import check_backup_workers
from allrail.torch.compression import Compression, compression_of
from allrail.torch.local import check_every
from allrail.torch.mesh import shape_of
from allrail.torch.transport import Transport
from allrail.torch.ways import AUTO, WAYS

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

TRANSPORTS = ("auto", "native", "c10d")
SPARSE = ("refuse", "densify", "gather")
OVERLAP = WAYS[0].name


@dataclass(frozen=True)
class Exclusion:
    """A setting, and those that it does not go with.

    Attributes:
        one: The setting, as `Request.settings` names it.
        others: Settings that are refused beside it.
        why: Why they are.
        hint: What to do; None says to leave one of the two out.
    """

    one: str
    others: tuple[str, ...]
    why: str
    hint: str | None = None


_ANEW = (
    "transports are made anew in the middle of training, which needs whole gradients in every step"
    " and one way to exchange them"
)
EXCLUSIONS = (
    Exclusion(
        "mesh",
        ("transport", "transport: native"),
        "a mesh is of process groups, and another transport is asked for",
        'leave `transport` out or say `"c10d"`; with `"native"`, `fabric` in the job file says'
        " which ranks each dimension joins",
    ),
    Exclusion(
        "backup_workers",
        (
            "every",
            "compression",
            *(f"exchange: {name}" for name in (*(way.name for way in WAYS[1:]), AUTO)),
            "transport",
            "transport: c10d",
            "mesh",
            "undo",
            "tune",
            "replan",
            "schedule.tensor",
            "schedule.coordination",
        ),
        "gradients travel whole after the backward pass, over allrail's own transport, and each"
        " step averages those that come in time",
    ),
    Exclusion(
        "every",
        ("compression",),
        "ranks that train apart exchange parameters, and gradients are compressed",
    ),
    Exclusion(
        "exchange: auto",
        ("every", "compression"),
        "it compares ways to exchange whole gradients in every step",
    ),
    Exclusion(
        "tune",
        ("transport",),
        "what carries gradients was made by the script, and allrail has nothing to turn",
        "leave `tune` out, or name a transport: `auto`, `native` or `c10d`",
    ),
    Exclusion(
        "tune",
        ("exchange: plain",),
        "gradients go by buckets of torch.distributed, and nothing of them is tuned",
    ),
    Exclusion("tune", ("every", "compression", "exchange: auto", "replan"), _ANEW),
    Exclusion("replan", ("every", "compression", "exchange: auto"), _ANEW),
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for; made only if every setting can be, and goes with the others.

    Attributes:
        cross_barrier: As of `schedule`, as are those below up to `tune`.
        job: The job file, once all ranks have read it; `with_job` takes what it says.
        exchange: The way to exchange gradients.
        replan: Whether plans are made anew when a dimension has become slow.

    Raises:
        InputError: Names a setting that cannot be, or two that exclude each other.
    """

    cross_barrier: bool
    broadcast_buffers: bool
    sparse: str
    transport: str | Transport
    mesh: DeviceMesh | None
    compression: Compression | None
    every: int | None
    backup_workers: int | None
    undo: bool
    tune: bool
    job: Job | None = None
    exchange: str = OVERLAP
    replan: bool = False

    def __post_init__(self) -> None:
        if self.sparse not in SPARSE:
            raise InputError(
                "sparse gradients are not treated so",
                field="sparse",
                value=str(self.sparse),
                hint=did_you_mean(str(self.sparse), SPARSE),
            )
        if isinstance(self.transport, str) and self.transport not in TRANSPORTS:
            raise InputError(
                "there is no such transport",
                field="transport",
                value=self.transport,
                hint=did_you_mean(self.transport, TRANSPORTS),
            )
        check_backup_workers(self.backup_workers or 0)
        check_every(1 if self.every is None else self.every)
        if self.mesh is not None:
            shape_of(self.mesh)
        refuse_together(dict(self.settings()))

    def with_job(self, job: Job) -> Request:
        """Return the request with what the job file says where the script says nothing.

        Args:
            job: The job file, the same on all ranks.
        """
        keys = job.keys
        smaller = self.compression
        backup = self.backup_workers
        return replace(
            self,
            job=job,
            cross_barrier=self.cross_barrier and not job.tensor.get("barrier"),
            compression=compression_of(keys.get("compression")) if smaller is None else smaller,
            every=keys.get("every") if self.every is None else self.every,
            backup_workers=int(keys.get("backup_workers", 0)) if backup is None else backup,
            undo=self.undo or bool(keys.get("undo")),
            exchange=str(keys.get("exchange", OVERLAP)),
            replan=bool(keys.get("replan")),
        )

    def settings(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each setting that is no default, as in `EXCLUSIONS`, and its value."""
        if self.every is not None and self.every > 1:
            yield "every", str(self.every)
        if self.backup_workers:
            yield "backup_workers", str(self.backup_workers)
        for name in ("compression", "mesh"):
            if getattr(self, name) is not None:
                yield name, ""
        for name in ("undo", "tune", "replan"):
            if getattr(self, name):
                yield name, "true"
        if self.exchange != OVERLAP:
            yield f"exchange: {self.exchange}", self.exchange
        if not isinstance(self.transport, str):
            yield "transport", ""
        elif self.transport != "auto":
            yield f"transport: {self.transport}", self.transport
        if self.job is not None:
            if self.job.transport == "c10d":
                yield "transport: c10d", "c10d"
            if self.job.tensor:
                yield "schedule.tensor", ""
            if "coordination" in self.job.schedule:
                yield "schedule.coordination", ""


def refuse_together(settings: Mapping[str, str]) -> None:
    """Refuse settings that exclude each other.

    Args:
        settings: What each is, by its name in `EXCLUSIONS`.

    Raises:
        InputError: Names both.
    """
    for row in EXCLUSIONS:
        other = next(filter(settings.__contains__, row.others), None)
        if row.one in settings and other is not None:
            raise InputError(
                row.why,
                field=row.one.partition(":")[0],
                value=settings[row.one] or None,
                hint=row.hint or f"leave `{row.one}` or `{other}` out",
            )
