"""Soak: 100,000 steps of a small model on two ranks, one killed and the job restarted every 10,000.

    python benches/soak.py [--steps 100000] [--kill-every 10000]

Memory, threads, files and listening ports must stay, and parameters equal DDP's in the end. Exits
with 1 if they do not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch

torch.set_num_threads(1)  # OpenMP's threads do not survive a fork

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch._dynamo  # noqa: E402 - else `DistributedDataParallel` imports it in every rank

from testbed.soak import RANKS, Held, soak  # noqa: E402

_KILOBYTES = 4096
"""What a rank may grow by in a life of the job: the allocator's own."""


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--kill-every", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(
            steps=options.steps,
            kill_every=options.kill_every,
            save_every=1000,
            folder=Path(folder),
        )
    grown: Held = found.growth()
    equal = found.ours == [found.theirs] * RANKS
    last = [one[-1].kilobytes for life in found.lives for one in life if one]
    rows = {
        "lives of the job": str(len(found.lives)),
        "noticed after, s": f"at most {max(found.noticed, default=0):.2f}",
        "a rank grows by, KB": f"at most {grown.kilobytes}; holds {min(last)} to {max(last)}",
        "threads more": str(grown.threads),
        "files more": str(grown.files),
        "ports that listen": " ".join(map(str, found.ports)),
        "parameters equal DDP's": "yes" if equal else "NO",
        "seconds": f"{found.seconds:.0f}",
    }
    for name, value in rows.items():
        print(f"{name:<24} {value}")
    flat = grown.kilobytes < _KILOBYTES and not grown.threads and not grown.files
    sys.exit(0 if flat and equal and len(set(found.ports)) == 1 else 1)


if __name__ == "__main__":
    main()
