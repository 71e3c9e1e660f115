"""Programs of MSCCL that real ranks carry out: what is summed is right."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import allrail

_spec = importlib.util.spec_from_file_location(
    "msccl_programs", Path(__file__).parents[1] / "golden" / "test_msccl.py"
)
msccl = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(msccl)
"""Writes programs."""


def exchange(job, rank):
    with allrail.Communicator(job=job) as group:
        # Of lengths that no block divides, of few elements and of several chunks.
        sums = [
            group.all_reduce(np.arange(n, dtype=np.int64) * (rank + 1)).wait()
            for n in (3, 1001, 300_000)
        ]
        gathered = group.all_gather(np.full(5, rank)).wait()
    for total in sums:
        assert (total == np.arange(len(total)) * 10).all()
    return gathered.tolist()


@pytest.mark.parametrize("name", ["ring", "pairs", "gather", "plan"])
def test_ranks_carry_it_out(name, on_ranks, tmp_path):
    written = "ring" if name == "plan" else name
    (tmp_path / "own.xml").write_text(getattr(msccl, written)(4))
    fabric = (
        "fabric: {name: four, dimensions: "
        "[{kind: switch, size: 4, bandwidth: 10 Gb/s, latency: 50 us}]}\n"
    )
    schedule = "schedule: {algorithms: [own.xml], chunks: 2, smallest_chunk: 64 KiB}\n"
    job = tmp_path / "allrail.yaml"
    if name == "plan":
        # What `allrail plan` has kept needs no other file.
        scenario = tmp_path / "scenario.yaml"
        scenario.write_text(
            "schema_version: 1\ncollective: {kind: all_reduce, size: 2 MB}\n"
            f"{fabric}schedule: {{algorithms: [own.xml], chunks: 2}}\n"
        )
        allrail.plan(scenario).save(tmp_path / "plan.json")
        (tmp_path / "own.xml").unlink()
        job.write_text("schema_version: 1\nplan: plan.json\n")
    else:
        job.write_text(f"schema_version: 1\n{fabric}{schedule}")
    said = on_ranks(partial(exchange, job), ranks=4)
    assert said == [[rank for rank in range(4) for _ in range(5)]] * 4
