"""Ranks for the tests of `allrail.torch`: processes forked from this one, which has imported torch once.

Run with torch 2.15; see `test_parity.py` for the versions it was tried on.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import pickle
import socket
import sys
import time
import traceback
import warnings

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch
    import torch._dynamo  # seconds, and `DistributedDataParallel` would import it in every child
    import torch.distributed as dist

    # OpenMP's threads do not survive a fork: with more than one, every child hangs.
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    if HAS_TORCH:
        return
    for item in items:
        if "tests/torch/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="torch is not installed: `allrail[torch]`"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Failed(AssertionError):
    """A rank raised, ended or hung; the message has what each said."""


def run_ranks(body, *, ranks=2, timeout=60, group=True, env=()):
    """Run `body(rank)` in forked processes; return what each returned.

    Args:
        group: Whether each starts with a gloo process group.
        env: More environment variables.
    """
    port = free_port()
    pipes, pids = [], []
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(ranks):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _child(body, rank, ranks, port, write, timeout, group, dict(env))
        os.close(write)
        pipes.append(read)
        pids.append(pid)
    answers = []
    for rank, read in enumerate(pipes):
        with os.fdopen(read, "rb") as pipe:
            data = pipe.read()
        answers.append(pickle.loads(data) if data else ("ended", f"rank {rank} said nothing"))
    for pid in pids:
        os.waitpid(pid, 0)
    errors = [f"rank {rank}: {said}" for rank, (kind, said) in enumerate(answers) if kind != "ok"]
    if errors:
        raise Failed("\n".join(errors))
    return [said for _, said in answers]


def _child(body, rank, ranks, port, write, timeout, group, env):
    code = 1
    try:
        faulthandler.dump_traceback_later(timeout, exit=True)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            GLOO_SOCKET_IFNAME="lo",
        )
        os.environ.update(env)
        warnings.simplefilter("ignore")
        if group:
            dist.init_process_group("gloo", rank=rank, world_size=ranks)
        answer = ("ok", body(rank))
        code = 0
    except BaseException:
        answer = ("raised", traceback.format_exc())
    with os.fdopen(write, "wb") as pipe:
        pickle.dump(answer, pipe)
    time.sleep(0)
    os._exit(code)


@pytest.fixture
def on_ranks():
    return run_ranks
