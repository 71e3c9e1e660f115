"""A short soak: a thousand steps, one kill. The long one is `make soak`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from testbed.soak import RANKS, soak  # noqa: E402


def test_a_job_that_loses_a_rank_goes_on_from_its_checkpoint_and_nothing_grows(tmp_path):
    found = soak(steps=1000, kill_every=600, save_every=200, folder=tmp_path)
    assert len(found.lives) == 2
    assert len(found.errors) == 1
    assert "is lost" in found.errors[0]
    assert found.noticed[0] < 60
    assert found.ours == [found.theirs] * RANKS
    grown = found.growth()
    assert (grown.threads, grown.files) == (0, 0)
    assert grown.kilobytes < 4096
