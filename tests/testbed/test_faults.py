"""What breaks, and how it ends: every survivor raises one error that says who and what, in time.

Each fault is injected into rank 1 of 3 in the middle of a training step. What notices it is one
event; every timeout that might do the same is longer than a test may take. How quickly is judged
where the machine has nothing else to do: `REPEAT=20` in the environment (`make faults`) injects
each fault 20 times, within the times below.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.torch import setup  # noqa: E402
from allrail.torch.native import Native  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402
from testbed import Cluster, Network, why_not  # noqa: E402
from testbed.local import LocalJob  # noqa: E402

RANKS, BROKEN, STEPS = 3, 1, 3
ALONE = "REPEAT" in os.environ
TIMES = range(int(os.environ.get("REPEAT", "1")))
NEVER = "600 s"
TIMEOUTS = {"connect": "60 s", "link": NEVER, "silent": NEVER, "heartbeat": "200 ms"}
PATIENCE = 200.0
"""Seconds that something may take on a machine that is busy with other tests."""
LOOPBACK = {"interface": "127.0.0.1", "bandwidth": "20 Gb/s", "latency": "20 us"}


class Moment:
    """A time that all processes see, and which ranks have raised since."""

    def __init__(self):
        self.memory = mmap.mmap(-1, 8 + RANKS)

    def set(self):
        self.memory[:8] = struct.pack("d", time.monotonic())

    def ago(self):
        return time.monotonic() - struct.unpack("d", self.memory[:8])[0]

    def noticed(self, rank):
        self.memory[8 + rank] = 1

    def wait_for_others(self):
        """Until all ranks but the broken one have noticed, or time is up."""
        while sum(self.memory[8:]) < RANKS - 1 and self.ago() < PATIENCE:
            time.sleep(0.01)


SECRET = "5e" * 32
"""Known to all ranks: those in namespaces of their own could not be handed one."""


def native(rank, *, dimension=LOOPBACK, **settings):
    store, _, ranks = store_of_job()
    known = {"dimensions": [{"size": ranks, **dimension}], "timeouts": TIMEOUTS, "secret": SECRET}
    known |= settings
    return Native(rank, ranks, Agreement(store, rank, ranks, "faults"), known)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))


def asks_the_store(*_, **__):
    raise AssertionError("the store was asked while a fault was to be named")


def train(model, optimizer, steps=STEPS):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()


def held():
    """Threads, and files that are sockets or the like: what a node has."""
    gc.collect()
    files, threads = [], []
    # What is listed may be gone when it is read: torch's threads and files come and go.
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            files.append(str(entry.readlink()).partition(":")[0])
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            threads.append((task / "comm").read_text())
    sockets = sum(name in {"socket", "anon_inode"} for name in files)
    return sockets, sum(name.startswith("allrail") for name in threads)


def caught(body, moment):
    """The error that this raises, after how many seconds, and about which tensor."""
    try:
        body()
    except (art.TrainingError, InputError) as error:
        return moment.ago(), str(error), error.field
    return None


def training(rank, moment, fault, *, undo=False, steps=1000, begins=None, **settings):
    """Train until something breaks; then what was raised, and what is left after `release`.

    Once it trains, nothing may ask the store: its host, or a name server that it asks, may be what
    is gone, and who is lost would be named when that has timed out.
    """
    warnings.simplefilter("ignore")
    store = store_of_job()[0]  # its connection stays
    Agreement(store, rank, RANKS, "here").on("all", None, lambda _: True)
    before = held()
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    art.schedule(model, optimizer, transport=native(rank, **settings), undo=undo)
    train(model, optimizer)
    Agreement.on = Agreement._get = asks_the_store
    if begins is not None:
        begins()

    def inject(gradient):
        del gradient
        if rank == BROKEN:
            moment.set()
            fault(moment)

    model[1].weight.register_hook(inject)
    said = caught(lambda: train(model, optimizer, steps), moment)
    moment.noticed(rank)
    made = art.steps(model)
    with contextlib.suppress(art.TrainingError):
        art.release(model)
    after = held()
    del store
    return said, before, after, made


def run(body, timeout=2 * PATIENCE):
    """Rank by rank what a body has returned, or how it ended."""
    job = LocalJob(RANKS)
    job.start(body)
    answers = job.wait(timeout)
    raised = [
        f"rank {rank}: {said}" for rank, (kind, said) in enumerate(answers) if kind == "raised"
    ]
    assert not raised, "\n".join(raised)
    return [value if kind == "returned" else kind for kind, value in answers]


def check(answers, said, seconds, *, survivors=(0, 2), sockets=True):
    for rank in survivors:
        (took, text, field), before, after, _ = answers[rank]
        assert re.search(said, text), text
        assert field or "backward passes" in text, text
        assert took < (seconds if ALONE else PATIENCE), (took, text)
        assert after[1] == before[1] == 0, "threads are left"
        if sockets:
            # One of torch's may have gone in the meantime.
            assert after[0] <= before[0], "sockets are left"


def killed(moment):
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(moment):
    me = os.getpid()
    if os.fork() == 0:  # nobody else ends it, and not before it was missed
        moment.wait_for_others()
        os.kill(me, signal.SIGKILL)
        os._exit(0)
    os.kill(me, signal.SIGSTOP)


def left():
    """As a script that ends in the middle of a step: the interpreter runs its exit handlers."""
    atexit._run_exitfuncs()
    os._exit(3)


def raises(moment):
    """An exception on one rank only, which nobody catches."""
    with contextlib.suppress(ZeroDivisionError):
        1 / 0  # noqa: B018
    left()


def exits(moment):
    try:
        sys.exit(3)
    except SystemExit:
        left()


def interrupted(moment):
    """Ctrl-C on one rank only, which ends its script."""
    # Whoever is started in the background of a shell ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE)
    except KeyboardInterrupt:
        left()


# The fault, what is said of it, within how many seconds, and the timeout that notices it, if any.
ENDS = {
    "SIGKILL": (killed, "rank 1 is lost", 2.0, {}),
    "SIGSTOP": (stopped, "rank 1 is lost: .* has said nothing for 2s", 6.0, {"silent": "2 s"}),
    "exception": (raises, "rank 1", 3.0, {}),
    "sys.exit": (exits, "rank 1", 3.0, {}),
    "Ctrl-C": (interrupted, "rank 1", 3.0, {}),
}


@pytest.mark.parametrize("time_", TIMES)
@pytest.mark.parametrize("name", ENDS)
def test_a_rank_that_ends_or_hangs_is_named_by_all_others(name, time_):
    fault, said, seconds, times = ENDS[name]
    moment = Moment()
    timeouts = {**TIMEOUTS, **times}
    answers = run(lambda rank: training(rank, moment, fault, timeouts=timeouts))
    assert answers[BROKEN] == "ended"
    check(answers, said, seconds)


@pytest.mark.parametrize("time_", TIMES)
def test_ctrl_c_on_all_ends_all(time_):
    moment = Moment()

    def body(rank):
        # Whoever is started in the background of a shell ignores Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        # While it trains: torch's store, where ranks meet before, does not hear of signals.
        begins = partial(signal.setitimer, signal.ITIMER_REAL, 0.3 + 0.01 * rank)
        try:
            said, *_ = training(rank, moment, lambda _: None, steps=1_000_000, begins=begins)
            # Another rank had it first, and has left; this one's may still be on its way.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            pass
        else:
            if said is None or not re.search("rank [012]", said[1]):
                return "not interrupted"
        begun = time.monotonic()
        atexit._run_exitfuncs()
        return time.monotonic() - begun

    for ended in run(body):
        assert isinstance(ended, float), ended
        assert ended < (5 if ALONE else PATIENCE)


def one_tensor(rank, moment, *, name="weight", shape=(40,), dtype=torch.float32, **settings):
    """Exchange one tensor, which rank 1 takes for another."""
    store_of_job()  # its connection stays; how soon it answers is not of interest
    before = held()
    moment.set()
    transport = None

    def exchange():
        nonlocal transport
        transport = native(rank, **settings)
        tensor = torch.ones(shape, dtype=dtype)
        key = transport.register(name, dtype, shape, (1,), 0)
        transport.start()
        transport.wait(key, transport.submit(key, tensor))

    said = caught(exchange, moment)
    if transport is not None:
        transport.close()
    del transport
    return said, before, held(), {}


def test_a_process_meets_the_store_once():
    """Each connection to torch's store asks for names, in the one thread that serves all ranks."""

    def body(rank):
        first, again = store_of_job(), store_of_job()
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
        return first[0] is again[0], store_of_job()[0] is first[0]

    for same, kept in run(body):
        assert same
        assert not kept, "another life of the job has keys of its own"


