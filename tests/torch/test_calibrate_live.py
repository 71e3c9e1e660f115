"""A job measures itself: tables that `calibrate` takes, and every pair of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from allrail.measure.calibrate import live  # noqa: E402
from allrail.measure.calibrate.network import calibrate  # noqa: E402
from allrail.measure.calibrate.pairs import Pair, rounds, unlike  # noqa: E402

ALLRAIL = (sys.executable, "-m", "allrail")


@pytest.mark.parametrize("ranks", range(2, 12))
def test_every_two_ranks_meet_once_and_nobody_meets_two_at_a_time(ranks):
    met = list(rounds(ranks))
    for each in met:
        assert len({rank for pair in each for rank in pair}) == 2 * len(each)
    pairs = [pair for each in met for pair in each]
    assert sorted(pairs) == [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]


def pairs_of(ranks, rate=lambda _a, _b: 10.0, late=lambda _a, _b: 5.0):
    return [Pair(a, b, late(a, b), rate(a, b)) for a in range(ranks) for b in range(a + 1, ranks)]


def test_what_is_alike_is_not_named():
    across = pairs_of(8, lambda a, b: 100.0 if a // 4 == b // 4 else 10.0)
    assert unlike(across, 4) == []
    assert unlike(pairs_of(8), 0) == []
    assert unlike(pairs_of(2), 2) == []


def test_a_slow_rank_is_named_and_not_its_pairs():
    told = unlike(pairs_of(6, lambda a, b: 4.0 if 3 in (a, b) else 10.0), 6)
    assert told == ["rank 3: 4 GB/s with every other within a machine, where 10 is usual"]


def test_a_slow_pair_is_named_and_no_rank():
    told = unlike(pairs_of(6, lambda a, b: 4.0 if (a, b) == (1, 4) else 10.0), 0)
    assert told == ["ranks 1 and 4: 4 GB/s, where 10 is usual"]


def test_a_late_rank_is_named():
    told = unlike(pairs_of(6, late=lambda a, b: 30.0 if 0 in (a, b) else 5.0), 0)
    assert told == ["rank 0: 30 us with every other, where 5 is usual"]


def job(rank):
    inside = live.ranks_inside()
    found = live.measure([4096, 8 << 20], inside=2)
    gathered = live.measure([4096], collective="all_gather", inside=0)
    return inside, found, gathered


def test_a_job_measures_its_machines_and_its_pairs(on_ranks):
    answers = on_ranks(job, ranks=4)
    inside, found, gathered = answers[0]
    assert inside == 4
    assert [(table.ranks, table.hosts) for table in found.tables] == [(2, 1), (4, 2)]
    for table in (*found.tables, *gathered.tables):
        assert all(row.time_us > 0 for row in table.rows)
    assert [row.bytes for row in found.tables[1].rows] == [4096, 8 << 20]
    assert {(pair.one, pair.other) for pair in found.pairs} == {
        (a, b) for a in range(4) for b in range(a + 1, 4)
    }
    assert gathered.tables[0].collective == "all_gather"
    made = calibrate(found.tables[1:])
    assert made.fabric["dimensions"][0]["size"] == 4
    # All ranks have seen the same pairs.
    assert len({str(each.pairs) for _, each, _ in answers}) == 1


def test_the_printed_command_writes_a_fabric(tmp_path):
    """As its help says, by torchrun; and a scenario takes what it has written."""
    out = tmp_path / "measured.yaml"
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("torchrun"), "--nproc-per-node", "2", "--no-python"),
            *(*ALLRAIL, "calibrate", "live", "--sizes", "64 KiB:16 MiB", "-o", out),
        ],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"the fabric is in {out}" in done.stdout
    tree = yaml.safe_load(out.read_text())
    assert tree["calibrated"] is True
    assert tree["dimensions"][0]["size"] == 2
