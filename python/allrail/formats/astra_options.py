"""Options of ASTRA-sim's files: what every command that reads a case takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allrail.base.arguments import PathLike
from allrail.base.errors import InputError

OPTIONS = (
    "network",
    "system",
    "workload",
    "comm_group",
    "remote_memory",
    "comm_scale",
    "compute_scale",
    "num_passes",
)
"""Of a case's files, in the functions that read one."""


def given_of(**options: PathLike | float | None) -> dict[str, Any]:
    """Return those options that were given, files as paths.

    Args:
        options: Files and numbers; None where one was not given.
    """
    return {
        name: value if isinstance(value, (int, float)) else Path(value)
        for name, value in options.items()
        if value is not None
    }


def refuse(options: Mapping[str, Any], *, verb: str) -> None:
    """Refuse ASTRA-sim's options without `--astra-sim`.

    Args:
        options: Those that were given.
        verb: Who asks.

    Raises:
        InputError: There is one.
    """
    for name, value in options.items():
        raise InputError(
            f"`--{name.replace('_', '-')}` belongs to ASTRA-sim's files",
            hint="add `--astra-sim`, or leave it out",
            source=verb,
            value=str(value),
        )
