"""Mistakes with `allrail.Communicator`: each is one error that says what to do.

The table is `communicator.txt`: what is done on both ranks, and what both are told, word for word.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import allrail
from allrail import _core
from allrail.base.errors import InputError, TrainingError
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
        group.all_reduce(np.ones(1), name="both have tried").wait()
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


TABLE = Path(__file__).with_name("communicator.txt").read_text()
ROWS = re.findall(r"^>>> (.+)\n(.+)\n\nhint: (.+)$", TABLE, re.MULTILINE)
NAMES = {
    "np": np,
    "OnGpu": OnGpu,
    "overlapping": overlapping,
    "in_two_threads": in_two_threads,
    "after_close": after_close,
}


def test_the_table_is_read_whole():
    assert len(ROWS) == TABLE.count("hint: ") == TABLE.count(">>> ") == 38


def mistake(rank, done):
    """What is raised: its kind and its words."""
    with allrail.Communicator(timeout=20.0) as group:
        try:
            handle = eval(done, NAMES, {"group": group})
            handle.wait()
            group.barrier()
        except InputError as error:
            if "close" not in done:  # the group goes on
                assert group.all_reduce(np.ones(2)).wait().tolist() == [2, 2]
            return "InputError", str(error)
        except TrainingError as error:
            return "TrainingError", str(error)
        return "nothing", ""


@pytest.mark.parametrize(("done", "message", "hint"), ROWS, ids=[done for done, *_ in ROWS])
def test_a_mistake(done, message, hint, ranks_of):
    # Where ranks differ the job ends: what two ranks do after it is another's business.
    kind = "TrainingError" if "group.rank" in done else "InputError"
    told = re.escape(f"{message}\n\nhint: {hint}").replace(r"\.\.\.", ".+")
    for raised, said in ranks_of(mistake)(done):
        assert raised == kind
        assert re.fullmatch(told, said), said


def closes_early(rank):
    with allrail.Communicator(timeout=20.0) as group:
        if rank == 1:
            return ""
        with pytest.raises(TrainingError) as raised:
            group.all_reduce(np.ones(4), name="late").wait()
        return str(raised.value)


def test_a_rank_that_closes_before_the_others(on_ranks):
    said = on_ranks(closes_early)[0]
    assert said.startswith("`late`: rank 1 has closed its node, and exchange 1 of tensor `late` ")
    assert said.endswith("hint: every rank must submit the same tensors as often before it closes")


def has_nothing(rank):
    """One rank has an empty array, and is gone as soon as its call is over."""
    with allrail.Communicator(timeout=20.0) as group:
        try:
            group.all_reduce(np.ones(0 if rank else 4), name="loss").wait()
        except TrainingError as error:
            return str(error)
    return "it went through"


def test_a_rank_with_an_empty_array_meets_the_others(on_ranks):
    for said in on_ranks(has_nothing):
        assert said.startswith("`loss` differs between ranks: rank 0 calls all_reduce of 4 ")
        assert "rank 1 calls all_reduce of 0 elements of float64" in said


def test_arrays_that_are_empty_on_all_ranks_are_no_mistake(on_ranks):
    def body(rank):
        with allrail.Communicator(timeout=20.0) as group:
            kinds = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
            shapes = [getattr(group, kind)(np.ones((0, 3))).wait().shape for kind in kinds]
            shapes += [
                group.all_reduce(np.ones(0), op=op).wait().shape for op in ("max", "average")
            ]
            return shapes, group.all_reduce(np.ones(2)).wait().tolist()

    for shapes, after in on_ranks(body):
        assert shapes == [(0, 3)] * 5 + [(0,)] * 2
        assert after == [2.0, 2.0]


MESSAGES = {
    "as many bytes": (4, "f4", 4, "i4", "16 bytes of float32 with tag 0; 16 of int32 are received"),
    "another width": (4, "f4", 2, "f8", "16 bytes of float32 with tag 0; 16 of float64 are"),
    "another size": (4, "f4", 3, "f4", "16 bytes of float32 with tag 0; 12 of float32 are"),
    "nothing": (4, "f4", 0, "f4", "16 bytes of float32 with tag 0; 0 of float32 are received"),
    "bytes": (4, "u1", 4, "?", "4 bytes of uint8 with tag 0; 4 of bool are received"),
}


@pytest.mark.parametrize("source", [0, None])
@pytest.mark.parametrize("early", [True, False])
def test_a_message_of_another_type_is_not_taken_for_numbers(source, early, on_ranks):
    """Whether it comes before it is asked for or after; the next message is right."""

    def body(rank):
        said = []
        with allrail.Communicator(timeout=20.0) as group:
            for n, sent, m, awaited, _ in MESSAGES.values():
                if rank == 0:
                    group.send(np.ones(n, sent), to=1).wait()
                    group.send(np.full(2, 5.0), to=1, tag=1).wait()
                    continue
                if early:  # what comes first is kept, as it has another tag
                    later = group.recv(np.zeros(2), source=source, tag=1).wait()
                try:
                    group.recv(np.ones(m, awaited), source=source).wait()
                    said.append("it went through")
                except TrainingError as error:
                    said.append(str(error))
                if not early:
                    later = group.recv(np.zeros(2), source=source, tag=1).wait()
                assert later.tolist() == [5.0, 5.0]
            group.barrier()
        return said

    _, said = on_ranks(body)
    for text, row in zip(said, MESSAGES.values(), strict=True):
        assert text.startswith(f"rank 0 sends {row[-1]}"), text


def given_up(over, rank):
    with allrail.Communicator(timeout=0.2) as group:
        if rank == 1:
            assert over.wait(120)
            return ""
        try:
            group.all_reduce(np.ones(4), name="alone").wait()
        except TrainingError as error:
            return str(error)
        finally:
            over.set()


def test_what_is_given_up(on_ranks):
    said = on_ranks(partial(given_up, multiprocessing.get_context("fork").Event()))[0]
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
    _core.version = lambda: f"0.{rank}"
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
        "meta": (torch.ones(2, device="meta"), "host memory"),
        "conjugated": (torch.ones(2, dtype=torch.complex64).conj(), "resolve_conj()"),
        "negated": (torch.ones(2, dtype=torch.complex64).conj().imag, "resolve_neg()"),
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
