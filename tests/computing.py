"""How much a process has computed, which other load on the machine does not change."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 120


def cpu_s(pid: int) -> float:
    """Return the seconds that a running process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_s_of_ended() -> float:
    """Return the seconds that all children that were waited for have computed."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_until_computing(process: subprocess.Popen, seconds: float = 1.0) -> None:
    """Wait until a command of allrail listens for Ctrl-C, and has computed so long since.

    It listens once it has its second thread.
    """
    until, begun = time.monotonic() + _PATIENCE_S, None
    while begun is None or cpu_s(process.pid) < begun + seconds:
        assert process.poll() is None, f"it was over before: {process.communicate()}"
        assert time.monotonic() < until, "it does not compute"
        if begun is None and len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 1:
            begun = cpu_s(process.pid)
        time.sleep(0.02)