OTHERS = {
    "shape": (
        {"shape": (41,)},
        r"elements with layout .*; on this one, rank ., it has the shape \(40,\)\n\nhint: ",
    ),
    "dtype": (
        {"dtype": torch.float64},
        "`weight` differs between ranks: rank . calls (.|\n)*float64",
    ),
    "name": ({"name": "bias"}, "rank . has sent rank . (.|\n)*no tensor with key"),
    "plan": ({"partition": "8 KiB"}, "`partition`: rank 1 has `8 KiB`, rank 0 has `4 MiB`"),
}


@pytest.mark.parametrize("time_", TIMES)
@pytest.mark.parametrize("name", OTHERS)
def test_a_rank_that_has_another_tensor_or_plan_is_named(name, time_):
    differs, said = OTHERS[name]
    moment = Moment()
    answers = run(lambda rank: one_tensor(rank, moment, **(differs if rank == BROKEN else {})))
    for rank in (0, 2):
        assert answers[rank][0] is not None, "nothing was raised"
        took, text, _ = answers[rank][0]
        assert re.search(said, text), text
        assert took < (6 if ALONE else PATIENCE), text
        assert "rank 1" in text, text
    assert answers[BROKEN][0] is not None


@pytest.mark.parametrize("time_", TIMES)
def test_workers_of_a_data_loader_change_nothing(time_):
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, index):
            return torch.full((64,), index / 16)

    def body(rank):
        warnings.simplefilter("ignore")
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        art.schedule(model, optimizer, transport=native(rank))
        for _ in range(2):
            for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
        state = [each.sum().item() for each in model.state_dict().values()]
        art.release(model)
        return state

    first, *others = run(body)
    assert isinstance(first, list), first
    assert others == [first] * 2


