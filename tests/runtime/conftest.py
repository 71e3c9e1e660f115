"""Ranks for the tests of `allrail.runtime`: processes forked from this one, and a store."""

from __future__ import annotations

import faulthandler
import importlib.util
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import allrail.runtime.communicator  # noqa: F401 - once, not in every child
from allrail.runtime.environment import ADDRESS, OURS, TOKEN
from allrail.runtime.store import Server

SECRET = "a token for tests, no more"


class Ranks:
    """Forked processes that run `body(rank, *arguments)` on demand."""

    def __init__(self, body, *, ranks=2, timeout=300):
        self.body, self.timeout = body, timeout
        self.workers = []
        for rank in range(ranks):
            mine, theirs = multiprocessing.Pipe()
            pid = os.fork()
            if pid == 0:
                mine.close()
                self.work(rank, theirs)
            theirs.close()
            self.workers.append((pid, mine))
        self.server = Server(SECRET)  # after the forks: it has a thread
        for rank, (_, pipe) in enumerate(self.workers):
            ours = {OURS.rank: rank, OURS.ranks: ranks, OURS.local_rank: rank}
            pipe.send({ADDRESS: self.server.address, TOKEN: SECRET} | ours)

    def work(self, rank, pipe):
        try:
            faulthandler.enable()
            os.environ.update({name: str(value) for name, value in pipe.recv().items()})
            while True:
                arguments = pipe.recv()
                try:
                    answer = ("ok", self.body(rank, *arguments))
                except BaseException:  # noqa: BLE001 - the test's process reports it
                    answer = ("raised", traceback.format_exc())
                pipe.send_bytes(pickle.dumps(answer))
        except EOFError:
            pass
        finally:
            os._exit(0)

    def __call__(self, *arguments):
        """Run the body on every rank; return what each has returned, `ended` if it has ended."""
        for _, pipe in self.workers:
            pipe.send(arguments)
        until = time.monotonic() + self.timeout
        answers = []
        for rank, (pid, pipe) in enumerate(self.workers):
            try:
                if pipe.poll(max(0.1, until - time.monotonic())):
                    answers.append(pickle.loads(pipe.recv_bytes()))
                else:
                    os.kill(pid, signal.SIGABRT)  # prints where it is
                    answers.append(("hung", f"rank {rank} hangs"))
            except (EOFError, ConnectionResetError):
                answers.append(("ok", "ended"))
        wrong = [f"rank {rank}: {said[1]}" for rank, said in enumerate(answers) if said[0] != "ok"]
        assert not wrong, "\n".join(wrong)
        return [said for _, said in answers]

    def stop(self):
        for pid, pipe in self.workers:
            pipe.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.server.close()


@pytest.fixture
def on_ranks():
    """Run a function on ranks of its own: `on_ranks(body)` returns what each rank returned."""
    pools = []

    def run(body, *arguments, **options):
        pools.append(Ranks(body, **options))
        return pools[-1](*arguments)

    yield run
    for pool in pools:
        pool.stop()


@pytest.fixture(scope="module")
def ranks_of():
    """Ranks that stay for the tests of a file: `ranks_of(body)` is called as often as wanted."""
    pools = {}

    def make(body, **options):
        key = (body, *sorted(options.items()))
        if key not in pools:
            pools[key] = Ranks(body, **options)
        return pools[key]

    yield make
    for pool in pools.values():
        pool.stop()


@dataclass(frozen=True)
class Framework:
    """How a framework makes arrays, and what is special of them."""

    make: Callable
    has_bfloat16: bool = True
    is_immutable: bool = False


def of_torch(values, dtype):
    import torch

    return torch.tensor(values, dtype=getattr(torch, dtype))


def of_jax(values, dtype):
    import jax.numpy as jnp

    return jnp.array(values, dtype)


FRAMEWORKS = {
    "numpy": Framework(np.array, has_bfloat16=False),
    "torch": Framework(of_torch),
    "jax": Framework(of_jax, is_immutable=True),
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    """A framework that is installed."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed: `allrail[{request.param}]`")
    return FRAMEWORKS[request.param]
