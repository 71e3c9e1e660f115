"""Mistakes with `allrail.Communicator`: each is one error that says what to do."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

import allrail
from allrail.errors import InputError, TrainingError
from allrail.runtime.environment import OURS


class OnGpu:
    """What arrays of CuPy and of JAX on a GPU say of themselves."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise AssertionError("it is not asked for its memory")


def overlapping(group):
    """What a rank begins first its peer begins last: so it is under way for sure."""
    whole = np.ones(100)
    mine, other = (f"of rank {(group.rank + step) % 2}" for step in range(2))
    handle = group.all_reduce(whole[:60], name=mine)
    try:
        group.all_reduce(whole[40:], name="overlapping")
    finally:
        group.all_reduce(np.ones(60), name=other).wait()
        handle.wait()


def in_two_threads(group):
    group.all_reduce(np.ones(2)).wait()
    raised = []

    def other():
        try:
            group.all_reduce(np.ones(2))
        except InputError as error:
            raised.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    raise raised[0]


def after_close(group):
    group.close()
    group.all_reduce(np.ones(2))


# What is done on both ranks; the error, and what it says.
ALONE = {
    "a list": (lambda g: g.all_reduce([1.0, 2.0]), "`array` is `list`", "numpy.asarray"),
    "nothing": (lambda g: g.all_reduce(None), "`array` is `NoneType`", "DLPack"),
    "a stride": (lambda g: g.all_reduce(np.ones(10)[::2]), "one after the other", "ascontiguous"),
    "columns": (lambda g: g.all_gather(np.ones((2, 3)).T), "one after the other", "contiguous"),
    "one for all": (
        lambda g: g.all_reduce(np.broadcast_to(np.ones(1), (5,))),
        "one after the other",
        "contiguous copy",
    ),
    "overlapping": (overlapping, "has some of this memory", "wait for that one"),
    "flags": (lambda g: g.all_reduce(np.ones(2, bool)), "type bool cannot be summed", "float32"),
    "complex": (lambda g: g.all_reduce(np.ones(2, "c8")), "complex64 cannot be summed", "cast"),
    "objects": (lambda g: g.all_gather(np.array([None])), "are no numbers", "astype"),
    "words": (lambda g: g.broadcast(np.array(["a"])), "are no numbers", "astype"),
    "byte order": (lambda g: g.all_reduce(np.ones(2, ">f4")), "in another order", "astype"),
    "gpu": (lambda g: g.all_reduce(OnGpu()), "in the memory of a GPU", "host memory"),
    "op": (lambda g: g.all_reduce(np.ones(2), op="averag"), "`op` is `averag`", "`average`"),
    "whole average": (
        lambda g: g.all_reduce(np.ones(2, int), op="average"),
        "the average of elements of type int64",
        "float32",
    ),
    "uneven": (lambda g: g.reduce_scatter(np.ones(3)), "its first axis, of 3", "pad it"),
    "uneven rows": (lambda g: g.all_to_all(np.ones((5, 2))), "its first axis, of 5", "reshape"),
    "no axis": (lambda g: g.all_to_all(np.float64(1)), "it has no axis", "reshape"),
    "root": (lambda g: g.broadcast(np.ones(2), root=2), "`root` is `2`", "0 to 1"),
    "two threads": (in_two_threads, "come from two threads", "a name"),
    "closed": (after_close, "it is closed", "before `close`"),
    "priority": (
        lambda g: g.all_reduce(np.ones(2), priority=0.5),
        "`priority` is `0.5`",
        "such as 0",
    ),
    "name": (lambda g: g.all_reduce(np.ones(2), name=3), "`name` is `3`", "text"),
}


def mistake(rank, what):
    with allrail.Communicator() as group:
        try:
            ALONE[what][0](group)
        except InputError as error:
            said = str(error)
        else:
            return "no error"
        if what != "closed":  # the group goes on
            assert group.all_reduce(np.ones(2)).wait().tolist() == [2, 2]
        return said


