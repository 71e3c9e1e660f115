"""Laws of the backend's calls: none waits, a refusal comes first, and who is late is named."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
pytestmark = pytest.mark.skipif(VERSION < (2, 6), reason="the backend needs torch 2.6 or later")


def begin(backend="allrail", **options):
    import allrail.torch.backend  # noqa: F401

    dist.init_process_group(backend, **options)


def numbers(size, start=0.0):
    return torch.arange(float(size)) + start


def every_call(rank, ranks):
    """Each collective, begun: by the method of the group that does it."""
    other = 1 - rank
    shared = [numbers(2), numbers(3)]
    uneven_out = numbers(sum((1, 2)) if rank == 0 else 4)
    sizes = ([1, 2], [1, 2]) if rank == 0 else ([2, 2], [2, 2])
    rows = [torch.empty(2) for _ in range(ranks)]
    asynchronous = {"async_op": True}
    group = dist.group.WORLD
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(ranks)]
    yield "allreduce", lambda: dist.all_reduce(numbers(4), **asynchronous)
    yield "allreduce", lambda: dist.all_reduce(numbers(4), dist.ReduceOp.MAX, **asynchronous)
    yield "allreduce_coalesced", lambda: dist.all_reduce_coalesced(shared, **asynchronous)
    yield "reduce", lambda: dist.reduce(numbers(4), 1, **asynchronous)
    yield (
        "reduce_scatter_single",
        lambda: dist.reduce_scatter_tensor(torch.empty(2), numbers(4), **asynchronous),
    )
    yield (
        "reduce_scatter_single_coalesced",
        lambda: group.reduce_scatter_single_coalesced([torch.empty(2)], [numbers(4)]),
    )
    yield (
        "reduce_scatter",
        lambda: dist.reduce_scatter(
            torch.empty(rank + 1), [numbers(1), numbers(2)], **asynchronous
        ),
    )
    yield "broadcast", lambda: dist.broadcast(numbers(4), 1, **asynchronous)
    yield "allgather", lambda: dist.all_gather(rows, numbers(2), **asynchronous)
    yield (
        "allgather_coalesced",
        lambda: dist.all_gather_coalesced(lists, shared, **asynchronous),
    )
    yield (
        "all_gather_single",
        lambda: dist.all_gather_into_tensor(torch.empty(4), numbers(2), **asynchronous),
    )
    yield (
        "all_gather_single_coalesced",
        lambda: group.all_gather_single_coalesced([torch.empty(4)], [numbers(2)]),
    )
    yield (
        "gather",
        lambda: dist.gather(numbers(2), rows if rank == 0 else None, 0, **asynchronous),
    )
    yield "gather_single", lambda: group.gather_single(torch.empty(4), numbers(2), root(0))
    yield (
        "scatter",
        lambda: dist.scatter(torch.empty(2), rows if rank == 1 else None, 1, **asynchronous),
    )
    yield (
        "all_to_all_single",
        lambda: dist.all_to_all_single(torch.empty(4), numbers(4), **asynchronous),
    )
    yield (
        "all_to_all_single",
        lambda: dist.all_to_all_single(uneven_out, numbers(sum(sizes[1])), *sizes, **asynchronous),
    )
    yield "alltoall", lambda: dist.all_to_all(rows, [numbers(2), numbers(2)], **asynchronous)
    yield "barrier", lambda: dist.barrier(**asynchronous)
    yield "send", lambda: dist.isend(numbers(4), other)
    yield "recv", lambda: dist.irecv(torch.empty(4), other)
    yield "recv_anysource", lambda: dist.irecv(torch.empty(4), tag=7)
    yield "send", lambda: dist.isend(numbers(4), other, tag=7)


def root(rank):
    options = dist.GatherOptions()
    options.rootRank = rank
    return options


def test_no_call_waits_for_a_rank_that_has_not_called(on_ranks):
    """Every collective of the group, also the first one between two ranks."""

    def body(rank):
        begin()
        from allrail.torch.backend import Group

        store = dist.distributed_c10d._get_default_store()
        calls = list(every_call(rank, 2))
        works = {
            name
            for name, method in vars(Group).items()
            if getattr(method, "__annotations__", {}).get("return") == "Work"
            and not name.startswith("_")
        }
        aliases = {"alltoall_base", "gather_into_tensor", "allgather_into_tensor_coalesced"}
        aliases |= {"reduce_scatter_tensor_coalesced"}
        missing = works - {name for name, _ in calls} - aliases
        assert not missing, missing
        longest, begun = [], []
        for number, (name, call) in enumerate(calls):
            if rank == 1:
                store.wait([f"begun {number}"], timedelta(seconds=200))
            started = time.monotonic()
            begun.append(call())
            longest.append((time.monotonic() - started, name))
            if rank == 0:
                store.set(f"begun {number}", "1")
        for work in begun:
            work.wait()
        return max(longest)

    for seconds, name in on_ranks(body, group=False):
        assert seconds < 60, name


REFUSED = {
    "complex product": lambda: dist.reduce(
        torch.ones(2, dtype=torch.complex64), 0, dist.ReduceOp.PRODUCT
    ),
    "complex maximum": lambda: dist.reduce_scatter_tensor(
        torch.ones(1, dtype=torch.complex64),
        torch.ones(2, dtype=torch.complex64),
        dist.ReduceOp.MAX,
    ),
    "complex minimum": lambda: dist.all_reduce(
        torch.ones(2, dtype=torch.complex128), dist.ReduceOp.MIN
    ),
    "bits of floats": lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BOR),
    "average of truth values": lambda: dist.all_reduce(
        torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG
    ),
    "premultiplied": lambda: dist.all_reduce(torch.ones(2), dist._make_nccl_premul_sum(0.5)),
    "sum of float8": lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)),
    "sparse": lambda: dist.all_reduce(torch.ones(2).to_sparse()),
    "outputs of several sizes": lambda: dist.all_gather(
        [torch.empty(1), torch.empty(2)], torch.ones(1 + dist.get_rank())
    ),
    "outputs too small": lambda: dist.all_gather([torch.empty(1), torch.empty(1)], torch.ones(2)),
    "one output too small": lambda: dist.all_gather_into_tensor(torch.empty(2), torch.ones(2)),
    "parts that are missing": lambda: dist.group.WORLD.alltoall([torch.empty(1)], [torch.ones(1)]),
    "an output that does not fit": lambda: dist.reduce_scatter(
        torch.empty(3), [torch.ones(1), torch.ones(2)]
    ),
    "rows that cannot be divided": lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3)),
    "coalescing on a device": lambda: dist._coalescing_manager(
        device=torch.device("cpu")
    ).__enter__(),
    "split": lambda: dist.group.WORLD.split_group([0]),
    "window": lambda: dist.group.WORLD.new_window(None),
    "another device": lambda: dist.all_reduce(torch.ones(2, device="meta")),
}


def test_what_is_refused_is_refused_on_every_rank_and_the_group_goes_on(on_ranks):
    def body(rank):
        begin()
        said = {}
        for name, call in REFUSED.items():
            try:
                call()
            except ValueError as error:
                said[name] = str(error)
            else:
                said[name] = "nothing was raised"
            tensor = torch.ones(2)
            dist.all_reduce(tensor)
            assert tensor.tolist() == [2.0, 2.0], name
        return said

    one, other = on_ranks(body, group=False)
    assert "nothing was raised" not in one.values()
    assert "nothing was raised" not in other.values()
    for name in (
        "premultiplied",
        "sum of float8",
        "sparse",
        "another device",
        "split",
        "window",
        "coalescing on a device",
    ):
        assert "not supported by allrail; use " in one[name], one[name]


def sized(rank, ranks, n, dtype, group):
    """Each collective, with parts of `n` elements: by the word that an error must have."""

    def ones(size=n):
        return torch.ones(size, dtype=dtype)

    def parts():
        return [ones() for _ in range(ranks)]

    maximum, group = dist.ReduceOp.MAX, {"group": group}
    of_root = parts() if rank == 0 else None
    yield "all_reduce", lambda: dist.all_reduce(ones(), **group)
    yield "all_reduce (max)", lambda: dist.all_reduce(ones(), maximum, **group)
    yield "all_reduce (average)", lambda: dist.all_reduce(ones(), dist.ReduceOp.AVG, **group)
    yield "reduce", lambda: dist.reduce(ones(), 0, **group)
    yield "broadcast", lambda: dist.broadcast(ones(), 0, **group)
    yield "all_gather", lambda: dist.all_gather(parts(), ones(), **group)
    yield "all_gather", lambda: dist.all_gather_into_tensor(ones(n * ranks), ones(), **group)
    yield "reduce_scatter", lambda: dist.reduce_scatter(ones(), parts(), **group)
    yield "reduce_scatter (max)", lambda: dist.reduce_scatter(ones(), parts(), maximum, **group)
    yield "gather", lambda: dist.gather(ones(), of_root, 0, **group)
    yield "scatter", lambda: dist.scatter(ones(), of_root, 0, **group)
    yield (
        "all_to_all",
        lambda: dist.all_to_all_single(ones(n * ranks), ones(n * ranks), **group),
    )
    yield "all_to_all", lambda: dist.all_to_all(parts(), parts(), **group)


ODD = {
    "more": (4, 6, torch.float32, torch.float32),
    "none": (4, 0, torch.float32, torch.float32),
    "another type": (4, 4, torch.float32, torch.int32),
    "a type that is only moved": (8, 8, torch.uint8, torch.bool),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_rank_with_another_size_or_type_ends_in_one_error_that_names_the_operation(on_ranks, odd):
    """Every collective: an error on every rank, with what both ranks call; never other numbers."""
    ranks = 3
    theirs, ours, their_type, our_type = ODD[odd]

    def body(rank):
        begin()
        said = []
        kinds = [word for word, _ in sized(rank, ranks, 1, torch.float32, None)]
        for number, word in enumerate(kinds):
            if our_type is torch.bool and "reduce" in word:
                continue  # some are refused before ranks meet
            group = dist.new_group()
            n, dtype = (ours, our_type) if rank == ranks - 1 else (theirs, their_type)
            call = list(sized(rank, ranks, n, dtype, group))[number][1]
            begun = time.monotonic()
            try:
                call()
                dist.barrier(group=group)
                text = "nothing was raised"
            except (ValueError, RuntimeError) as error:
                text = str(error)
            said.append((word, text, time.monotonic() - begun))
        return said

    for answers in zip(*on_ranks(body, ranks=ranks, group=False), strict=True):
        texts = [text for _, text, _ in answers]
        for word, text, seconds in answers:
            of_sizes = text.startswith("`all_to_all`: rank ")
            assert f"calls {word} of " in text or (of_sizes and word == "all_to_all"), texts
            # The second half of an exchange with sizes has a name after the first.
            assert "rank 2" in text, texts
            assert of_sizes or text.startswith(
                ("call 0 differs between", "`call 0, parts` differs")
            ), texts
            if of_sizes:
                assert f"sends {theirs} elements to rank 2, which receives {ours}" in text, texts
            elif theirs != ours:
                for count in (theirs, ours):
                    assert f"of {count} element" in text, texts
            else:
                names = [str(one).removeprefix("torch.") for one in (their_type, our_type)]
                assert all(f"of {name}" in text for name in names), texts
            assert seconds < 60, text


def test_types_that_the_engine_cannot_sum_are_reduced_as_gloo_does(on_ranks):
    def body(rank, backend):
        begin(backend)
        out = []
        flags = torch.tensor([rank == 0, True, False])
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            copy = flags.clone()
            dist.all_reduce(copy, getattr(dist.ReduceOp, op))
            out.append(copy)
        waves = torch.arange(4).to(torch.complex64) * (1 + 1j * rank)
        dist.all_reduce(waves)
        kept = torch.arange(4).to(torch.complex128) * (1 + 1j * rank)
        dist.reduce(kept, 0)
        part = torch.empty(1 + rank)
        dist.reduce_scatter(part, [numbers(1, rank + 1), numbers(2, rank + 1)])
        lists = [[torch.empty(2), torch.empty(3)] for _ in range(2)]
        dist.all_gather_coalesced(lists, [numbers(2, rank), numbers(3, rank)])
        flat = [one for each in lists for one in each]
        return [each.tolist() for each in (*out, waves, part, *flat, *([] if rank else [kept]))]

    expected = on_ranks(lambda rank: body(rank, "gloo"), group=False)
    assert on_ranks(lambda rank: body(rank, "allrail"), group=False) == expected


def lazy(values, *, negates):
    """A tensor of these values; one that `negates` has others in memory."""
    if not negates:
        return values.clone()
    view = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert view.is_neg()
    return view


def of_views(rank, *, mine, theirs):
    """What each operation makes of views: in `mine` of what is brought, in `theirs` of room."""
    n, other = 4, 1 - rank
    values = torch.arange(n) * (rank + 1.0)

    def brought():
        return [lazy(values, negates=mine), lazy(values + 1, negates=mine)]

    def room():
        return [lazy(torch.zeros(n), negates=theirs) for _ in range(2)]

    said = [got := room()[0]]
    sent = dist.isend(brought()[0], other)
    dist.recv(got, other)
    sent.wait()
    for root in (0, 1):
        said.append(brought()[0])
        dist.broadcast(said[-1], root)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        said += [*brought(), part := room()[0]]
        dist.all_reduce(said[-3], op)
        dist.reduce(said[-2], 1, op)
        dist.reduce_scatter(part, brought(), op)
    said += [*(rows := room()), *(out := room()), *(kept := room()), part := room()[0]]
    dist.all_gather(rows, brought()[0])
    dist.all_to_all(out, brought())
    dist.gather(brought()[0], None if rank else kept, 0)
    dist.scatter(part, brought() if rank else None, 1)
    return [each.resolve_neg().tolist() for each in said]


def test_views_that_negate_travel_with_their_values(on_ranks):
    """Of views that conjugate torch itself says that it takes none."""

    def body(rank):
        begin()
        with pytest.raises(RuntimeError, match="conj"):
            dist.broadcast(torch.ones(2, dtype=torch.complex64).conj(), 0)
        expected = of_views(rank, mine=False, theirs=False)
        kinds = ((True, False), (False, True), (True, True))
        return expected, [of_views(rank, mine=mine, theirs=theirs) for mine, theirs in kinds]

    for expected, got in on_ranks(body, group=False):
        assert got == [expected] * 3


def test_a_message_of_another_type_is_an_error(on_ranks):
    def body(rank):
        begin()
        if rank == 0:
            dist.send(torch.ones(4), 1)
            dist.send(torch.ones(4), 1, tag=1)
            return ""
        with pytest.raises(RuntimeError) as raised:
            dist.recv(torch.ones(4, dtype=torch.int32), 0)
        dist.recv(torch.zeros(4), 0, tag=1)
        return str(raised.value)

    _, said = on_ranks(body, group=False)
    assert "rank 0 sends 16 bytes of float32 with tag 0; 16 of int32 are received" in said


def test_messages_find_the_receive_of_their_source_and_tag(on_ranks):
    def body(rank):
        begin()
        if rank:
            for tag in (1, 2, 3):
                dist.send(torch.full((rank,), 10.0 * rank + tag), 0, tag=tag)
            dist.send(torch.full((4,), -1.0), 0, tag=9)
            dist.send(torch.full((2,), float(rank)), 0, tag=5)
            return None
        out = []
        for source in (2, 1):
            for tag in (3, 1, 2):  # not in the order in which they are sent
                got = torch.empty(source)
                dist.recv(got, source, tag=tag)
                out.append(got[0].item())
        wrong = []
        for source in (1, 2):
            try:
                dist.recv(torch.empty(3), source, tag=9)
            except RuntimeError as error:
                wrong.append(f"rank {source} sends 16 bytes of float32 with tag 9" in str(error))
        pending = [(got := torch.empty(2), dist.irecv(got, tag=5)) for _ in range(2)]
        from_any = []
        for got, work in pending:
            work.wait()
            from_any.append((work._source_rank(), got[0].item()))
        return out, wrong, sorted(from_any)

    out, wrong, from_any = on_ranks(body, group=False, ranks=3)[0]
    assert out == [23.0, 21.0, 22.0, 13.0, 11.0, 12.0]
    assert wrong == [True, True]
    assert from_any == [(1, 1.0), (2, 2.0)]


def test_a_timeout_names_the_operation_and_who_is_late(on_ranks):
    def body(rank):
        begin(timeout=timedelta(seconds=4))
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        said = []
        if rank != 2:
            time.sleep(0.3 * rank)
            for call in (
                dist.barrier,
                lambda: dist.all_reduce(torch.ones(2), async_op=True).wait(timedelta(seconds=1)),
            ):
                try:
                    call()
                except RuntimeError as error:
                    said.append(str(error))
        if rank == 0:
            try:
                dist.recv(torch.empty(1), 2)
            except TimeoutError as error:
                said.append(str(error))
        store.set(f"over {rank}", "1")
        if rank == 2:  # it lives on, and does not call
            store.wait(["over 0", "over 1"], timedelta(seconds=200))
        return said

    first, second, _ = on_ranks(body, group=False, ranks=3)
    for said in (first, second):
        assert said[0].startswith("`barrier`: timed out: it is not over after the timeout of 4 s")
        assert said[1].startswith("`all_reduce`: timed out: it is not over after the timeout of 1")
        assert "rank 2 did not call it" in said[0], said[0]
    assert first[2].startswith("`recv`: timed out")
    assert "rank 2 did not call it" in first[2]


def test_a_monitored_barrier_names_who_has_not_come(on_ranks):
    def body(rank):
        begin()
        dist.monitored_barrier(timeout=timedelta(seconds=20))
        said = ""
        if rank != 1:
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=1))
            except RuntimeError as error:
                said = str(error)
        dist.barrier()
        return said

    first, _, third = on_ranks(body, group=False, ranks=3)
    assert "Rank 1 failed to pass monitoredBarrier in 1000 ms" in first
    assert "Rank 2 successfully reached monitoredBarrier, but received errors" in third


@pytest.mark.parametrize("backend", ["allrail", "cpu:allrail", "cpu:allrail,meta:fake"])
def test_a_group_knows_its_types_of_devices(backend, on_ranks, tmp_path):
    def body(rank):
        from torch.distributed import checkpoint

        begin(backend)
        group = dist.group.WORLD
        saved = checkpoint.async_save({"x": torch.ones(3)}, checkpoint_id=tmp_path / "saved")
        saved.result()
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        elsewhere = None
        if "meta" in backend:
            from torch.testing._internal.distributed import fake_pg

            assert fake_pg  # it registers `fake`
            other = torch.ones(2, device="meta")
            dist.all_reduce(other)
            elsewhere = dist.get_backend(group.others.of(other.device))
        return tensor.tolist(), [str(one) for one in group._device_types], elsewhere

    devices = {"allrail": ["cpu", "cuda"], "cpu:allrail": ["cpu"]}.get(backend, ["cpu", "meta"])
    for values, found, elsewhere in on_ranks(body, group=False):
        assert values == [2.0, 2.0]
        assert found == devices
        assert elsewhere == ("meta:fake" if "meta" in backend else None)


def test_a_compiled_ddp_model_trains_as_without_the_compiler(on_ranks):
    def body(rank):
        begin()
        results = []
        for compiled in (False, True):
            torch.manual_seed(0)
            model = torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
            )
            called = torch.nn.parallel.DistributedDataParallel(model)
            called = torch.compile(called, backend="aot_eager") if compiled else called
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(4):
                optimizer.zero_grad()
                called(numbers(32, step + rank).view(8, 4) / 32).square().mean().backward()
                optimizer.step()
            results.append([each.tolist() for each in model.parameters()])
        return results

    for plain, compiled in on_ranks(body, group=False):
        assert plain == compiled
