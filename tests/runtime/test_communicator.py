"""The same body over every framework: results, what they are, and who may be written to."""

from __future__ import annotations

import array
import contextlib
import gc
import multiprocessing
import threading
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import allrail
from allrail.runtime import view


def every_operation(framework, rank):
    make = framework.make
    kind = type(make([0], "float32"))
    with allrail.Communicator() as group:
        assert (group.rank, group.ranks, group.local_rank) == (rank, 2, rank)
        grid = make([[0, 1, 2], [3, 4, 5]], "float32") + rank
        reduced = group.all_reduce(grid).wait()
        averaged = group.all_reduce(make([rank, 3], "float32"), op="average").wait()
        half = make([rank, 3], "bfloat16" if framework.has_bfloat16 else "float16")
        halves = group.all_reduce(half, op="average").wait()
        whole = make([[1, 2], [3, 4]], "int32") * (rank + 1)
        part = group.reduce_scatter(whole).wait()
        gathered = group.all_gather(make([[rank, 7]], "int32")).wait()
        scalars = group.all_gather(make(rank, "int32")).wait()
        flags = group.all_gather(make([rank == 1], "bool")).wait()
        cast = group.broadcast(make([rank == 1, rank == 0], "bool"), root=1).wait()
        rows = make([[10 * rank], [10 * rank + 1]], "int32")
        exchanged = group.all_to_all(rows).wait()
        nothing = group.all_reduce(make([], "float32")).wait()
        group.barrier()
        results = [reduced, averaged, part, gathered, scalars, flags, cast, exchanged, nothing]
        assert all(isinstance(one, kind) for one in results), [type(one) for one in results]
        if framework.is_immutable:
            assert grid.tolist() == [[rank, 1 + rank, 2 + rank], [3 + rank, 4 + rank, 5 + rank]]
        else:
            assert reduced is grid
        assert whole.tolist() == [[rank + 1, 2 * (rank + 1)], [3 * (rank + 1), 4 * (rank + 1)]]
        assert rows.tolist() == [[10 * rank], [10 * rank + 1]]
        assert halves.dtype == half.dtype
        assert [float(one) for one in halves] == [0.5, 3.0]
    return [one.tolist() for one in results]


def test_every_operation_over_every_framework(framework, on_ranks):
    said = on_ranks(partial(every_operation, framework))
    for rank in range(2):
        reduced, averaged, part, gathered, scalars, flags, cast, exchanged, nothing = said[rank]
        assert reduced == [[1, 3, 5], [7, 9, 11]]
        assert averaged == [0.5, 3]
        assert part == [[[3, 6]], [[9, 12]]][rank]
        assert gathered == [[0, 7], [1, 7]]
        assert scalars == [0, 1]
        assert flags == [False, True]
        assert cast == [True, False]
        assert exchanged == [[[0], [10]], [[1], [11]]][rank]
        assert nothing == []


def any_order(rank):
    names = ["loss", "weight", "bias", "scale"]
    with allrail.Communicator() as group:
        found = {}
        for generation in range(3):
            mine = names[rank + generation :] + names[: rank + generation]
            arrays = {name: np.full(1000 * len(name), rank + len(name)) for name in mine}
            handles = {
                name: group.all_reduce(arrays[name], name=name, priority=len(name))
                for name in (mine if rank else reversed(mine))
            }
            group.barrier()
            for name in sorted(names):
                assert handles[name].wait() is arrays[name]
                assert handles[name].done()
                assert handles[name].wait() is arrays[name]
                assert (arrays[name] == arrays[name][0]).all()
                found[name] = int(arrays[name][0])
        return found


def test_names_meet_in_any_order_and_from_any_thread(on_ranks):
    expected = {"loss": 11, "weight": 15, "bias": 11, "scale": 13}
    # Of three ranks: 0 + 1 + 2, and thrice the length.
    expected = {name: 3 + 3 * len(name) for name in expected}
    assert on_ranks(any_order, ranks=3) == [expected] * 3


def from_threads(rank):
    with allrail.Communicator() as group:
        results = {}

        def work(name):
            for _ in range(20):
                results[name] = group.all_gather(np.array([rank]), name=name).wait().tolist()

        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


def test_threads_with_names(on_ranks):
    assert on_ranks(from_threads) == [{"a": [0, 1], "b": [0, 1], "c": [0, 1]}] * 2


