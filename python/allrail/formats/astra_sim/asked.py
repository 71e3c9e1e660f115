"""The files of a case, as options name them."""

from __future__ import annotations

from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.formats.astra_sim.case import AstraCase, read_case
from allrail.scenario.fields import names
from allrail.scenario.model import GRAPH_MODELS


def read_asked(options: dict[str, Any], network_model: str | None, *, verb: str) -> AstraCase:
    """Read a case from its files.

    Args:
        options: Those that were given.
        network_model: Of `--network-model`.
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
    if network_model is not None:
        known = [name for name in names("network_models") if name not in GRAPH_MODELS]
        if network_model not in known:
            raise InputError(
                "it is not a network model of dimensions",
                hint=did_you_mean(network_model, known),
                source="--network-model",
                value=network_model,
            )
        options["network_model"] = network_model
    return read_case(options.pop("network"), **options)
