"""The scenario: one typed tree that says what to simulate, on what, and how.

`model` is the tree, `load` reads it from YAML or JSON with `--set` overrides, `presets` finds
named fabrics, `places` remembers where each value stood so that an error can say so.
"""

from allrail.scenario.fabric import Fabric
from allrail.scenario.graph import GraphFabric
from allrail.scenario.keys.fabric import Dimension
from allrail.scenario.keys.schedule import Collective, Schedule
from allrail.scenario.load import ScenarioLike, load_scenario
from allrail.scenario.model import Scenario
from allrail.scenario.presets import load_any_fabric, load_fabric, preset_names
from allrail.scenario.traffic import Traffic
from allrail.scenario.workload import Workload

__all__ = [
    "Collective",
    "Dimension",
    "Fabric",
    "GraphFabric",
    "Scenario",
    "ScenarioLike",
    "Schedule",
    "Traffic",
    "Workload",
    "load_any_fabric",
    "load_fabric",
    "load_scenario",
    "preset_names",
]
