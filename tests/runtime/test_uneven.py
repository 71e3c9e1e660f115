"""All-gather of arrays whose first axes differ, against numpy's `concatenate`.

Over other frameworks: `test_communicator.py`, with its other operations.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import allrail

SIZES = ((3, 0, 5), (0, 0, 0), (4, 4, 4), (0, 7, 0), (1, 2, 100_003))


def mine(rank, rows, dtype="float32"):
    return (np.arange(rows * 2).reshape(rows, 2) + 1000 * rank).astype(dtype)


def against_numpy(rank):
    with allrail.Communicator() as group:
        for sizes in SIZES:
            for dtype in ("float32", "int64", "bool", "complex64"):
                before = mine(rank, sizes[rank], dtype)
                array = before.copy()
                found = group.all_gather(array, uneven=True).wait()
                expected = np.concatenate([mine(one, sizes[one], dtype) for one in range(3)])
                assert found.dtype == expected.dtype
                assert found.shape == expected.shape
                assert (found == expected).all(), (sizes, dtype)
                assert (array == before).all()
        scalars = group.all_gather(np.float32(rank), uneven=True).wait()
        empty_rows = group.all_gather(np.zeros((rank, 0)), uneven=True).wait()
        # What is over is let go of by a thread.
        until = time.monotonic() + 60
        while (
            group._under_way._open or group._under_way._calls._held
        ) and time.monotonic() < until:
            time.sleep(0.01)
        return (
            scalars.tolist(),
            empty_rows.shape,
            len(group._under_way._open),
            len(group._under_way._calls._held),
        )


def test_three_ranks_have_what_numpy_has(on_ranks):
    assert on_ranks(against_numpy, ranks=3) == [([0, 1, 2], (3, 0), 0, 0)] * 3


def in_any_order(rank):
    """Names meet, whatever each rank begins first; several are under way, and nobody waits yet."""
    names = ["a", "b", "c", "d"]
    with allrail.Communicator() as group:
        for turn in range(3):
            order = names[rank + turn :] + names[: rank + turn]
            handles = {
                name: group.all_gather(
                    mine(rank, (rank + turn) * len(name) + names.index(name)),
                    uneven=True,
                    name=name,
                    priority=names.index(name),
                )
                for name in order
            }
            plain = group.all_reduce(np.ones(3), name="plain")
            for name in reversed(order):
                rows = [one + turn + names.index(name) for one in range(3)]
                expected = np.concatenate([mine(one, rows[one]) for one in range(3)])
                assert (handles[name].wait() == expected).all()
                assert handles[name].done()
                assert handles[name].wait() is handles[name].wait()
            assert (plain.wait() == 3).all()
        # Nobody waits for these, and `close` does.
        last = [group.all_gather(mine(rank, rank), uneven=True) for _ in range(5)]
    assert all(one.done() for one in last)
    return [len(one.wait()) for one in last]


def test_names_meet_in_any_order_and_close_waits(on_ranks):
    assert on_ranks(in_any_order, ranks=3) == [[3] * 5] * 3


def other_rows(rank):
    """A mistake that all ranks see, and after which the group goes on."""
    with allrail.Communicator() as group:
        wrong = mine(rank, 3) if rank < 2 else mine(rank, 3, "float64")
        with pytest.raises(allrail.InputError) as told:
            group.all_gather(wrong, uneven=True, name="rows").wait()
        shapes = np.ones((2, 2 if rank else 3))
        with pytest.raises(allrail.InputError, match="rank 1's rows"):
            group.all_gather(shapes, uneven=True).wait()
        group.all_gather(np.ones((2, 2 + rank)), uneven=True)  # nobody waits: `close` says nothing
        total = group.all_gather(mine(rank, rank), uneven=True, name="rows").wait()
    return str(told.value).splitlines()[0], len(total)


def test_other_rows_are_refused_alike(on_ranks):
    said = on_ranks(other_rows, ranks=3)
    for rank, (text, total) in enumerate(said):
        kind = "float64" if rank == 2 else "float32"
        assert text == (
            f"`array` is `rows of {kind} of shape (2,) here`:"
            " rank 2's rows are of another type or shape than rank 0's"
        )
        assert total == 3


def one_does_not_say_so(rank):
    with allrail.Communicator() as group:
        try:
            group.all_gather(np.ones(2), uneven=rank == 0, name="x").wait()
        except allrail.TrainingError as error:
            return str(error)
    return "no error"


def test_ranks_that_differ_in_whether_lengths_may_are_told(on_ranks):
    assert all("differs" in text for text in on_ranks(one_does_not_say_so))


def leaks(rank):
    def once():
        with allrail.Communicator() as group:
            for _ in range(20):
                group.all_gather(mine(rank, rank + 1), uneven=True)

    once()
    before = threading.active_count()
    for _ in range(3):
        once()
    return threading.active_count() - before


def test_its_threads_end(on_ranks):
    assert on_ranks(leaks) == [0, 0]


def alone(rank):
    with allrail.Communicator() as group:
        return group.all_gather(mine(rank, 2), uneven=True).wait().tolist()


def test_one_rank(on_ranks):
    assert on_ranks(alone, ranks=1) == [[[0, 1], [2, 3]]]
