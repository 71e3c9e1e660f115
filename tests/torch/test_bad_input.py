"""Each mistake is one error that says what to do."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.runtime.job import find_job  # noqa: E402
from allrail.torch.compression import compression_of  # noqa: E402
from allrail.torch.request import EXCLUSIONS, Request  # noqa: E402
from allrail.torch.ways import WAYS  # noqa: E402

DEFAULTS = {
    "cross_barrier": True,
    "broadcast_buffers": True,
    "sparse": "refuse",
    "transport": "auto",
    "mesh": None,
    "compression": None,
    "every": None,
    "backup_workers": None,
    "undo": False,
    "tune": False,
}
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def linear():
    return nn.Linear(4, 4)


def sgd(model, **kwargs):
    return torch.optim.SGD(model.parameters(), lr=0.1, **kwargs)


def replaced(parameter):
    model = linear()
    model.weight = parameter
    return model, sgd(model)


def no_parameters():
    return nn.ReLU(), sgd(linear())


def all_frozen():
    model = linear()
    return model.requires_grad_(requires_grad=False), sgd(model)


def foreign():
    return linear(), sgd(linear())


def cast_after():
    model = linear()
    optimizer = sgd(model)
    model.weight = nn.Parameter(model.weight.detach().double())
    return model, optimizer


def two_for_one():
    model = linear()
    return model, [sgd(model), sgd(model)]


def lazy():
    model = nn.LazyLinear(4)
    return model, sgd(linear())


class Special(nn.Parameter):
    pass


def overlapping():
    return nn.Parameter(torch.ones(4).expand(4, 4))


def gappy():
    return nn.Parameter(torch.ones(4, 8)[:, ::2])


ROWS = {
    "no module": (
        lambda: (print, sgd(linear())),
        "no `torch.nn.Module`",
        "schedule(model, optimizer)",
    ),
    "swapped": (
        lambda: (sgd(linear()), linear()),
        "no `torch.nn.Module`",
        "schedule(model, optimizer)",
    ),
    "no optimizer": (lambda: (linear(), None), "no `torch.optim.Optimizer`", "schedule(model"),
    "empty list": (
        lambda: (linear(), []),
        "`optimizer`: there is none",
        "schedule(model, optimizer)",
    ),
    "no parameters": (no_parameters, "no parameters", "before it is scheduled"),
    "all frozen": (all_frozen, "frozen", "unfreeze"),
    "other parameters": (foreign, "no parameter of the model", "model.parameters()"),
    "replaced parameter": (cast_after, "no parameter of the model", "final type"),
    "two optimizers": (two_for_one, "another optimizer steps it", "one optimizer"),
    "lazy": (lazy, "no shape yet", "run the model once"),
    "complex": (
        lambda: replaced(nn.Parameter(torch.ones(4, 4, dtype=torch.complex64))),
        "`model.weight` is `complex64`",
        "float32, float64, float16, bfloat16",
    ),
    "subclass": (lambda: replaced(Special(torch.ones(4, 4))), "it is a `Special`", "sharded"),
    "overlapping": (lambda: replaced(overlapping()), "overlap", "contiguous()"),
    "gaps": (lambda: replaced(gappy()), "strides (8, 2) for shape (4, 4)", "contiguous()"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_an_error(name):
    make, why, hint = ROWS[name]
    model, optimizer = make()
    with pytest.raises(InputError) as caught:
        art.schedule(model, optimizer)
    assert why in str(caught.value)
    assert hint in caught.value.hint


def test_unknown_treatment_of_sparse_gradients():
    model = linear()
    with pytest.raises(InputError, match="sparse gradients are not treated so"):
        art.schedule(model, sgd(model), sparse="maybe")


ASKED = {
    "every": {"every": 2},
    "backup_workers": {"backup_workers": 1},
    "compression": {"compression": "bf16"},
    "undo": {"undo": True},
    "tune": {"tune": True},
    "mesh": {"mesh": DeviceMesh},
    "transport": {"transport": object()},
    "transport: native": {"transport": "native"},
    "transport: c10d": {"transport": "c10d"},
    "replan": {"job": {"replan": True}},
    "schedule.tensor": {"job": {"schedule": {"tensor": {"policy": "fifo"}}}},
    "schedule.coordination": {"job": {"schedule": {"coordination": {"policy": "cached"}}}},
} | {
    f"exchange: {name}": {"job": {"exchange": name}}
    for name in ("auto", *(way.name for way in WAYS[1:]))
}
"""By the names of settings: what asks for each."""


def request(*names):
    """Ask for settings in script and job file, as `schedule` does."""
    given, keys = dict(DEFAULTS), {"schema_version": 1}
    for name in names:
        asked = dict(ASKED[name])
        keys |= asked.pop("job", {})
        given |= asked
    if given["mesh"] is not None:
        given["mesh"] = DeviceMesh("cpu", [0], _init_backend=False, _rank=0)
    given["compression"] = compression_of(given["compression"])
    return Request(**given).with_job(find_job(keys))


@pytest.mark.parametrize("name", ASKED)
def test_a_setting_alone_is_what_its_name_says(name):
    assert [one for one, _ in request(name).settings()] == [name]


PAIRS = [(row, other) for row in EXCLUSIONS for other in row.others]


@pytest.mark.parametrize(("row", "other"), PAIRS, ids=lambda one: getattr(one, "one", one))
def test_settings_that_exclude_each_other_are_refused(row, other):
    with pytest.raises(InputError) as caught:
        request(row.one, other)
    assert caught.value.why == row.why
    assert f"`{other}`" in caught.value.hint or row.hint


def test_without_torchrun(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    model = linear()
    with pytest.raises(InputError) as caught:
        art.schedule(model, sgd(model))
    assert "RANK, WORLD_SIZE, MASTER_PORT not set" in str(caught.value)
    assert "torchrun" in caught.value.hint


@pytest.mark.parametrize(
    ("rank", "said"),
    [("2", "`RANK` is `2`: there are 2 ranks"), ("one", "`RANK` is `one`: it is not a number")],
)
def test_a_rank_that_cannot_be(rank, said, monkeypatch):
    told = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    model = linear()
    with pytest.raises(InputError) as caught:
        art.schedule(model, sgd(model))
    assert said in str(caught.value)
    assert "leave" in caught.value.hint


def raises(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the test says which it must be
        return type(error).__name__, str(error)
    return None, ""


def test_twice(on_ranks):
    def body(rank):
        model = linear()
        optimizer = sgd(model)
        art.schedule(model, optimizer)
        again = raises(lambda: art.schedule(model, optimizer))
        around = raises(lambda: art.schedule(nn.Sequential(model, linear()), optimizer))
        return again, around

    for again, around in on_ranks(body):
        assert again[0] == around[0] == "InputError"
        assert "scheduled already" in again[1]
        assert "release(model)" in around[1]


def test_twice_without_crossing(on_ranks):
    def body(rank):
        model = linear()
        optimizer = sgd(model)
        art.schedule(model, optimizer, cross_barrier=False)
        return raises(lambda: art.schedule(model, optimizer))

    for kind, said in on_ranks(body):
        assert kind == "InputError"
        assert "scheduled already" in said


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda rank: nn.Linear(4, 4 + rank), "`weight`: torch.float32 (5, 4)"),
        (lambda rank: nn.Linear(4, 4, bias=rank == 0), "rank 1 has no such parameter"),
        (lambda rank: nn.Linear(4, 4).to((torch.float32, torch.float64)[rank]), "torch.float64"),
    ],
    ids=["shape", "number", "type"],
)
def test_ranks_differ(make, said, on_ranks):
    def body(rank):
        model = make(rank)
        return raises(lambda: art.schedule(model, sgd(model)))

    for kind, text in on_ranks(body):
        assert kind == "InputError"
        assert "rank 1 has" in text
        assert said in text
        assert "the same model on every rank" in text


def sparse(rank):
    model = nn.Embedding(8, 4, sparse=True)
    art.schedule(model, sgd(model))
    return raises(lambda: model(torch.tensor([1])).sum().backward())


def grown(rank):
    model = linear()
    optimizer = sgd(model)
    art.schedule(model, optimizer)
    extra = nn.Parameter(torch.ones(4))
    optimizer.add_param_group({"params": [extra]})
    (model(torch.ones(1, 4)) * extra).sum().backward()
    return raises(optimizer.step)


def thawed(rank):
    model = nn.Sequential(linear(), linear())
    model[0].requires_grad_(requires_grad=False)
    optimizer = sgd(model)
    art.schedule(model, optimizer)
    model[0].requires_grad_(requires_grad=True)
    model(torch.ones(1, 4)).sum().backward()
    return raises(optimizer.step)


def cast(rank):
    model = linear()
    art.schedule(model, sgd(model))
    model(torch.ones(1, 4)).sum().backward()
    model.double()
    model.zero_grad()
    return raises(lambda: model(torch.ones(1, 4).double()).sum().backward())


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def written(rank):
    model = nn.Sequential(linear(), linear())
    optimizer = sgd(model)
    art.schedule(model, optimizer)
    slow(model)
    step(model, optimizer)
    torch.autograd.graph.increment_version(model[1].weight)  # as code in C++ does
    return raises(lambda: model(torch.ones(1, 4)))


def behind_the_back(rank):
    """Its third pass uses a weight in C++ only, of a module that it does not call."""

    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.size = weight.shape
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient, torch.ones(ctx.size)

    class Sly(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.passes = linear(), linear(), 0

        def forward(self, x):
            self.passes += 1
            return self.b(x) if self.passes < 3 else Copied.apply(self.a(x), self.b.weight)

    model = Sly()
    optimizer = sgd(model)
    alone = {"schema_version": 1, "schedule": {"tensor": {"pack": "0 B"}}}
    art.schedule(model, optimizer, job=alone)
    slow(model)
    for _ in range(2):
        step(model, optimizer)
    return raises(lambda: step(model, optimizer))


def reentrant_later(rank):
    from torch.utils.checkpoint import checkpoint

    model = linear()
    optimizer = sgd(model)
    art.schedule(model, optimizer)
    step(model, optimizer)
    x = torch.ones(1, 4, requires_grad=True)
    for _ in range(2):
        x = checkpoint(model, x, use_reentrant=True)
    return raises(lambda: x.sum().backward())


def slow(model):
    """Have every exchange take until somebody waits for it, so that steps stay pending."""
    art._of(model)[0]._transport.is_done = lambda *_: False


LATER = {
    "sparse": (sparse, "InputError|TrainingError", "sparse", "densify"),
    "parameter added": (grown, "InputError", "param_groups[1]", "before `allrail.torch.schedule`"),
    "thawed": (thawed, "InputError", "frozen", "before `allrail.torch.schedule`"),
    "cast": (cast, "TrainingError", "torch.float64", "final type"),
    "written while pending": (
        written,
        "TrainingError",
        "`1.weight`: it was written to",
        "synchronize()",
    ),
    "used behind the back": (behind_the_back, "TrainingError", "`b.weight`", "synchronize()"),
    "second gradient": (reentrant_later, "TrainingError", "second gradient", "use_reentrant=False"),
}


@pytest.mark.parametrize("name", LATER)
def test_a_mistake_in_training_is_an_error(name, on_ranks):
    body, kind, why, hint = LATER[name]
    for got, text in on_ranks(body):
        assert got in kind.split("|")
        assert why in text
        assert hint in text.partition("hint: ")[2]


def in_two_threads(rank):
    """Another thread begins while this one's is under way; one after the other is right."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # the other rank's is under way until then
        store.wait(["another thread has called"], timedelta(seconds=200))
    work = dist.all_reduce(torch.ones(4), async_op=True)
    said = []
    if rank == 0:
        other = threading.Thread(target=lambda: said.append(raises(dist.barrier)))
        other.start()
        other.join()
        store.set("another thread has called", "1")
    work.wait()
    dist.barrier()
    other = threading.Thread(target=dist.barrier)
    other.start()
    other.join()
    return said[0] if said else None


