"""A long training of a small model, with ranks that are killed and jobs that are started again.

As under torchrun: one store for all lives of the job, every rank starts again when one is lost, and
goes on from the checkpoint. What must not grow (memory, threads, files, listening ports) is looked
at again and again; in the end all parameters equal those of `DistributedDataParallel`, which has
trained beside it without a mishap.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import allrail.torch as art
from testbed.local import LocalJob

RANKS = 2
_LONG = 900.0
_WARM = 200
"""Steps of a life after which nothing may grow any more."""


@dataclass(frozen=True)
class Held:
    """What a process has at one time."""

    step: int
    kilobytes: int
    threads: int
    files: int

    @classmethod
    def now(cls, step: int) -> Held:
        """Of this process."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        tasks = sum(1 for _ in Path("/proc/self/task").iterdir())
        files = sum(1 for _ in Path("/proc/self/fd").iterdir())
        return cls(step, pages * os.sysconf("SC_PAGE_SIZE") // 1024, tasks, files)


@dataclass
class Soak:
    """What came of it.

    Attributes:
        lives: Of each life of the job, rank by rank, what it held over time.
        ports: How many ports of the job, and of what started it, listened between lives.
        noticed: Seconds from a kill to the survivor's error.
        errors: What survivors said.
        ours: The parameters in the end, of each rank.
        theirs: The parameters that DDP has.
        seconds: How long all took.
    """

    lives: list[list[list[Held]]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    noticed: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ours: list[list[Any]] = field(default_factory=list)
    theirs: list[Any] = field(default_factory=list)
    seconds: float = 0.0

    def growth(self) -> Held:
        """By how much a rank has grown at most in the second half of a life.

        In the first, what is kept of the last steps, and no more of them, is filled: 2 KB a step.
        """
        halves = [one[(len(one) - 1) // 2 :] for life in self.lives for one in life]
        pairs = [(half[0], half[-1]) for half in halves if len(half) > 1]

        def most(name: str) -> int:
            return max((getattr(b, name) - getattr(a, name) for a, b in pairs), default=0)

        return Held(0, most("kilobytes"), most("threads"), most("files"))


def model() -> nn.Module:
    """A new model, alike everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def batch(step: int, rank: int) -> torch.Tensor:
    """What a rank sees in a step; made of both, so that a life that goes on sees the same."""
    rows = torch.arange(32, dtype=torch.float32).view(4, 8)
    return torch.sin(rows * (1.0 + step % 977) + rank)


def train(
    module: nn.Module, optimizer: torch.optim.Optimizer, rank: int, first: int, last: int
) -> None:
    """Train some steps."""
    for step in range(first, last):
        optimizer.zero_grad()
        module(batch(step, rank)).square().mean().backward()
        optimizer.step()


def soak(*, steps: int, kill_every: int, save_every: int, folder: Path) -> Soak:
    """Train, kill, start again; then train DDP, and compare.

    Args:
        steps: In all.
        kill_every: A rank is killed whenever so many are made.
        save_every: A checkpoint is written whenever so many are made.
        folder: For checkpoints.
    """
    begun = time.monotonic()
    found = Soak()
    made = mmap.mmap(-1, 8)
    job = LocalJob(RANKS)
    kills = iter(range(kill_every, steps, kill_every))
    due = next(kills, None)
    while True:
        job.start(lambda rank: _life(rank, steps, save_every, folder, made))
        killed = None
        if due is not None:
            while struct.unpack("q", made[:8])[0] < due + _WARM // 2:
                time.sleep(0.01)
            job.kill(job.restarts % RANKS)
            killed, due = time.monotonic(), next(kills, None)
        answers = job.wait(_LONG)
        lives = [value for kind, value in answers if kind == "returned"]
        if len(lives) < RANKS - (killed is not None):
            raise RuntimeError(str(answers))
        found.lives.append([held for held, *_ in lives])
        found.ports.append(_listening())
        if killed is None:
            found.ours = [state for _, state, _, _ in lives]
            break
        for _, _, error, at in lives:
            found.errors.append(error)
            found.noticed.append(at - killed)
    reference = LocalJob(RANKS)
    reference.start(lambda rank: _ddp(rank, steps))
    answers = reference.wait(_LONG)
    if any(kind != "returned" for kind, _ in answers):
        raise RuntimeError(str(answers))
    found.theirs = answers[0][1]
    found.seconds = time.monotonic() - begun
    return found


def _life(rank: int, steps: int, save_every: int, folder: Path, made: mmap.mmap) -> Any:
    """From the last checkpoint to the end, or until another rank is lost."""
    warnings.simplefilter("ignore")
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    path, first = folder / "checkpoint.pt", 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    art.schedule(module, optimizer)
    held: list[Held] = []
    error = ""
    try:
        step = first
        while step < steps:
            last = min(steps, step - step % _WARM + _WARM)
            train(module, optimizer, rank, step, last)
            step = last
            if rank == 0:
                made[:8] = struct.pack("q", step)
            if step % save_every == 0:
                _save(module, optimizer, step, path, rank)
            if step >= first + 2 * _WARM and (step % (5 * _WARM) == 0 or step == steps):
                held.append(Held.now(step))
        state = [each.detach().tolist() for each in module.state_dict().values()]
    except art.TrainingError as raised:
        error, state = str(raised), []
    at = time.monotonic()
    with contextlib.suppress(art.TrainingError):
        art.release(module)
    return held, state, error, at


def _save(
    module: nn.Module, optimizer: torch.optim.Optimizer, step: int, path: Path, rank: int
) -> None:
    """Every rank flushes, the first writes; the file is whole or not there."""
    saved = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    if rank == 0:
        part = path.with_suffix(".part")
        torch.save(saved, part)
        part.replace(path)


def _ddp(rank: int, steps: int) -> list[Any]:
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    wrapped = nn.parallel.DistributedDataParallel(module)
    train(wrapped, optimizer, rank, 0, steps)
    dist.destroy_process_group()
    return [each.detach().tolist() for each in module.state_dict().values()]


def _listening() -> int:
    """TCP ports that listen, of this process and of those that it has started, ended or not.

    Others on this machine have theirs; what a job leaves behind stays in its group.
    """
    tables = (Path(name).read_text() for name in ("/proc/net/tcp", "/proc/net/tcp6"))
    sockets = (line.split() for table in tables for line in table.splitlines()[1:])
    listening = {f"socket:[{socket[9]}]" for socket in sockets if socket[3] == "0A"}
    held = set()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # of another user, or gone meanwhile
            if os.getpgid(int(entry.parts[2])) == os.getpgrp():
                held.add(str(entry.readlink()))
    return len(listening & held)
