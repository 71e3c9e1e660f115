"""ASTRA-sim's own inputs, read as they are.

Network `.json` (1.0) or `.yml` (2.x), system `.txt` (1.0) or `.json` (2.x), workload `.txt` with
any training loop:

    case = read_case("3d_switch.json", system="3d_switch_themis.txt", workload="all_reduce.txt")
    case.scenario  # a resolved scenario, ready to be simulated
    case.warning   # what the files ask for and allrail does not model, or None

One file a concept: `network_v1`, `network_v2`, `system`, `workload` (`header`, `layers`, `micro`),
`training` (what a whole loop needs), `implementations` (which
algorithm a name means), `case` (puts them together), `columns` (ASTRA-sim's result columns),
`export` (the case as a scenario file of ours).
"""

from __future__ import annotations

from allrail.formats.astra_sim.case import AstraCase, read_case
from allrail.formats.astra_sim.columns import columns, columns_csv
from allrail.formats.astra_sim.export import scenario_yaml, write_scenario

__all__ = [
    "AstraCase",
    "columns",
    "columns_csv",
    "read_case",
    "scenario_yaml",
    "write_scenario",
]
