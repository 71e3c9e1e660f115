"""Ranks for the tests of `allrail.torch`: processes forked from this one, which imports torch once.

Where torch is not installed, every file of tests here is skipped, and says so.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.util
import multiprocessing
import os
import pickle
import signal
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


class RankError(AssertionError):
    """A rank raised, ended or hung; the message has what each said."""


class Ranks:
    """Forked processes with a gloo process group, which run `body(rank, *arguments)` on demand.

    Args:
        body: What a call runs; inherited by the fork, so it may be any function.
        ranks: How many.
        group: Whether each starts with a process group.
        timeout: Seconds that a call may take, on a machine that is busy with other things.
        mortal: Whether a rank may end; what it returned is then the word `ended`.
    """

    def __init__(self, body, *, ranks=2, group=True, timeout=300, mortal=False):
        self.mortal = mortal
        self.body, self.ranks, self.group, self.timeout = body, ranks, group, timeout
        self.workers = []

    def __call__(self, *arguments):
        """Run the body on every rank, and return what each returned."""
        if not self.workers:
            self.start()
        for _, pipe in self.workers:
            pipe.send(arguments)
        until = time.monotonic() + self.timeout
        answers = []
        for rank, (_, pipe) in enumerate(self.workers):
            try:
                heard = pipe.poll(max(0.1, until - time.monotonic()))
                # Not `recv`: torch would have tensors travel as shared memory.
                said = pickle.loads(pipe.recv_bytes()) if heard else ("hung", f"rank {rank} hangs")
                answers.append(said)
            except (EOFError, ConnectionResetError):
                answers.append(("ended", f"rank {rank} has ended"))
            if answers[-1][0] == "hung":
                os.kill(self.workers[rank][0], signal.SIGABRT)  # prints where it is
                time.sleep(0.5)
            if answers[-1][0] != "ok" and not self.mortal:
                until = min(until, time.monotonic() + 2)  # where the others are, for the message
        wrong = [
            f"rank {rank} {kind}: {said}"
            for rank, (kind, said) in enumerate(answers)
            if kind != "ok"
        ]
        if wrong and not self.mortal:
            self.stop()
            raise RankError("\n".join(wrong))
        return [said if kind == "ok" else kind for kind, said in answers]

    def start(self):
        """Fork the ranks; now and then those of gloo wait for each other for good as they begin."""
        for attempt, patience in zip((2, 1, 0), (20, 40, 120), strict=True):
            self.fork()
            until = time.monotonic() + patience
            if all(pipe.poll(max(0.1, until - time.monotonic())) for _, pipe in self.workers):
                for _, pipe in self.workers:
                    with contextlib.suppress(EOFError, ConnectionResetError):  # a call says so
                        pipe.recv_bytes()
                return
            self.stop()
            assert attempt, "ranks have not made a process group three times"

    def fork(self):
        # As torchrun's agent does, this process keeps the store: no port has to be guessed.
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        sys.stdout.flush()
        sys.stderr.flush()
        # A fork copies the locks that other threads hold just then, and nobody gives them back in
        # the child: while the store's thread serves one rank, the next must not be forked.
        forked = multiprocessing.get_context("fork").Event()
        for rank in range(self.ranks):
            mine, theirs = multiprocessing.Pipe()
            pid = os.fork()
            if pid == 0:
                forked.wait()
                self.work(rank, theirs)
            theirs.close()
            self.workers.append((pid, mine))
        forked.set()

    def stop(self):
        for pid, pipe in self.workers:
            pipe.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.workers = []

    def work(self, rank, pipe):
        # What the parent has dropped is not for us to end: a store's thread is not here.
        gc.freeze()
        # Whoever asks first replaces the parent's pool: not two threads at once.
        torch.set_num_threads(1)
        try:
            faulthandler.enable()
            os.environ.update(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(self.ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(self.store.port),
                TORCHELASTIC_USE_AGENT_STORE="True",
                TORCHELASTIC_RESTART_COUNT="0",
                GLOO_SOCKET_IFNAME="lo",
            )
            warnings.simplefilter("ignore")
            if self.group:
                dist.init_process_group("gloo", rank=rank, world_size=self.ranks)
            pipe.send_bytes(b"begun")
            while True:
                arguments = pipe.recv()
                try:
                    answer = ("ok", self.body(rank, *arguments))
                except BaseException:  # noqa: BLE001 - the test's process reports it
                    answer = ("raised", traceback.format_exc())
                pipe.send_bytes(pickle.dumps(answer))
        except EOFError:
            pass  # the test is over
        except BaseException:  # noqa: BLE001 - shown with what the test says
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)


@pytest.fixture
def on_ranks():
    """Run a function on ranks of its own: `on_ranks(body)` returns what each rank returned."""
    pools = []

    def run(body, **options):
        pools.append(Ranks(body, **options))
        return pools[-1]()

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


@pytest.fixture
def whole_graphs():
    """Called by a test of compiled regions that are one graph each, to skip where none can be.

    The compiler of torch 2.5 to 2.7 traces no parameter of a class that it does not know.
    """

    def check():
        if torch.__version__.startswith(("2.5.", "2.6.", "2.7.")):
            pytest.skip("this torch's compiler cuts graphs at scheduled parameters")

    return check
