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
    from allrail.api import Row, advise, compare, plan, simulate, simulate_many
    from allrail.errors import AllrailError, InputError, TrainingError
    from allrail.plans import Plan
    from allrail.plugins import CommTask, chunk_scheduler, load_plugin, tensor_scheduler
    from allrail.result import Result
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
    from allrail.sweeps import Swept, sweep
    from allrail.traffic import (
        TrafficResult,
        TrafficRow,
        compare_traffic,
        simulate_traffic,
        simulate_traffic_many,
    )
    from allrail.training import (
        TrainingRow,
        WhatIf,
        compare_training,
        simulate_training,
        simulate_training_many,
        what_ifs,
    )
    from allrail.training_result import TrainingResult
    from allrail.tuning import Trial, Tuned, tune

    __version__: str

_HOMES = {
    **dict.fromkeys(("Row", "advise", "compare", "plan", "simulate", "simulate_many"), "api"),
    **dict.fromkeys(("AllrailError", "InputError", "TrainingError"), "errors"),
    "Plan": "plans",
    **dict.fromkeys(("CommTask", "chunk_scheduler", "load_plugin", "tensor_scheduler"), "plugins"),
    "Communicator": "runtime.communicator",
    "Result": "result",
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
    **dict.fromkeys(("Swept", "sweep"), "sweeps"),
    **dict.fromkeys(
        (
            "TrafficResult",
            "TrafficRow",
            "compare_traffic",
            "simulate_traffic",
            "simulate_traffic_many",
        ),
        "traffic",
    ),
    **dict.fromkeys(
        (
            "TrainingRow",
            "WhatIf",
            "compare_training",
            "simulate_training",
            "simulate_training_many",
            "what_ifs",
        ),
        "training",
    ),
    "TrainingResult": "training_result",
    **dict.fromkeys(("Trial", "Tuned", "tune"), "tuning"),
}

__all__ = [
    "AllrailError",
    "Collective",
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
    "TrafficRow",
    "TrainingError",
    "TrainingResult",
    "TrainingRow",
    "Trial",
    "Tuned",
    "WhatIf",
    "Workload",
    "__version__",
    "advise",
    "chunk_scheduler",
    "compare",
    "compare_traffic",
    "compare_training",
    "load_fabric",
    "load_plugin",
    "load_scenario",
    "plan",
    "preset_names",
    "simulate",
    "simulate_many",
    "simulate_traffic",
    "simulate_traffic_many",
    "simulate_training",
    "simulate_training_many",
    "sweep",
    "tensor_scheduler",
    "tune",
    "what_ifs",
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