@pytest.mark.parametrize("what", ALONE)
def test_a_mistake_of_a_rank(what, ranks_of):
    _, message, hint = ALONE[what]
    for said in ranks_of(mistake)(what):
        assert message in said
        assert "\n\nhint: " in said
        assert hint in said.split("\n\nhint: ")[1]


# What each rank does; and what both are told.
BETWEEN = {
    "shape": (lambda g: g.all_reduce(np.ones(4 + g.rank)), "shape differs"),
    "dtype": (lambda g: g.all_gather(np.ones(4, "f4" if g.rank else "i4")), "dtype differs"),
    "kind": (
        lambda g: g.all_gather(np.ones(4)) if g.rank else g.all_reduce(np.ones(8)),
        "kind differs",
    ),
    "root": (lambda g: g.broadcast(np.ones(1 << 20), root=g.rank), "root differs"),
    "by name": (lambda g: g.all_reduce(np.ones(4 + g.rank), name="loss"), "`loss`"),
    "missing": (
        lambda g: g.all_reduce(np.ones(4), name="late") if g.rank == 0 else g.close(),
        "rank 1 has closed its node",
    ),
}


def difference(rank, what):
    with allrail.Communicator(timeout=20.0) as group:
        try:
            handle = BETWEEN[what][0](group)
            if handle is not None:
                handle.wait()
                group.barrier()
        except TrainingError as error:
            return str(error)
        return "no error"


@pytest.mark.parametrize("what", BETWEEN)
def test_ranks_that_differ(what, ranks_of):
    said = ranks_of(difference)(what)
    for one in said[:1] if what == "missing" else said:
        assert BETWEEN[what][1] in one
        assert "hint: " in one


def given_up(rank):
    with allrail.Communicator(timeout=0.2) as group:
        if rank == 1:
            time.sleep(0.6)
            return ""
        try:
            group.all_reduce(np.ones(4), name="alone").wait()
        except TrainingError as error:
            return str(error)


def test_what_is_given_up(on_ranks):
    said = on_ranks(given_up)[0]
    assert "`alone`: it is not over after 0.2 s" in said
    assert "a rank that does not begin it" in said


def dies(rank):
    group = allrail.Communicator()
    group.barrier()
    if rank == 1:
        os._exit(3)
    try:
        group.all_reduce(np.ones(4)).wait()
    except TrainingError as error:
        return str(error)
    return None


def test_a_rank_that_dies(on_ranks):
    said, ended = on_ranks(dies)
    assert ended == "ended"
    assert "rank 1 is lost" in said


def counts(rank):
    if rank == 1:
        os.environ[OURS.ranks] = "3"
    with pytest.raises(InputError) as raised:
        allrail.Communicator()
    return str(raised.value)


def test_ranks_that_count_differently(on_ranks):
    for said in on_ranks(counts):
        assert "rank 0 counts 2 ranks, and rank 1 counts 3" in said
        assert "one launcher" in said


def versions(rank):
    allrail.__version__ = f"0.{rank}"
    with pytest.raises(InputError) as raised:
        allrail.Communicator()
    return str(raised.value)


def test_ranks_of_several_versions(on_ranks):
    for said in on_ranks(versions):
        assert "rank 0 runs allrail 0.0, and rank 1 runs allrail 0.1" in said


def test_tensors_of_torch(on_ranks):
    torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
    table = {
        "gradient": (torch.ones(2, requires_grad=True), "tensor.detach()"),
        "sparse": (torch.ones(2).to_sparse(), "dense"),
        "across": (torch.ones(2, 3).t(), "contiguous"),
        "meta": (torch.ones(2, device="meta"), "host memory"),
    }

    def body(rank):
        with allrail.Communicator() as group:
            told = {}
            for what, (tensor, _) in table.items():
                with pytest.raises(InputError) as raised:
                    group.all_reduce(tensor)
                told[what] = raised.value.hint
            return told

    for told in on_ranks(body):
        for what, (_, hint) in table.items():
            assert hint in told[what], what
