"""The files of a case, as options name them."""

from __future__ import annotations

from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.formats.astra_sim.case import AstraCase, read_case
from allrail.scenario.fields import names
from allrail.scenario.model import GRAPH_WORLDS


def read_asked(options: dict[str, Any], world: str | None, *, verb: str) -> AstraCase:
    """Read a case from its files.

    Args:
        options: Those that were given.
        world: Of `--world`.
        verb: Who asks, such as `allrail simulate --astra-sim`.

    Raises:
        InputError: A file is missing or wrong.
    """
    for name in ("network", "system", "workload"):
        if name not in options:
            raise InputError(
                f"`--{name}` is missing",
                hint="an ASTRA-sim case has `--network`, `--system` and `--workload`",
                source=verb,
            )
    if world is not None:
        known = [name for name in names("worlds") if name not in GRAPH_WORLDS]
        if world not in known:
            raise InputError(
                "it is not a world of dimensions",
                hint=did_you_mean(world, known),
                source="--world",
                value=world,
            )
        options["world"] = world
    return read_case(options.pop("network"), **options)