def several_at_a_time(rank):
    with allrail.Communicator() as group:
        arrays = [np.full(50_000, rank + number, np.float64) for number in range(40)]
        handles = [group.all_reduce(array, priority=number) for number, array in enumerate(arrays)]
        for number, handle in reversed(list(enumerate(handles))):
            assert (handle.wait() == 2 * number + 1).all()
        # Nobody waits for these, and `close` does.
        last = np.full(100_000, rank, np.float32)
        group.all_reduce(last)
    assert (last == 1).all()
    return len(group._under_way._calls._held), len(group._under_way._open)


def test_several_at_a_time_and_nothing_is_kept(on_ranks):
    assert on_ranks(several_at_a_time) == [(0, 0)] * 2


def threads_and_files():
    return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))


def leaks(rank):
    with allrail.Communicator() as group:
        group.barrier()
    gc.collect()
    before = threads_and_files()
    for _ in range(3):
        with allrail.Communicator() as group:
            group.barrier()
    with contextlib.suppress(ZeroDivisionError), allrail.Communicator() as group:
        group.all_reduce(np.zeros(10))
        1 / (group.ranks - 2)  # a mistake of the script's
    gc.collect()
    return before == threads_and_files()


def test_threads_and_files_end_with_it(on_ranks):
    assert on_ranks(leaks) == [True, True]


def buffers(rank):
    with allrail.Communicator() as group:
        plain = array.array("f", [1, 2])
        assert group.all_reduce(plain).wait() is plain
        raw = bytearray([rank, 1])
        group.all_reduce(raw).wait()
        fixed = group.all_reduce(bytes([rank, 1])).wait()
        frozen = np.ones(2)
        frozen.flags.writeable = False
        summed = group.all_reduce(frozen).wait()
        scalar = group.all_reduce(np.float32(rank)).wait()
        arrays = [plain, raw, fixed, frozen, summed, scalar]
        return [np.asarray(memoryview(one)).tolist() for one in arrays]


def test_buffers_and_what_is_read_only(on_ranks):
    assert on_ranks(buffers) == [[[2, 4], [1, 2], [1, 2], [1, 1], [2, 2], 1.0]] * 2


def alone(rank):
    with allrail.Communicator() as group:
        array = np.arange(4.0)
        assert group.all_reduce(array, op="average", name="x").wait() is array
        group.barrier()
        parts = [group.reduce_scatter(array), group.all_gather(array), group.all_to_all(array)]
        return [one.wait().tolist() for one in parts]


def test_one_rank(on_ranks):
    assert on_ranks(alone, ranks=1) == [[[0, 1, 2, 3]] * 3]


def late(warned, rank):
    times = {"heartbeat": "50 ms", "warn": "2 s"}
    told = []

    def hear(message, *_):
        told.append(str(message))
        warned.set()

    with allrail.Communicator(job={"schema_version": 1, "timeouts": times}) as group:
        if rank == 1:
            assert warned.wait(120)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = hear
            handle = group.all_reduce(np.ones(3), name="x")
            assert rank == 1 or not handle.done()
            handle.wait()
        return told


def test_a_late_rank_is_warned_of_and_no_error(on_ranks):
    first, _ = on_ranks(partial(late, multiprocessing.get_context("fork").Event()))
    assert len(first) == 1
    assert first[0].startswith("`x`: rank 1 did not call it; rank 0 waits for it")


def autograd(rank):
    import torch

    with allrail.Communicator() as group:
        weight = torch.ones(3, requires_grad=True)
        factor = torch.ones(3)
        loss = (weight * factor).sum()
        group.all_reduce(factor).wait()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        return True


def test_autograd_learns_that_a_tensor_was_written_to(on_ranks):
    pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
    assert on_ranks(autograd) == [True, True]


def whole_of(framework, array):
    return [[float(one) for one in row] for row in array.tolist()]


