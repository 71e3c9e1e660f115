"""The benchmarks of the runtime still run, whatever they measure here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from . import why_not

pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

ROWS = "vgg16 2x2-500-500 all-reduce-tcp all-reduce-shared small-100 loop backend-ddp"
ROWS += " backend-calls engine"
RUNTIME = Path(__file__).parents[2] / "benches" / "runtime"


@pytest.mark.long
@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
@pytest.mark.parametrize("row", ROWS.split())
def test_a_row_is_measured(row: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(RUNTIME), row, "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured" in done.stdout.splitlines()[0] + done.stdout.splitlines()[1], done.stdout
