"""torch's own tests of a backend pass over allrail, but for those that are known not to."""

from __future__ import annotations

import importlib.util

import pytest
from tests.conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")


@pytest.mark.long
@pytest.mark.parametrize("ranks", [3, 4])
def test_torchs_own_suite_passes(ranks):
    pytest.importorskip("expecttest", reason="torch's tests need `expecttest`")
    spec = importlib.util.spec_from_file_location("suite", ROOT / "benches" / "torch_suite.py")
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    outcome = suite.run_suite("allrail", ranks=ranks, timeout=120)
    assert outcome.failed == set(suite.KNOWN), outcome.log[-5000:]
    assert len(outcome.passed) >= 89
