"""Tensors that are given other memory while it is in flight: a right result, or an error; no crash.

Each case is a process of its own, since what goes wrong here ends one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import textwrap
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
np = pytest.importorskip("numpy")

from allrail import _core  # noqa: E402
from allrail.base.errors import InputError, TrainingError  # noqa: E402
from allrail.runtime.arrays import view_of  # noqa: E402
from allrail.torch.memory import memory_of  # noqa: E402
from testbed.local import LocalJob  # noqa: E402

M_MMAP_THRESHOLD = -3
"""Of glibc's `mallopt`: from which size on memory is mapped on its own."""
N = 1_000_000
"""Elements: large enough that their memory goes back to the system once it is freed."""

SWAPS = {
    "data": "t.data = torch.zeros(3)",
    "set": "t.set_(torch.zeros(3))",
    "resize": f"t.resize_({4 * N})",
    "resize less": "t.resize_(5)",
    "resize as": f"t.resize_as_(torch.empty({4 * N}))",
    "storage": "t.untyped_storage().resize_(0)",
    "typed storage": "t._typed_storage()._resize_(0)",
    "swap": "torch.utils.swap_tensors(t, torch.zeros(3))",
    "delete": "del t",
    "delete all": "del t; keep.clear()",
}

BODY = """import gc, os, sys, warnings
import torch
import torch.distributed as dist
warnings.simplefilter("ignore")
from allrail.base.errors import InputError, TrainingError
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
{setup}
for turn in range(6):
    t = torch.full(({n},), rank + 1.0)
    alias = t.detach() if turn % 2 else None
    keep = []
    {begin}
    refused = None
    try:
        {swap}
    except (TrainingError, RuntimeError) as error:
        refused = error
    gc.collect()
    junk = [torch.full(({n},), 7.0) for _ in range(2)]
    try:
        {wait}
        raised = False
    except (TrainingError, InputError, RuntimeError) as error:
        raised = True
    # An exchange that was over before is no reason to refuse: then the alias has no memory.
    if alias is not None and alias.untyped_storage().nbytes():
        assert (alias == 3.0).all(), "what others still hold has the result"
    if refused is not None and not raised:
        assert (t == 3.0).all()
    assert all((one == 7.0).all() for one in junk), "memory of others was written to"
    del junk, alias
print("whole", flush=True)
"""

KINDS = {
    "backend": (
        'import allrail.torch.backend; dist.init_process_group("allrail")',
        "work = dist.all_reduce(t, async_op=True)",
        "work.wait()",
    ),
    "communicator": (
        "import allrail; group = allrail.Communicator()",
        "handle = group.all_reduce(t, name='x')",
        "handle.wait()",
    ),
    "schedule": (
        f"""from allrail.torch.native import Native
from allrail.runtime.agreement import Agreement
from allrail.torch.store import store_of_job
store, _, _ = store_of_job()
native = Native(rank, 2, Agreement(store, rank, 2, 'x'))
key = native.register('w', torch.float32, ({N},), (1,), 0)
native.start()""",
        "generation = native.submit(key, t)",
        "native.wait(key, generation)",
    ),
}


def run_on_two_ranks(body: str, folder: Path) -> list[tuple[str, str]]:
    """Run code on forked ranks; how each ended, and what it printed."""

    def work(rank: int) -> None:
        # As in a process that has just begun: what is large goes back to the system when freed.
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 128 << 10)
        with (folder / f"{rank}.log").open("w") as log:
            os.dup2(log.fileno(), 2)
            with contextlib.redirect_stdout(log):
                exec(compile(body, "body", "exec"), {})

    job = LocalJob(2)
    job.start(work)
    answers = job.wait(300)
    return [
        (kind, f"{(folder / f'{rank}.log').read_text()}{said or ''}")
        for rank, (kind, said) in enumerate(answers)
    ]


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_way_to_swap_a_storage_in_flight_ends_the_process(kind: str, tmp_path: Path) -> None:
    setup, begin, wait = KINDS[kind]
    # One process for all ways: an exchange that has failed must not hurt the next.
    turns = []
    head, _, loop = BODY.partition("for turn in range(6):")
    for name, swap in SWAPS.items():
        part = "for turn in range(2):" + loop.partition('print("whole"')[0]
        part = part.format(n=N, begin=begin, wait=wait, swap=swap)
        turns.append(f"print({name!r}, flush=True)\n{part}")
    body = "\n".join([head.format(setup=setup), *turns, 'print("whole", flush=True)'])
    answers = run_on_two_ranks(textwrap.dedent(body), tmp_path)
    # Of one that fails the other knows only that it is gone, so both are shown.
    shown = "\n".join(f"rank {rank}, {one[0]}: {one[1]}" for rank, one in enumerate(answers))
    for kind, said in answers:
        assert (kind, said.splitlines()[-1]) == ("returned", "whole"), shown


