"""What a module calls that is above it, or that few calls need: by name, imported when asked for.

Commands are imported by name, too (`cli/verbs.py`). Beside these two lists and `allrail`'s own
names, a function imports large packages alone, where it uses them (`make lint`). A test finds each
of these names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

LATE = {
    "renderers": "allrail.output.report.renderers",
    "write results": "allrail.output.write:write_results",
    "write answer": "allrail.output.report.answer:write",
    "folder of results": "allrail.output.write:check_folder",
    "result of collective": "allrail.results.result:CollectivesResult",
    "result of workload": "allrail.results.training_result:TrainingResult",
    "result of traffic": "allrail.results.traffic_result:TrafficResult",
    "view of collective": "allrail.cli.collectives",
    "view of workload": "allrail.cli.training",
    "view of traffic": "allrail.cli.traffic",
    "load plugin": "allrail.simulation.plugins:load_plugin",
    "registered schedulers": "allrail.simulation.plugins:registered",
    "measured collective": "allrail.measure.calibrate.nccl.beside:nccl_of",
    "bench of a device": "allrail.measure.calibrate.device.bench:Bench",
    "live calibration": "allrail.measure.calibrate.live",
    "case of ASTRA-sim": "allrail.formats.astra_sim.asked:read_asked",
    "result of a case of ASTRA-sim": "allrail.formats.astra_sim.asked:result_of_case",
    "layers of ASTRA-sim": "allrail.scenario.astra_sim.workload:read_workload",
    "process group of torch": "allrail.torch.backend:create",
    "store of torch": "allrail.torch.store:store_of_job",
}
"""By what it is: a module, or a name in one.

Of a kind of job, a view has `show`, `show_comparison` and, of ASTRA-sim's, `show_case`.
"""


def found(what: str) -> Any:
    """Return a module, or what has a name in one.

    Args:
        what: A key of `LATE`.
    """
    module, _, name = LATE[what].partition(":")
    there = import_module(module)
    return getattr(there, name) if name else there


def call(what: str, *arguments: Any, **named: Any) -> Any:
    """Call a function.

    Args:
        what: A key of `LATE`.
        arguments: Of the function.
        named: Of the function.
    """
    return found(what)(*arguments, **named)