@pytest.mark.parametrize("undo", [False, True], ids=["mixed", "undone"])
def test_a_lost_rank_leaves_steps_mixed_or_undone(undo):
    """The second layer's step is made, the others' never: its rank is lost in between."""

    def body(rank):
        warnings.simplefilter("ignore")
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters())
        transport = native(rank)
        grouping = setup.Grouping
        setup.Grouping = lambda: grouping(pack=0)  # each parameter is stepped by itself
        art.schedule(model, optimizer, transport=transport, undo=undo)
        train(model, optimizer)
        art.synchronize(model)
        before = [each.clone() for each in model.parameters()]
        moments = [optimizer.state[each]["exp_avg"].clone() for each in model.parameters()]
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        transport = art._of(model)[0].observed.watched
        is_done, transport.is_done = transport.is_done, lambda *_: False
        optimizer.step()
        stepper = art._of(model)[0]._steppers[0]
        stepper.touch([art._of(model)[0]._slots[model[1].weight]])
        made = art.steps(model)

        def wait(*_):
            raise art.TrainingError("rank 1 is lost", hint="look at it")

        transport.wait, transport.is_done = wait, is_done
        error = caught(model.state_dict, Moment())
        after = art.steps(model)
        parameters = list(model.parameters())
        state = dict(dict.items(optimizer.state))  # whoever asks it for one makes pending steps
        with torch._C.DisableTorchFunctionSubclass():  # as does whoever reads a parameter
            same = [torch.equal(a, b.detach()) for a, b in zip(before, parameters, strict=True)]
            kept = [
                torch.equal(a, state[each]["exp_avg"])
                for a, each in zip(moments, parameters, strict=True)
            ]
        again = caught(lambda: len(model.state_dict()), Moment())
        del transport.wait
        with contextlib.suppress(art.TrainingError):
            art.release(model)
        return made, error[1], after, all(same), all(kept), again is None

    for made, said, after, same, kept, free in run(body):
        assert made["1.weight"] == STEPS + 1
        assert {count for name, count in made.items() if name != "1.weight"} == {STEPS}
        assert "rank 1 is lost" in said
        if undo:
            assert set(after.values()) == {STEPS}
            assert f"those of step {STEPS} again" in said
        else:
            assert after == made
            assert f"have made {STEPS} steps and the others {STEPS + 1}" in said
        assert (same, kept, free) == (undo, undo, undo)


@pytest.mark.parametrize("time_", TIMES)
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_lost_link_is_noticed_on_both_sides(time_):
    cluster = Cluster(RANKS, [Network(100_000_000)])
    moment = Moment()

    def cut(moment):
        subprocess.run(["ip", "link", "set", cluster.device(), "down"], check=True)

    def work(rank):
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(RANKS),
            LOCAL_RANK="0",
            MASTER_ADDR=cluster.address(0),
            MASTER_PORT="29500",
        )
        link = {"interface": cluster.address(rank), "bandwidth": "100 Mb/s", "latency": "50 us"}
        times = {**TIMEOUTS, "link": "2 s"}
        answer = training(rank, moment, cut, dimension=link, timeouts=times, shared_memory=False)
        time.sleep(1.0 if rank == 0 else 0.0)  # it keeps the store
        return answer

    answers = cluster.run(work, timeout=2 * PATIENCE).results
    # Rank 0 keeps the store: its connections are torch's, and come and go.
    check(answers, "rank 1", 8.0, survivors=(0,), sockets=False)
    check(answers, "rank 1", 8.0, survivors=(2,))
    assert re.search("rank [02]", answers[BROKEN][0][1])
