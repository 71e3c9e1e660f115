"""A case whose files options name, and its result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.arguments import PathLike
from allrail.base.errors import InputError, did_you_mean
from allrail.formats.astra_sim.case import AstraCase, read_case
from allrail.formats.astra_sim.columns import columns
from allrail.formats.astra_sim.export import write_scenario
from allrail.scenario.fields import names
from allrail.scenario.model import GRAPH_MODELS

if TYPE_CHECKING:
    from allrail.results.training_result import TrainingResult


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


def result_of_case(
    result: TrainingResult, case: AstraCase, path: PathLike | None
) -> TrainingResult:
    """Return a result with ASTRA-sim's columns.

    Args:
        result: Of the case's scenario.
        case: What was simulated.
        path: The file that takes the case as a scenario; None if none does.
    """
    if path is not None:
        write_scenario(case, path=Path(path))
    return replace(result, astra_sim=columns(case, result=result.to_dict()))
