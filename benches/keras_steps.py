"""What a training step of Keras takes with `allrail.keras`: `make keras-check`.

    python benches/keras_steps.py [--ranks 4] [--blocks 7] [--backend tensorflow --backend jax]
    python benches/keras_steps.py --rate 500000000    # over links of 500 Mb/s, as root

The peer is what Horovod's `DistributedOptimizer` does: all gradients of a step are handed over
together when the backward pass has ended, in the order of variables, without priorities. Both train
the same model in the same processes by turns; ratios are of medians over blocks.

Ranks of one host share its cores, and gradients take memory copies: nothing can overlap. With
`--rate` each rank is in a network namespace, behind a link of so many bits a second.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from testbed import Cluster, Network, why_not

STEPS = 20
BATCHES, PIXELS, CLASSES = 4, 784, 10
_PORT = 29500
_PATIENCE = 1200.0


def rank(blocks: int, batch: int) -> None:
    """Train on this rank, and have rank 0 print what came of it."""
    import keras
    import numpy as np

    import allrail
    import allrail.keras as ark

    draw = np.random.default_rng(0)
    x = draw.normal(size=(BATCHES * batch, PIXELS)).astype("float32")
    y = draw.integers(CLASSES, size=BATCHES * batch)

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
                    at = step % BATCHES * batch
                    model.train_on_batch(x[at : at + batch], y[at : at + batch])
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
    parser.add_argument("--batch", type=int, default=32, help="images of a step on each rank")
    parser.add_argument("--backend", action="append", choices=["tensorflow", "jax"])
    parser.add_argument("--rate", type=int, metavar="BITS", help="of each rank's link, a second")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.blocks, options.batch)
        return
    if options.rate and (why := why_not()):
        parser.error(f"this machine can shape no links: {why}")
    print("| backend | ranks | plain all-reduce, ms a step | allrail, ms | plain over allrail |")
    print("|---|---|---|---|---|", flush=True)
    this = [sys.executable, __file__, "--rank", "--blocks", str(options.blocks)]
    this += ["--batch", str(options.batch)]
    for backend in options.backend or ["tensorflow", "jax"]:
        environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if options.rate:
            print(_behind_links(this, environment, options.ranks, options.rate), flush=True)
        else:
            print(_on_this_host(this, environment, options.ranks), flush=True)


def _on_this_host(this: list[str], environment: dict[str, str], ranks: int) -> str:
    launch = [sys.executable, "-m", "allrail", "launch", "-n", str(ranks)]
    told = subprocess.run(
        [*launch, *this], env=environment, capture_output=True, text=True, check=False
    )
    rows = [line.partition("] ")[2] for line in told.stdout.splitlines() if "] | " in line]
    return "\n".join(rows) or told.stdout + told.stderr


def _behind_links(this: list[str], environment: dict[str, str], ranks: int, rate: int) -> str:
    cluster = Cluster(ranks, [Network(rate)])
    store = {
        "ALLRAIL_STORE": f"http://{cluster.address(0)}:{_PORT}",
        "ALLRAIL_STORE_TOKEN": secrets.token_hex(16),
    }

    def start(number: int) -> str:
        switch = {"kind": "switch", "size": ranks, "bandwidth": f"{rate} b/s", "latency": "20 us"}
        job = {
            "schema_version": 1,
            "fabric": {"dimensions": [switch]},
            "interfaces": [cluster.address(number)],
            "secret": "store",
            "shared_memory": False,
        }
        place = {"PMI_RANK": str(number), "PMI_SIZE": str(ranks), "MPI_LOCALRANKID": "0"}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(job, file)
            file.flush()
            more = {**store, **place, "ALLRAIL_JOB": file.name}
            told = subprocess.run(
                this, env=environment | more, capture_output=True, text=True, check=False
            )
        return told.stdout if told.returncode == 0 else told.stdout + told.stderr

    return "".join(cluster.run(start, timeout=_PATIENCE).results).rstrip("\n")


if __name__ == "__main__":
    main()
