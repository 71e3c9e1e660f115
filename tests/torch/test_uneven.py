"""Ranks with unequal numbers of batches: an error that names both numbers, and no hang."""

from __future__ import annotations

import gc
import itertools
import os
import random
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import allrail  # noqa: E402
import allrail.torch as art  # noqa: E402
from allrail.base.errors import TrainingError  # noqa: E402
from ports import free_port  # noqa: E402

QUICK = {"schema_version": 1, "timeouts": {"warn": "2 s", "stalled": "4 s"}}
PATIENT = {"schema_version": 1, "timeouts": {"warn": "2 s", "stalled": "120 s"}}
"""Of ranks that hear who has left: none waits for the time to pass."""
AT_ONCE = 60.0
"""Seconds, on a machine that is busy with other things."""


def make(*, buffers=False):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if buffers else nn.ReLU()
    model = nn.Sequential(nn.Linear(8, 8), middle, nn.Linear(8, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(passes, *, buffers=False, every=None, transport="native", way="exit", **options):
    """Train on so many batches, and leave; return what came of it and how long the end took."""
    model, optimizer = make(buffers=buffers)
    art.schedule(model, optimizer, transport=transport, every=every, **options)
    begun = time.monotonic()
    try:
        for _ in range(passes):
            begun = time.monotonic()
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        begun = time.monotonic()
        art.synchronize(model)
        said = "fine"
    except TrainingError as error:
        said = str(error)
    took = time.monotonic() - begun
    if way == "release" and said == "fine":
        art.release(model)
    elif way == "eval":
        if said == "fine":
            model.eval()
            with torch.no_grad():
                model(torch.randn(4, 8))
        dist.barrier()
    return said, took


def leaves(passes, **options):
    """As `train`, and everything is dropped afterwards, as where a process ends."""
    found = train(passes, **options)
    gc.collect()
    return found


def numbers(said):
    """Of an error: which ranks are short, how many passes they have made, and this rank."""
    found = re.match(
        r"(?:.*; )?ranks? ([\d, ]+) (?:has|have) (?:left after|made) (\d+)"
        r" (?:backward pass|step)(?:e?s)?, and this rank has (?:made|begun number) (\d+)\n",
        said,
    )
    assert found, said
    assert "give every rank as many batches" in said
    who = [int(rank) for rank in found[1].split(", ")]
    return who, int(found[2]), int(found[3])


@pytest.mark.parametrize("way", ["exit", "release", "eval"])
@pytest.mark.parametrize("transport", ["native", "c10d"])
def test_twelve_and_thirteen_passes(on_ranks, transport, way):
    # Where the short rank goes on to evaluate, nobody has left.
    job = QUICK if way == "eval" else PATIENT
    for short in (0, 1):

        def body(rank, short=short):
            return leaves(12 if rank == short else 13, transport=transport, way=way, job=job)

        answers = on_ranks(body)
        assert answers[short][0] == "fine"
        said, took = answers[1 - short]
        assert numbers(said) == ([short], 12, 13)
        assert took < AT_ONCE


@pytest.mark.parametrize("way", ["exit", "release", "eval"])
def test_buffers_are_waited_for_first(on_ranks, way):
    for short in (0, 1):

        def body(rank, short=short):
            return leaves(12 if rank == short else 13, buffers=True, way=way, job=QUICK)

        answers = on_ranks(body)
        assert answers[short][0] == "fine"
        assert numbers(answers[1 - short][0]) == ([short], 12, 13)


@pytest.mark.parametrize("cross_barrier", [False, True])
@pytest.mark.parametrize("way", ["release", "eval"])
def test_a_rank_without_any_batch(on_ranks, way, cross_barrier):
    job = QUICK if way == "eval" else PATIENT
    for short in (0, 1):

        def body(rank, short=short):
            passes = 0 if rank == short else 2
            return leaves(passes, way=way, job=job, cross_barrier=cross_barrier)

        said, took = on_ranks(body)[1 - short]
        assert numbers(said) == ([short], 0, 1)
        assert took < AT_ONCE


@pytest.mark.parametrize("transport", ["native", "c10d"])
def test_parameters_are_averaged_now_and_then(on_ranks, transport):
    for short in (0, 1):

        def body(rank, short=short):
            return leaves(10 if rank == short else 12, every=3, transport=transport)

        answers = on_ranks(body)
        assert answers[short][0] == "fine"
        assert numbers(answers[1 - short][0]) == ([short], 10, 12)


def test_of_local_training_a_rank_that_is_there_has_made_fewer(on_ranks):
    def body(rank):
        return leaves(12 - 2 * rank, every=3, way="eval", job=QUICK)

    said, _ = on_ranks(body)[0]
    assert "rank 1 has made fewer than 12 steps, and this rank has made 12\n" in said


@pytest.mark.parametrize("seed", range(4))
def test_whoever_has_more_is_told_of_the_fewest(on_ranks, seed):
    """A law: the fewest go well; all others end one pass later, and name who was short."""
    draw = random.Random(seed)
    ranks = draw.choice([2, 3])
    counts = [draw.randint(1, 4) for _ in range(ranks)]
    options = {
        "transport": draw.choice(["native", "c10d"]),
        "cross_barrier": draw.random() < 0.5,
        "buffers": draw.random() < 0.5,
        "way": draw.choice(["exit", "release"]),
    }
    if options["transport"] == "c10d":
        options["buffers"] = False  # gloo's own broadcast waits for a rank that has left

    def body(rank):
        return leaves(counts[rank], **options)

    fewest = min(counts)
    for count, (said, took) in zip(counts, on_ranks(body, ranks=ranks), strict=True):
        if count == fewest:
            assert said == "fine", (counts, options)
            continue
        who, theirs, mine = numbers(said)
        assert (theirs, mine) == (fewest, fewest + 1), (counts, options)
        assert all(counts[each] == fewest for each in who), (counts, options)
        assert took < AT_ONCE


@pytest.mark.parametrize("transport", ["native", "c10d"])
def test_equal_numbers_are_no_error(on_ranks, transport):
    def body(rank):
        found = []
        for buffers in (False, True):
            for way in ("exit", "release"):
                time.sleep(0.3 * rank)
                found.append(leaves(3, transport=transport, buffers=buffers, way=way)[0])
        dist.barrier()
        return found

    assert on_ranks(body) == [["fine"] * 4] * 2


def test_another_fault_is_not_called_uneven(on_ranks):
    """A rank that dies has left no number; its fault stays what it is."""

    def body(rank):
        model, optimizer = make()
        art.schedule(model, optimizer, transport="native")
        for step in range(3):
            if rank == 1 and step == 2:
                os._exit(1)
            optimizer.zero_grad()
            try:
                model(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()
                art.synchronize(model)
            except TrainingError as error:
                return str(error)
        return "fine"

    said, ended = on_ranks(body, mortal=True)
    assert ended == "ended"
    assert "rank 1 is lost: its process has ended without a word" in said
    assert "backward passes" not in said


def test_the_loop_of_the_guide_ends_with_the_shortest(on_ranks):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "torch.md"
    text = guide.read_text(encoding="utf-8").partition("\n## Uneven inputs\n")[2]
    code = text.partition("```python\n")[2].partition("```")[0].replace("...", "step(batch)")

    def body(rank):
        model, optimizer = make()
        art.schedule(model, optimizer, transport="native")
        made = []

        def step(batch):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            made.append(batch)

        loader = [torch.randn(4, 8) for _ in range(3 + 2 * rank)]
        known = {"allrail": allrail, "itertools": itertools, "torch": torch}
        exec(code, known | {"loader": loader, "step": step})
        art.release(model)
        return len(made)

    assert on_ranks(body, ranks=3) == [3, 3, 3]


SCRIPT = """
    import os, sys, torch
    import allrail.torch as art
    torch.set_num_threads(1)
    short, rank = int(sys.argv[1]), int(os.environ["RANK"])
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    art.schedule(model, optimizer)
    for _ in range(12 if rank == short else 13):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    art.synchronize()
    print(f"rank {rank} is done")
"""


@pytest.mark.parametrize("short", [0, pytest.param(1, marks=pytest.mark.long)])
def test_processes_that_end_and_rank_0_takes_the_store_with_it(tmp_path: Path, short):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    common = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(short)],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [each.communicate(timeout=300)[0] for each in processes]
    assert f"rank {short} is done" in said[short]
    assert processes[short].returncode == 0
    assert processes[1 - short].returncode != 0
    assert f"rank {short} has" in said[1 - short], said
    assert "12 backward passes, and this rank has" in said[1 - short], said
