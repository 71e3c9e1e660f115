"""What a training step of Keras takes with `allrail.keras`: `make keras-check`.

    python benches/keras_steps.py [--ranks 4] [--blocks 7] [--backend tensorflow --backend jax]

The peer is what Horovod's `DistributedOptimizer` does: all gradients of a step are handed over
together when the backward pass has ended, in the order of variables, without priorities. Both train
the same model in the same processes by turns; ratios are of medians over blocks.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import Any

STEPS = 20
IMAGES, PIXELS, CLASSES, BATCH = 256, 784, 10, 32


def rank(blocks: int) -> None:
    """Train on this rank, and have rank 0 print what came of it."""
    import keras
    import numpy as np

    import allrail
    import allrail.keras as ark

    draw = np.random.default_rng(0)
    x = draw.normal(size=(IMAGES, PIXELS)).astype("float32")
    y = draw.integers(CLASSES, size=IMAGES)

    def plain(optimizer: Any, group: allrail.Communicator) -> Any:
        made = ark.schedule(optimizer, group)
        made._allrail_exchange.average = lambda gradients, variables: together(
            group, gradients, variables
        )
        return made

    def together(group: allrail.Communicator, gradients: list[Any], variables: Any) -> list[Any]:
        shapes = [(tuple(one.shape), "float32") for one in variables]

        def average(*arrays: Any) -> list[Any]:
            handles = [
                group.all_reduce(np.array(one), op="average", name=f"plain {place}")
                for place, one in enumerate(arrays)
            ]
            return [handle.wait() for handle in handles]

        return ark._CALLBACKS[keras.backend.backend()](average, gradients, shapes)

    with allrail.Communicator() as group:
        ways = {}
        for name, way in (("allrail", ark.schedule), ("plain", plain)):
            layers = [keras.layers.Dense(512, activation="relu") for _ in range(4)]
            model = keras.Sequential([keras.Input((PIXELS,)), *layers, keras.layers.Dense(CLASSES)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(way(keras.optimizers.Adam(1e-3), group), loss=loss)
            ways[name] = model
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for block in range(blocks + 1):
            for name, model in ways.items():
                group.barrier()
                begun = time.perf_counter()
                for step in range(STEPS):
                    at = step % (IMAGES // BATCH) * BATCH
                    model.train_on_batch(x[at : at + BATCH], y[at : at + BATCH])
                if block:
                    taken[name].append((time.perf_counter() - begun) / STEPS)
        if group.rank == 0:
            ratios = [a / b for a, b in zip(taken["plain"], taken["allrail"], strict=True)]
            ours, theirs = (statistics.median(taken[name]) * 1e3 for name in ("allrail", "plain"))
            print(
                f"| {keras.backend.backend()} | {group.ranks} | {theirs:.1f} | {ours:.1f} |"
                f" {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) |",
                flush=True,
            )


def main() -> None:
    """Start the ranks of each backend."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--backend", action="append", choices=["tensorflow", "jax"])
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.blocks)
        return
    print("| backend | ranks | plain all-reduce, ms a step | allrail, ms | plain over allrail |")
    print("|---|---|---|---|---|", flush=True)
    for backend in options.backend or ["tensorflow", "jax"]:
        launch = [sys.executable, "-m", "allrail", "launch", "-n", str(options.ranks)]
        this = [sys.executable, __file__, "--rank", "--blocks", str(options.blocks)]
        told = subprocess.run(
            [*launch, *this],
            env=os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            check=False,
        )
        rows = [line.partition("] ")[2] for line in told.stdout.splitlines() if "] | " in line]
        print("\n".join(rows) or told.stdout + told.stderr, flush=True)


if __name__ == "__main__":
    main()
