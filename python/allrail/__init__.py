"""Plan and simulate collectives on multi-dimensional networks.

    import allrail

    result = allrail.simulate({
        "schema_version": 1,
        "fabric": "3D-SW_SW_SW_homo",
        "collective": {"kind": "all_reduce", "size": "1 GiB"},
        "schedule": {"policy": "themis", "order": "smallest_first", "chunks": 64},
    })
    print(result.time_us, result.utilisation)

Everything is imported on first use: `import allrail` alone costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allrail.base.errors import AllrailError, InputError, TrainingError
    from allrail.results.plans import Plan
    from allrail.results.result import CollectivesResult, Result
    from allrail.results.traffic_result import TrafficResult
    from allrail.results.training_result import TrainingResult
    from allrail.runtime.communicator import Communicator
    from allrail.scenario import (
        Collective,
        Dimension,
        Fabric,
        Scenario,
        Schedule,
        Traffic,
        Workload,
        load_fabric,
        load_scenario,
        preset_names,
    )
    from allrail.search.sweeps import Swept, sweep
    from allrail.search.tuning import Trial, Tuned, tune
    from allrail.simulation.api import advise, plan, simulate, simulate_many
    from allrail.simulation.assumptions import WhatIf, what_if
    from allrail.simulation.plugins import CommTask, chunk_scheduler, load_plugin, tensor_scheduler
    from allrail.simulation.variants import Row, compare

    __version__: str

_HOMES = {
    **dict.fromkeys(("advise", "plan", "simulate", "simulate_many"), "simulation.api"),
    **dict.fromkeys(("Row", "compare"), "simulation.variants"),
    **dict.fromkeys(("AllrailError", "InputError", "TrainingError"), "base.errors"),
    "Plan": "results.plans",
    **dict.fromkeys(
        ("CommTask", "chunk_scheduler", "load_plugin", "tensor_scheduler"), "simulation.plugins"
    ),
    "Communicator": "runtime.communicator",
    **dict.fromkeys(("CollectivesResult", "Result"), "results.result"),
    **dict.fromkeys(
        (
            "Collective",
            "Dimension",
            "Fabric",
            "Scenario",
            "Schedule",
            "Traffic",
            "Workload",
            "load_fabric",
            "load_scenario",
            "preset_names",
        ),
        "scenario",
    ),
    **dict.fromkeys(("Swept", "sweep"), "search.sweeps"),
    "TrafficResult": "results.traffic_result",
    "TrainingResult": "results.training_result",
    **dict.fromkeys(("Trial", "Tuned", "tune"), "search.tuning"),
    **dict.fromkeys(("WhatIf", "what_if"), "simulation.assumptions"),
}

__all__ = [
    "AllrailError",
    "Collective",
    "CollectivesResult",
    "CommTask",
    "Communicator",
    "Dimension",
    "Fabric",
    "InputError",
    "Plan",
    "Result",
    "Row",
    "Scenario",
    "Schedule",
    "Swept",
    "Traffic",
    "TrafficResult",
    "TrainingError",
    "TrainingResult",
    "Trial",
    "Tuned",
    "WhatIf",
    "Workload",
    "__version__",
    "advise",
    "chunk_scheduler",
    "compare",
    "load_fabric",
    "load_plugin",
    "load_scenario",
    "plan",
    "preset_names",
    "simulate",
    "simulate_many",
    "sweep",
    "tensor_scheduler",
    "tune",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from allrail._core import version

        return version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `allrail` has no attribute `{name}`")
    from importlib import import_module

    value = getattr(import_module(f"allrail.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
