"""`allrail calibrate device`: its file is read by the simulator, and no part beats the peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from place import Place

FILE = "device.json"


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Calibrate, and read the file."""
    out = folder / FILE
    out.unlink(missing_ok=True)
    seconds = 1 if place.rehearsal else round(0.6 * place.seconds)
    command = [
        *(sys.executable, "-m", "allrail", "calibrate", "device"),
        *("--device", str(place.device), "--seconds", str(seconds), "--out", str(out)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip()[-500:])
    print(done.stdout)
    device = json.loads(out.read_text())
    peaks = device["peak"]
    figures = {
        "device": device["about"],
        "memory_bandwidth": device["memory_bandwidth"],
        "peak": peaks,
        "start": device["kernels"].get("start"),
    }
    notes = [line[2:] for line in done.stdout.splitlines() if line.startswith("# ")]
    return figures | {"notes": notes}