@pytest.fixture
def in_flight():
    """Two nodes of one process; `begin` has rank 0 wait for rank 1."""
    dimension = {"size": 2, "bandwidth": "10 Gb/s", "latency": "20 us"}
    settings = [{"rank": rank, "ranks": 2, "dimensions": [dimension]} for rank in range(2)]
    nodes = [_core.Node(json.dumps(one)) for one in settings]
    table = [node.addresses() for node in nodes]
    threads = [threading.Thread(target=node.connect, args=(table,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in nodes:
        node.start()
    yield nodes
    for node in nodes:
        node.close()


def finish(nodes, ticket, dtype="float32", elements=1000):
    other = _core.Memory.of_tensor(torch.ones(elements, dtype=getattr(torch, dtype)))
    mine = nodes[1].call("all_reduce", other, dtype)
    assert nodes[0].wait_call(ticket, 30.0)
    assert nodes[1].wait_call(mine, 30.0)


def test_a_node_keeps_memory_that_nobody_else_has(in_flight) -> None:
    tensor = torch.ones(1000)
    ticket = in_flight[0].call("all_reduce", _core.Memory.of_tensor(tensor), "float32")
    alias, where = tensor.detach(), tensor.data_ptr()
    assert _core.in_flight(where, 1)
    assert not _core.in_flight(where + 4000, 1)
    del tensor
    gc.collect()
    finish(in_flight, ticket)
    assert (alias == 2.0).all()
    assert not _core.in_flight(where, 4000)


def test_an_array_of_numpy_is_not_resized_while_a_node_has_it(in_flight) -> None:
    array = np.ones(1000, np.float32)
    ticket = in_flight[0].call("all_reduce", view_of(array).memory().held, "float32")
    with pytest.raises(ValueError, match="resize"):
        array.resize(10_000_000, refcheck=False)
    finish(in_flight, ticket)
    assert (array == 2.0).all()
    gc.collect()
    array.resize(2000, refcheck=False)


def test_a_buffer_is_not_resized_while_a_node_has_it(in_flight) -> None:
    array = bytearray(np.ones(1000, np.float32).tobytes())
    ticket = in_flight[0].call("all_reduce", view_of(array).memory().held, "float32")
    with pytest.raises(BufferError):
        array.clear()
    finish(in_flight, ticket)
    assert (np.frombuffer(array, np.float32) == 2.0).all()


def test_nothing_but_memory_is_taken(in_flight) -> None:
    node = in_flight[0]
    for wrong in (0, 12345, b"text", "text", None, object()):
        with pytest.raises(TypeError):
            node.call("all_reduce", wrong, "float32")
    for wrong in (1, "text", np.ones(3), object()):
        with pytest.raises(TypeError):
            _core.Memory.of_tensor(wrong)
    for wrong in (b"read only", memoryview(bytearray(8))[::2]):
        with pytest.raises(BufferError):
            _core.Memory.of_buffer(wrong)
    with pytest.raises(BufferError):
        _core.Memory.of_tensor(torch.ones(4, 4)[:, 1])
    with pytest.raises(TypeError):
        _core.Memory()


def test_a_capsule_is_taken_once() -> None:
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(3))
    assert _core.Memory.of_dlpack(capsule).shape == (3,)
    with pytest.raises(ValueError, match="used before"):
        _core.Memory.of_dlpack(capsule)


def test_a_tensor_whose_storage_was_freed_is_refused() -> None:
    freed, cut = torch.ones(100), torch.ones(100)
    freed.untyped_storage().resize_(0)
    cut.untyped_storage().resize_(40)
    part = torch.ones(100)[50:]
    part.untyped_storage().resize_(240)
    for tensor in (freed, cut, part):
        with pytest.raises(InputError):
            memory_of(tensor)


def test_another_type_than_was_registered_is_refused() -> None:
    node = _core.Node(json.dumps({"rank": 0, "ranks": 1}))
    node.connect([node.addresses()])
    key = node.register("w", "float64", [1000], [1], 0)
    node.start()
    with pytest.raises(ValueError, match="8000 bytes"):
        node.submit(key, _core.Memory.of_tensor(torch.ones(1000)))
    node.close()


def test_what_does_not_free_a_storage_is_not_refused(in_flight) -> None:
    tensor = torch.ones(1000)
    ticket = in_flight[0].call("all_reduce", _core.Memory.of_tensor(tensor), "float32")
    tensor.resize_(10, 100).resize_(1000)
    torch.ones(5).resize_(5000)
    with pytest.raises(TrainingError, match="resized"):
        tensor.resize_(1001)
    with pytest.raises(TrainingError, match="resized"):
        tensor[:10].untyped_storage().resize_(0)
    with pytest.raises(TrainingError, match="resized"):
        tensor.untyped_storage().resize_(4000)
    finish(in_flight, ticket)
    tensor.resize_(1001)
