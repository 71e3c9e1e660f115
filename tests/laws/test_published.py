"""What every verb of `reproduce` says of a row: where it is published, and how ours came about.

The verbs that take long are run as far as a second goes: with results of fewer ranks, or with a
stand-in (tests/golden). A value without a place, and a fit without its parameters, cannot be made
at all (tests/results/test_rows.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allrail_reproduce import Reproduction, astra_sim, bytescheduler, horovod, themis_workloads
from allrail_reproduce.grid import BASELINE, SCF
from allrail_reproduce.hammingmesh import claims


def training() -> Reproduction:
    case = themis_workloads.CASES[0]
    compute = themis_workloads.scaled(0.02)
    names = (BASELINE, SCF, themis_workloads.IDEAL)
    steps = themis_workloads._steps(case, compute, names)
    return Reproduction("Themis", themis_workloads._rows(case, 0.02, steps))


def control_plane() -> Reproduction:
    """All runs, with one answer for all of them."""
    answer = {"step_us": 1e5, "efficiency": 0.9, "buffers": 8.0, "exchange_us": 10.0}
    asked = horovod.cases_of(full=True, small=False)
    return Reproduction("Horovod", horovod.rows_of(dict.fromkeys(asked, answer)))


VERBS: dict[str, Callable[[], Reproduction]] = {
    "themis": training,
    "astra-sim": astra_sim.run,
    "hammingmesh": lambda: Reproduction("claims", claims.rows(jobs=True)),
    "bytescheduler": bytescheduler.run,
    "horovod": control_plane,
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_row_says_where_it_is_published_and_how_ours_came_about(verb, monkeypatch) -> None:
    monkeypatch.delenv(astra_sim.REFERENCE, raising=False)
    outcome = VERBS[verb]()
    assert outcome.targets
    for row in outcome.rows:
        cells = dict(zip(outcome.table[0], outcome.table[1][outcome.rows.index(row)], strict=True))
        assert (cells["published"] == "not published") is (row.published is None)
        assert (cells["source"] == "-") is (row.published is None)
        assert cells["provenance"] in ("computed", "fitted", "chosen")
        assert bool(row.made.parameters) is (row.made.word != "computed")
        assert row.ok is not None or row.verdict in ("-", "fitted", "missing")
        if row.ok is False:
            assert row.why, row.case
    cases = [row.case for row in outcome.rows]
    assert len(set(cases)) == len(cases)
    assert len(outcome.summary) == 3
