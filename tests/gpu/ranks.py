"""Runs one part of the check on some ranks under torchrun, and returns what rank 0 wrote."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 58.0
"""Seconds that a part may take."""


@dataclass
class Verdict:
    """What became of a part.

    Attributes:
        part: Its name.
        verdict: `ok`, `failed` or `not here`.
        why: The error, or why it does not apply.
        seconds: How long it took.
        figures: What it measured, by name.
    """

    part: str
    verdict: str
    why: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)


def run_part(name: str, ranks: int, out: Path, *, rehearsal: bool, limit: float) -> Verdict:
    """Run a part under torchrun.

    Args:
        name: Module of the part, in `parts`.
        ranks: Processes to start.
        out: Folder for its files; `NAME.json` and `NAME.log` among them.
        rehearsal: Whether a CPU stands in for the GPU.
        limit: Seconds after which it is killed.
    """
    answer, log = out / f"{name}.json", out / f"{name}.log"
    answer.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks), str(Path(__file__).parent / "rank.py")),
        *(name, str(answer), "rehearsal" if rehearsal else "gpu", str(limit)),
    ]
    surroundings = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    begun = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=out,
            env=surroundings,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            return Verdict(
                name, "failed", f"not over after {limit:.0f} s; see {log}", time.monotonic() - begun
            )
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.monotonic() - begun
    if not answer.exists():
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        why = next((line for line in last if "Error" in line), last[-1] if last else "no output")
        return Verdict(name, "failed", f"{why.strip()[:300]}; see {log}", seconds)
    tree = json.loads(answer.read_text())
    if process.returncode and tree["verdict"] == "ok":
        return Verdict(name, "failed", f"a rank ended with an error; see {log}", seconds)
    return Verdict(name, tree["verdict"], tree["why"], seconds, tree["figures"])