def more_operations(framework, rank):
    make, ranks = framework.make, 3
    types = ["float32", "int32", *(["bfloat16"] if framework.has_bfloat16 else [])]
    with allrail.Communicator() as group:
        out = []
        for dtype in types:
            for op in ("max", "min", "product"):
                array = make([[rank, 2 - rank], [3, -rank]], dtype)
                out.append(whole_of(framework, group.all_reduce(array, op=op).wait()))
                rows = make([[rank + one] for one in range(ranks)], dtype)
                out.append(whole_of(framework, group.reduce_scatter(rows, op=op).wait()))
        gathered = group.gather(make([[rank, 7]], "int32"), root=1).wait()
        assert (gathered is None) == (rank != 1)
        own = make([[rank + 0.5, row] for row in range(rank + 1)], "float32")
        rows = group.all_gather(own, uneven=True).wait()
        assert isinstance(rows, type(own))
        expected = [[0.5, 0], [1.5, 0], [1.5, 1], [2.5, 0], [2.5, 1], [2.5, 2]]
        assert rows.tolist() == expected
        mine = group.scatter(make([[1], [2], [3]], "int32") * (rank + 1), root=2, name="s").wait()
        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        sent = group.send(make([[rank, 5]], "int32"), to=after, tag=rank)
        got = group.recv(make([[0, 0]], "int32"), source=before, tag=before)
        out += [mine.tolist(), got.wait().tolist(), got.source]
        sent.wait()
        if rank == 0:
            anyone = [group.recv(make([[0]], "float32"), tag=9) for _ in range(2)]
            out.append(sorted((one.wait().tolist()[0][0], one.source) for one in anyone))
        else:
            group.send(make([[10 * rank]], "float32"), to=0, tag=9).wait()
        if rank != 1:
            with group.part([2, 0]) as pair, pair.part([0, 1]) as again:
                assert pair.members == again.members == (0, 2)
                assert (pair.rank, pair.ranks) == (rank // 2, 2)
                total = pair.all_reduce(make([[rank + 1]], "int32")).wait()
                alone = again.part([pair.rank])
                out.append(
                    [total.tolist(), alone.all_gather(make([[rank]], "int32")).wait().tolist()]
                )
                alone.close()
    return out


def test_more_operations_over_every_framework(framework, on_ranks):
    said = on_ranks(partial(more_operations, framework), ranks=3)
    for rank, out in enumerate(said):
        reduced = {
            "max": [[2, 2], [3, 0]],
            "min": [[0, 0], [3, -2]],
            "product": [[0, 0], [27, 0]],
        }
        parts = [range(one, one + 3) for one in range(3)][rank]
        scattered = {"max": max(parts), "min": min(parts), "product": np.prod(parts)}
        count = len(out[:-3]) - (2 if rank == 0 else 1 if rank == 2 else 0)
        for place in range(0, count, 2):
            op = ("max", "min", "product")[place // 2 % 3]
            assert out[place] == reduced[op], op
            assert out[place + 1] == [[scattered[op]]], op
        mine, got, source, *rest = out[count:]
        assert mine == [[3 * (rank + 1)]]
        assert (got, source) == ([[(rank - 1) % 3, 5]], (rank - 1) % 3)
        if rank == 0:
            assert rest.pop(0) == [(10.0, 1), (20.0, 2)]
        assert rest == ([] if rank == 1 else [[[[4]], [[rank]]]])


def with_gaps(framework, rank):
    torch = __import__("torch")
    view._say_once.cache_clear()  # another test of the process that forked may have heard it
    with warnings.catch_warnings(record=True) as caught, allrail.Communicator() as group:
        warnings.simplefilter("always")
        base = np.zeros((4, 6), "float32")
        every_second = base[::2, ::-2]
        every_second += np.arange(6.0).reshape(2, 3) + rank
        assert group.all_reduce(every_second).wait() is every_second
        across = torch.arange(6.0, dtype=torch.bfloat16).view(2, 3).t()
        group.broadcast(across.mul_(rank), root=1).wait()
        gathered = group.all_gather(np.arange(6).reshape(2, 3).T + rank).wait()
        spread = np.broadcast_to(np.float32(rank), (3,))
        summed = group.all_reduce(spread).wait()
    said = [one for one in caught if "do not lie one after the other" in str(one.message)]
    return base.tolist(), across.tolist(), gathered.tolist(), summed.tolist(), len(said)


def test_arrays_with_gaps_are_copied_and_it_is_said_once(on_ranks):
    pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
    for base, across, gathered, summed, said in on_ranks(partial(with_gaps, None)):
        expected = np.zeros((4, 6))
        expected[::2, ::-2] = 2 * np.arange(6.0).reshape(2, 3) + 1
        assert base == expected.tolist()
        assert across == [[0, 3], [1, 4], [2, 5]]
        assert gathered == [[0, 3], [1, 4], [2, 5], [1, 4], [2, 5], [3, 6]]
        assert summed == [1, 1, 1]
        assert said == 1