# What is done on both ranks; what is said. Where rank 1 says None, it is as it should be there.
ON_THE_BACKEND = {
    "two threads": (in_two_threads, "InputError", "another thread is under way", "new_group"),
    "overlapping": (
        lambda _: raises(lambda: dist.all_reduce(torch.ones(1).expand(5))),
        "InputError",
        "overlap",
        "contiguous",
    ),
    "overlapping result": (
        lambda _: raises(
            lambda: dist.reduce_scatter_tensor(torch.ones(1).expand(2), torch.ones(4))
        ),
        "InputError",
        "overlap",
        "contiguous",
    ),
    "sparse": (
        lambda _: raises(lambda: dist.all_reduce(torch.ones(4).to_sparse())),
        "InputError",
        "sparse",
        "to_dense()",
    ),
    "sparse broadcast": (
        lambda _: raises(lambda: dist.broadcast(torch.ones(4).to_sparse(), 0)),
        "InputError",
        "sparse",
        "to_dense()",
    ),
    "uneven": (
        lambda _: raises(lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3))),
        "InputError",
        "3 elements cannot be divided among 2 ranks",
        "pad it",
    ),
    "shape": (
        lambda rank: raises(lambda: dist.all_reduce(torch.ones(4 + rank))),
        "TrainingError",
        (
            "call 0 differs between ranks: rank 0 calls all_reduce of 4 elements of float32, and"
            " rank 1 calls all_reduce of 5 elements of float32"
        ),
        "the same sizes and types",
    ),
    "type": (
        lambda rank: raises(
            lambda: dist.all_reduce(torch.ones(4, dtype=(torch.float32, torch.int32)[rank]))
        ),
        "TrainingError",
        (
            "call 0 differs between ranks: rank 0 calls all_reduce of 4 elements of float32, and"
            " rank 1 calls all_reduce of 4 elements of int32"
        ),
        "the same sizes and types",
    ),
}


def on_the_backend(rank, name):
    import allrail.torch.backend  # noqa: F401

    if not dist.is_initialized():
        dist.init_process_group("allrail")
    said = ON_THE_BACKEND[name][0](rank)
    if ON_THE_BACKEND[name][1] == "InputError":  # the group goes on
        one = torch.ones(2)
        dist.all_reduce(one)
        assert one.tolist() == [2, 2]
    return said


@pytest.mark.skipif(
    tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6),
    reason="the backend needs torch 2.6 or later",
)
@pytest.mark.parametrize("name", ON_THE_BACKEND)
def test_a_mistake_with_the_backend(name, ranks_of, on_ranks):
    _, kind, why, hint = ON_THE_BACKEND[name]
    if kind == "InputError":
        all_said = ranks_of(on_the_backend, group=False)(name)
    else:
        all_said = on_ranks(lambda rank: on_the_backend(rank, name), group=False)
    assert all_said[0] is not None
    for said in all_said:
        if said is not None:
            assert said[0] == kind, said
            assert why in said[1]
            assert hint in said[1].partition("hint: ")[2]
