"""The job file among ranks: all have the same, and know the same secret."""

from __future__ import annotations

import hmac
import secrets
import warnings
from collections.abc import Mapping
from typing import Any

from allrail.base.errors import InputError, show
from allrail.runtime.agreement import Agreement
from allrail.runtime.handover import hand_over
from allrail.runtime.job import Job, JobLike, find_job


def job_of_all(
    job: JobLike | None, agreement: Agreement, *, more: Mapping[str, Any] | None = None
) -> Job:
    """Read the job file on every rank, and make sure that all have the same.

    Args:
        job: As of `find_job`.
        agreement: Among all ranks.
        more: What else must be the same on all ranks.

    Raises:
        InputError: One cannot read it, or ranks differ; it is raised on all of them.
    """
    found, _ = agreement.together(
        "job",
        lambda: find_job(job),
        tells=lambda found: {**found.alike(), **(more or {})},
        decide=_compare,
    )
    return found


def settings_of_all(
    job: Job,
    agreement: Agreement,
    *,
    rank: int,
    ranks: int,
    one_host: bool,
    local_rank: int = 0,
    size: int | None = None,
) -> dict[str, Any]:
    """Return what this rank's nodes are made with, once all ranks know theirs.

    Args:
        job: As `job_of_all` returns it.
        agreement: Among all ranks.
        rank: This process.
        ranks: How many there are.
        one_host: Whether all ranks reach each other over loopback.
        local_rank: Its number on its host.
        size: The bytes that a step exchanges; that of rank 0 counts.

    Raises:
        InputError: The file does not fit this job, or one of its hosts; it is raised on all ranks.
    """
    drawn, size = _drawn(job, agreement, one_host=one_host, size=size)

    def make() -> dict[str, Any]:
        secret = job.secret() or drawn
        return job.settings(
            rank=rank,
            ranks=ranks,
            local_rank=local_rank,
            one_host=one_host,
            secret=secret,
            size=size,
        )

    def proof(settings: dict[str, Any]) -> str:
        """Tells nobody the secret, no more than what ranks say on a connection."""
        about = f"allrail secret {agreement.name}".encode()
        return hmac.new(bytes.fromhex(settings["secret"]), about, "sha256").hexdigest()

    settings, _ = agreement.together("settings", make, tells=proof, decide=_same_secret)
    return settings


def _drawn(
    job: Job, agreement: Agreement, *, one_host: bool, size: int | None
) -> tuple[str | None, int | None]:
    """Return a secret for ranks that no file gives one, and rank 0's size.

    What a file holds never goes to another rank; what is drawn goes through the store only where
    the job file says so and there is no better way.
    """
    mine = [job.names_secret, job.draws_secret, size]
    named, by_store, size = agreement.on(
        "secret from",
        mine,
        lambda said: [all(s[0] for s in said), any(s[1] for s in said), said[0][2]],
    )
    if named or not (one_host or by_store):
        return None, size
    if one_host:
        return hand_over(agreement, or_by_store=job.draws_secret), size
    here = secrets.token_hex(32) if agreement.rank == 0 and job.draws_secret else None
    if here is not None:
        warnings.warn(
            "the secret of this job is handed round through its store, which whoever reaches"
            " that can read: on a network that others use, name a file in `secret`",
            RuntimeWarning,
            stacklevel=2,
        )
    drawn: str | None = agreement.on("drawn", here, lambda said: said[0])
    return drawn, size


_ALIKE = {
    "allrail": "install the same version of allrail on every host",
    "plan": "give every rank the same plan file",
    "mesh of `schedule`": "make the same `DeviceMesh` on every rank",
}


def _compare(said: list[dict[str, Any]]) -> None:
    first = said[0]
    for rank, other in enumerate(said):
        # Another version may have other keys: say that first.
        for key in sorted({*first, *other}, key=lambda key: (key != "allrail", key)):
            mine, theirs = first.get(key), other.get(key)
            if mine != theirs:
                raise InputError(
                    f"rank {rank} has {_shown(theirs)}, and rank 0 {_shown(mine)}",
                    field=key,
                    hint=_ALIKE.get(key, "give every rank the same job file"),
                )


def _same_secret(proofs: list[str]) -> None:
    for rank, proof in enumerate(proofs):
        if proof != proofs[0]:
            raise InputError(
                f"rank {rank} has another than rank 0",
                field="secret",
                hint="copy the same file to every host",
            )


def _shown(value: object) -> str:
    return "none" if value is None else f"`{show(value)}`"
