"""The loop on 4 workers of this machine: run, verify, calibrate by what was seen, run again.

    python loop.py [--out DIR]

The first run is planned with a guess of what loopback carries. `allrail verify` says how far the
prediction was off and why, and writes the fabric as it was measured; the second run is planned with
that. Nothing is open to other machines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GUESS = """\
schema_version: 1
fabric:
  dimensions: [{kind: switch, size: 4, bandwidth: 20 Gb/s, latency: 20 us}]
"""
MEASURED = "schema_version: 1\nfabric: measured.yaml\n"
TRAIN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]


def run(name: str, job: str, folder: Path) -> dict[str, Any]:
    """Train once, and return what `allrail verify` says of it."""
    allrail = [sys.executable, "-m", "allrail"]
    (folder / f"{name}.yaml").write_text(job, encoding="utf-8")
    here = {**os.environ, "ALLRAIL_JOB": str(folder / f"{name}.yaml"), "OMP_NUM_THREADS": "1"}
    trace = folder / name
    print(f"$ allrail run --trace {trace} torchrun --nproc-per-node 4 train.py", flush=True)
    subprocess.run(  # noqa: S603 - as printed
        [*allrail, "run", "--trace", str(trace), *TRAIN, str(HERE / "train.py")],
        env=here,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    told = [*allrail, "verify", str(trace)]
    print(f"$ allrail verify {trace} --out {folder / 'measured.yaml'}", flush=True)
    subprocess.run([*told, "--out", str(folder / "measured.yaml")], check=True)  # noqa: S603
    print(flush=True)
    said = subprocess.run([*told, "--json"], check=True, capture_output=True)  # noqa: S603
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def main() -> None:
    """Run, verify, run again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/loop"), help="for what is written")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    first = run("guessed", GUESS, folder)
    second = run("calibrated", MEASURED, folder)
    print("predicted before the run, over measured:")
    print(f"  planned with a guess             {100 * first['difference']:+6.1f} %")
    print(f"  planned with what was measured   {100 * second['difference']:+6.1f} %")
    cores = len(os.sched_getaffinity(0))
    if cores < 4:
        print(
            f"4 workers share {cores} cores here: they wait for each other's computing, which no"
            " fabric explains (`computing, of the last rank`)"
        )


if __name__ == "__main__":
    main()
