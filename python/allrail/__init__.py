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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allrail.base.errors import AllrailError, AllrailWarning, InputError, TrainingError
    from allrail.formats.chakra_export import export
    from allrail.measure import calibrations as calibrate
    from allrail.measure.compare import compare
    from allrail.measure.comparison import Comparison
    from allrail.measure.expected import expect
    from allrail.measure.verify.asked import verify
    from allrail.output.report.saved import report
    from allrail.output.schemas import schema
    from allrail.results.plans import Plan
    from allrail.results.result import CollectivesResult, Result
    from allrail.results.traffic_result import TrafficResult
    from allrail.results.training_result import TrainingResult
    from allrail.runtime.communicator import Communicator
    from allrail.runtime.launch import launch
    from allrail.runtime.recorded import run
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
    from allrail.search.require.asked import require
    from allrail.search.sweeps import Swept, sweep
    from allrail.search.tuning import Trial, Tuned, tune
    from allrail.simulation import networks as fabric
    from allrail.simulation.api import simulate, simulate_many
    from allrail.simulation.assumptions import WhatIf, what_if
    from allrail.simulation.graphs import cost
    from allrail.simulation.importing import import_
    from allrail.simulation.placing import place
    from allrail.simulation.plugins import CommTask, chunk_scheduler, load_plugin, tensor_scheduler
    from allrail.simulation.variants import Row
    from allrail.targets.asked import apply
    from allrail.targets.layouts import plan

    __version__: str

_HOMES = {
    **dict.fromkeys(("simulate", "simulate_many"), "simulation.api"),
    "Row": "simulation.variants",
    "Comparison": "measure.comparison",
    "compare": "measure.compare",
    **dict.fromkeys(
        ("AllrailError", "AllrailWarning", "InputError", "TrainingError"), "base.errors"
    ),
    "apply": "targets.asked",
    "cost": "simulation.graphs",
    "expect": "measure.expected",
    "report": "output.report.saved",
    "run": "runtime.recorded",
    "verify": "measure.verify.asked",
    "export": "formats.chakra_export",
    "import_": "simulation.importing",
    "launch": "runtime.launch",
    "place": "simulation.placing",
    "require": "search.require.asked",
    "plan": "targets.layouts",
    "schema": "output.schemas",
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


_NAMESPACES = {"calibrate": "measure.calibrations", "fabric": "simulation.networks"}
"""Commands that have commands of their own: a module of functions each."""

__all__ = [
    "AllrailError",
    "AllrailWarning",
    "Collective",
    "CollectivesResult",
    "CommTask",
    "Communicator",
    "Comparison",
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
    "apply",
    "calibrate",
    "chunk_scheduler",
    "compare",
    "cost",
    "expect",
    "export",
    "fabric",
    "import_",
    "launch",
    "load_fabric",
    "load_plugin",
    "load_scenario",
    "place",
    "plan",
    "preset_names",
    "report",
    "require",
    "run",
    "schema",
    "simulate",
    "simulate_many",
    "sweep",
    "tensor_scheduler",
    "tune",
    "verify",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("allrail._core").version()
    home = _HOMES.get(name) or _NAMESPACES.get(name)
    if home is None:
        raise AttributeError(f"module `allrail` has no attribute `{name}`")
    module = importlib.import_module(f"allrail.{home}")
    value = module if name in _NAMESPACES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
