"""Workers on this machine, without namespaces: ranks of a job as torchrun would start them.

This process keeps the store, as torchrun's agent does, and may start the job again: the store
stays, the count of restarts goes up. Workers are forked; what they return must pickle.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo  # seconds, and the first training step would import it in every rank
import torch.distributed as dist

# OpenMP's threads do not survive a fork: with more than one, every rank hangs.
torch.set_num_threads(1)

Answer = tuple[str, Any]
"""`returned` and a value, `raised` and a traceback, `ended` or `hung` and nothing."""


@dataclass
class LocalJob:
    """Ranks of one job on loopback.

    Attributes:
        ranks: How many.
        restarts: How often it was started before.
        processes: Of the ranks that run, by rank.
    """

    ranks: int
    restarts: int = -1
    processes: dict[int, int] = field(default_factory=dict)
    _pipes: dict[int, int] = field(default_factory=dict)
    _store: Any = None

    def start(self, work: Callable[[int], Any]) -> None:
        """Fork the ranks, which run this.

        Args:
            work: Called with the rank, with torchrun's environment around it.
        """
        if self._store is None:
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.restarts += 1
        sys.stdout.flush()
        sys.stderr.flush()
        # A fork copies the locks that other threads hold just then, and nobody gives them back in
        # the child: while the store's thread serves one rank, the next must not be forked.
        forked = multiprocessing.get_context("fork").Event()
        for rank in range(self.ranks):
            read, write = os.pipe()
            process = os.fork()
            if process == 0:
                forked.wait()
                gc.freeze()  # what the parent has dropped is not for a child to end
                torch.set_num_threads(1)  # replaces the parent's pool before two threads race to
                for pipe in (read, *self._pipes.values()):
                    os.close(pipe)
                self._work(rank, write, work)
            os.close(write)
            self.processes[rank], self._pipes[rank] = process, read
        forked.set()

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a rank a signal."""
        os.kill(self.processes[rank], number)

    def wait(self, timeout: float) -> list[Answer]:
        """Wait for all ranks, and end those that are late; return what each has answered.

        Args:
            timeout: Seconds for all together.
        """
        until = time.monotonic() + timeout
        answers = []
        for rank in range(self.ranks):
            data = b""
            while select.select([self._pipes[rank]], [], [], max(0.0, until - time.monotonic()))[0]:
                part = os.read(self._pipes[rank], 1 << 20)
                data += part
                if not part:
                    break
            else:
                answers.append(("hung", None))
                self.kill(rank, signal.SIGABRT)  # faulthandler, where it is on, says where
                time.sleep(0.2)
                self.kill(rank)
                continue
            answers.append(pickle.loads(data) if data else ("ended", None))
        for rank in range(self.ranks):
            os.close(self._pipes.pop(rank))
            os.waitpid(self.processes.pop(rank), 0)
        return answers

    def _work(self, rank: int, pipe: int, work: Callable[[int], Any]) -> None:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(self.ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(self._store.port),
            TORCHELASTIC_USE_AGENT_STORE="True",
            TORCHELASTIC_RESTART_COUNT=str(self.restarts),
            GLOO_SOCKET_IFNAME="lo",
        )
        try:
            answer: Answer = ("returned", work(rank))
        except BaseException:  # noqa: BLE001  it must not go on in the parent's code
            answer = ("raised", traceback.format_exc())
        with os.fdopen(pipe, "wb") as file:
            file.write(pickle.dumps(answer))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def run_local(ranks: int, work: Callable[[int], Any], *, timeout: float) -> list[Any]:
    """Run a function on ranks of a job, and return what each returned.

    Args:
        ranks: How many.
        work: Called with the rank.
        timeout: Seconds.

    Raises:
        RuntimeError: A rank raised, ended or hung.
    """
    job = LocalJob(ranks)
    job.start(work)
    answers = job.wait(timeout)
    wrong = [
        f"rank {i} {one[0]}: {one[1]}" for i, one in enumerate(answers) if one[0] != "returned"
    ]
    if wrong:
        raise RuntimeError("\n".join(wrong))
    return [value for _, value in answers]
