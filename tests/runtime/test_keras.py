"""`allrail.keras` with the real packages: four ranks end where one process does."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

RANKS = Path(__file__).with_name("keras_ranks.py")
BACKENDS = ("tensorflow", "jax")

pytestmark = pytest.mark.long


def there(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: `allrail[keras]`, and the backend")


def told_by(ranks, backend, folder):
    out = folder / f"{ranks}.json"
    command = [sys.executable, "-m", "allrail", "launch", "-n", str(ranks), sys.executable]
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(
        [*command, str(RANKS), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize("backend", BACKENDS)
def test_four_ranks_train_as_one_process_does(backend, tmp_path):
    there("keras")
    there(backend)
    alone, together = (told_by(ranks, backend, tmp_path) for ranks in (1, 4))
    assert alone.keys() == together.keys()
    for case, (history, weights) in alone.items():
        close = 2e-2 if "float16" in case else 1e-4
        for name, values in history.items():
            np.testing.assert_allclose(together[case][0][name], values, rtol=close, err_msg=case)
        for one, other in zip(weights, together[case][1], strict=True):
            np.testing.assert_allclose(other, one, rtol=close, atol=close, err_msg=case)


@pytest.mark.parametrize("pack", [0, 1, 100, 1000, 10**9])
def test_small_gradients_are_handed_over_together_and_in_order(pack):
    there("keras")
    from allrail.keras import _calls

    drawn = np.random.default_rng(pack)
    bytes_of = {place: int(drawn.integers(1, 400)) for place in range(50)}
    calls = _calls(pack, [*bytes_of], bytes_of)
    assert [place for call in calls for place in call] == [*bytes_of]
    held = [sum(bytes_of[place] for place in call) for call in calls]
    assert all(each >= pack for each in held[:-1])
    assert all(sum(bytes_of[place] for place in call[:-1]) < max(pack, 1) for call in calls)
