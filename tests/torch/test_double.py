"""A parameter is exchanged once: a second exchange is refused, in every order and place.

The law: whatever wraps what, and when, a step is that of the mean gradient, or there is an error
before it. The other tests say which of the two, for all that is known to be tried.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DataParallel  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.torch import claims  # noqa: E402

DDP = nn.parallel.DistributedDataParallel
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
MEAN = 1.5
"""The right step: the mean of 1 and 2, the gradients of the two ranks."""


class Core(nn.Module):
    """Two layers; the gradient of every element of either is the input."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 1, bias=False), nn.Linear(4, 1, bias=False)
        nn.init.zeros_(self.a.weight)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.a(x) + self.b(x)


class Around(nn.Module):
    def __init__(self, core):
        super().__init__()
        self.core, self.own = core, nn.Linear(4, 1, bias=False)
        nn.init.zeros_(self.own.weight)

    def forward(self, x):
        return self.core(x) + self.own(x)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1.0)


def step(rank, run, core, optimizer):
    """Make a step and return by how much each layer of the core moved."""
    before = [each.detach().clone() for each in (core.a.weight, core.b.weight)]
    optimizer.zero_grad()
    run(torch.full((1, 4), float(rank + 1))).sum().backward()
    optimizer.step()
    art.synchronize()
    after = (core.a.weight, core.b.weight)
    return [(old - new.detach()).flatten() for old, new in zip(before, after, strict=True)]


# -- what wraps: each returns what is to be called


def ddp(model):
    return DDP(model)


def compiled_ddp(model):
    return torch.compile(DDP(model), backend="eager")


def ddp_of_compiled(model):
    return DDP(torch.compile(model, backend="eager"))


def python_reducer(model):
    import torch._dynamo

    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        return DDP(model)


def static_ddp(model):
    return DDP(model, static_graph=True)


def subclass_of_ddp(model):
    return type("Mine", (DDP,), {})(model)


def fsdp1(model):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def fsdp1_original(model):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def fsdp2(model):
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model)


def composable(model):
    from torch.distributed._composable.replicate import replicate

    return replicate(model)


class DeepSpeedEngine(nn.Module):
    """Hides its module from torch as that of DeepSpeed does, and reduces like it."""

    def __init__(self, model):
        super().__init__()
        self.__dict__["_modules"]["module"] = model
        for each in model.parameters():
            each.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter):
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2

    def forward(self, *inputs):
        return self.module(*inputs)


def apex(model):
    """What is called so, and is not torch's."""

    class DistributedDataParallel(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
            for each in module.parameters():
                each.register_post_accumulate_grad_hook(self.reduce)

        def reduce(self, parameter):
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2

        def forward(self, *inputs):
            return self.module(*inputs)

    return DistributedDataParallel(model)


WRAPPERS = {
    "DDP": ddp,
    "compile(DDP)": compiled_ddp,
    "DDP(compile)": ddp_of_compiled,
    "python reducer": python_reducer,
    "static graph": static_ddp,
    "subclass": subclass_of_ddp,
    "FSDP": fsdp1,
    "FSDP, original parameters": fsdp1_original,
    "replicate": composable,
    "Apex": apex,
}
if VERSION >= (2, 6) and hasattr(torch.cpu.Stream, "record_event"):
    WRAPPERS["fully_shard"] = fsdp2

MODES = {
    "crossing": {},
    "c10d": {"transport": "c10d"},
    "at the end": {"cross_barrier": False},
    "disabled": {},
    "every": {"every": 4},
}

# What is wrapped, and what is scheduled, of `whole = Around(core)`.
PLACES = {
    "the model": ("core", "core"),
    "what is around it": ("whole", "core"),
    "a part of it": ("core", "whole"),
    "a layer of it": ("layer", "core"),
}


def told(function):
    try:
        return "done", function()
    except Exception as error:  # noqa: BLE001 - the test says which it must be
        return type(error).__name__, str(error)


def doubled(rank, wrapper, order, place, mode):
    """Wrap and schedule; return what was said, or the steps."""
    with contextlib.ExitStack() as stack:
        if mode == "disabled":
            os.environ["ALLRAIL_DISABLE"] = "1"
            stack.callback(os.environ.pop, "ALLRAIL_DISABLE")
        core = Core()
        parts = {"core": core, "whole": Around(core), "layer": core.a}
        wrapped, scheduled = (parts[name] for name in PLACES[place])
        optimizer = sgd(scheduled)

        def run():
            called = scheduled

            def wrap():
                nonlocal called
                around = WRAPPERS[wrapper](wrapped)
                # Who calls the outermost of the two calls both.
                if place in ("the model", "what is around it"):
                    called = around
                elif wrapped is core:
                    scheduled.core = around
                else:
                    core.a = around

            if order in ("before", "imported", "unseen"):
                wrap()
            if order in ("imported", "unseen"):
                claims._wrappers.clear()
            if order == "imported":  # as when allrail is imported now
                claims._look_for_wrappers()
            art.schedule(scheduled, optimizer, **MODES[mode])
            if order == "later":
                for _ in range(2):
                    step(rank, scheduled, core, optimizer)
            if order in ("after", "later"):
                wrap()
            return [step(rank, called, core, optimizer) for _ in range(3)]

        said = told(run)
        with contextlib.suppress(Exception):
            art.release(scheduled)
        torch._dynamo.reset()
        return said


CASES = [
    (wrapper, order, place, mode)
    for wrapper in WRAPPERS
    for order in ("before", "imported", "unseen", "after", "later")
    for place in PLACES
    for mode in MODES
    # All wrappers in the mode that everybody has, DDP in all modes.
    if mode == "crossing" or wrapper in ("DDP", "fully_shard")
    # A wrapper of torch that was not found shows itself in its forward pass.
    if order != "unseen" or wrapper != "Apex"
]


@pytest.mark.parametrize(("wrapper", "order", "place", "mode"), CASES)
def test_a_second_exchange_is_refused(wrapper, order, place, mode, ranks_of):
    for kind, said in ranks_of(doubled)(wrapper, order, place, mode):
        assert kind == "InputError", said
        message, _, hint = said.partition("\n\nhint: ")
        assert message.startswith("`")  # which parameter
        assert "leave" in hint or order == "unseen"
        assert len(said.splitlines()) == 3


# -- what is no second exchange


def right(steps):
    return all(moved.tolist() == [MEAN] * 4 for moved in steps)


def after_release(rank):
    """A released model is an ordinary one: DDP, and another schedule, are as with a new one."""
    core = Core()
    optimizer = sgd(core)
    steps = []
    for _ in range(2):
        art.schedule(core, optimizer)
        steps += step(rank, core, core, optimizer)
        art.release(core)
        steps += step(rank, DDP(core), core, optimizer)
    return steps


def after_a_refusal(rank):
    """A refused wrapper changes nothing, nor does a refused schedule."""
    core = Core()
    optimizer = sgd(core)
    art.schedule(core, optimizer)
    assert told(lambda: DDP(core))[0] == "InputError"
    steps = step(rank, core, core, optimizer)
    other = Core()
    around = DDP(other)
    assert told(lambda: art.schedule(around, sgd(other)))[0] == "InputError"
    return steps + step(rank, around, other, sgd(other))


def copies(rank):
    """Copies of a scheduled model are ordinary."""
    core = Core()
    optimizer = sgd(core)
    art.schedule(core, optimizer)
    steps = step(rank, core, core, optimizer)
    file = io.BytesIO()
    torch.save(core, file)
    file.seek(0)
    for copied in (
        copy.deepcopy(core),
        pickle.loads(pickle.dumps(core)),
        torch.load(file, weights_only=False),
    ):
        steps += step(rank, DDP(copied), copied, sgd(copied))
    return steps + step(rank, core, core, optimizer)


def ignored(rank):
    """DDP may be told which parameters are not its own."""
    core = Core()
    whole = Around(core)
    DDP._set_params_and_buffers_to_ignore_for_model(whole, ["core.a.weight", "core.b.weight"])
    optimizer, own = sgd(core), sgd(whole.own)
    art.schedule(core, optimizer)
    around = DDP(whole)
    steps = []
    for _ in range(3):
        before = whole.own.weight.detach().clone()
        own.zero_grad()
        steps += step(rank, around, core, optimizer)
        own.step()
        steps.append((before - whole.own.weight.detach()).flatten())
    return steps


def frozen(rank):
    """A wrapper exchanges no gradient of what is frozen."""

    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.core = DDP(Core()), Core()
            self.teacher.requires_grad_(requires_grad=False)

        def forward(self, x):
            return self.core(x) + self.teacher(x)

    student = Student()
    optimizer = torch.optim.SGD(student.core.parameters(), lr=1.0)
    art.schedule(student, optimizer)
    return [each for _ in range(3) for each in step(rank, student, student.core, optimizer)]


def deleted(rank):
    """A wrapper that nobody has any more exchanges nothing."""
    core = Core()
    optimizer = sgd(core)
    around = DDP(core)
    around.itself = [around]  # only the garbage collector gets at it
    steps = step(rank, around, core, optimizer)
    del around
    art.schedule(core, optimizer)
    return steps + step(rank, core, core, optimizer)


def evaluated(rank):
    """Without gradients there is nothing to exchange: a wrapper from before may be called."""
    core = Core()
    optimizer = sgd(core)
    around = DDP(core)
    claims._wrappers.clear()
    art.schedule(core, optimizer)
    with torch.no_grad():
        around(torch.ones(1, 4))
    return step(rank, core, core, optimizer)


def data_parallel(rank):
    """On one device it wraps, and exchanges nothing."""
    steps = []
    for before in (True, False):
        core = Core()
        optimizer = sgd(core)
        around = DataParallel(core)
        art.schedule(around if before else core, optimizer)
        steps += [each for _ in range(3) for each in step(rank, around, core, optimizer)]
    return steps


def removed(rank):
    """What is taken out of the model is not used; it was not replaced."""
    core = Core()
    optimizer = sgd(core)
    art.schedule(core, optimizer)
    steps = step(rank, core, core, optimizer)
    layer, core.b = core.b, nn.Identity()
    core.b.weight = layer.weight  # a module's forward pass may use any parameter
    for _ in range(2):
        core.a.weight.grad = None
        core(torch.full((1, 4), float(rank + 1))).sum().backward()
    core.b = layer
    return steps + step(rank, core, core, optimizer)


def reparametrised(rank):
    """A parameter may move within its model."""
    from torch.nn.utils.parametrize import register_parametrization

    core = Core()
    optimizer = sgd(core)
    art.schedule(core, optimizer)
    steps = step(rank, core, core, optimizer)
    weight = core.a.weight
    register_parametrization(core.a, "weight", nn.Identity())
    assert core.a.parametrizations.weight.original is weight
    return steps + step(rank, core, core, optimizer)


def lent(rank):
    """Other parameters may stand in for those of the model in a forward pass."""
    core = Core()
    optimizer = sgd(core)
    art.schedule(core, optimizer)
    other = Core()
    steps = []
    for _ in range(3):
        x = torch.full((1, 4), float(rank + 1))
        torch.func.functional_call(core, dict(other.named_parameters()), (x,))
        steps += step(rank, core, core, optimizer)
        torch.func.functional_call(core, dict(other.named_parameters()), (x,))
    return steps


class Beside(nn.Module):
    """Calls another model that is no part of it: held in a list, or by a weak reference."""

    def __init__(self, core, hold):
        super().__init__()
        self.hold, self.own = hold(core), nn.Linear(4, 1, bias=False)
        nn.init.zeros_(self.own.weight)

    def forward(self, x):
        (core,) = self.hold if isinstance(self.hold, list) else [self.hold()]
        return core(x) + self.own(x)


def held_aside(rank):
    """DDP averages what is its own, allrail what is scheduled, in both orders."""
    steps = []
    for hold in (lambda core: [core], weakref.ref):
        for before in (True, False):
            core = Core()
            optimizer = sgd(core)
            if before:
                around = DDP(Beside(core, hold))
                art.schedule(core, optimizer)
            else:
                art.schedule(core, optimizer)
                around = DDP(Beside(core, hold))
            for _ in range(3):
                steps += step(rank, around, core, optimizer)
                own = around.module.own.weight
                steps.append(own.grad.flatten())
                own.grad = None
    return steps


ALONE = [
    held_aside,
    after_release,
    after_a_refusal,
    copies,
    ignored,
    frozen,
    deleted,
    evaluated,
    data_parallel,
    removed,
    reparametrised,
    lent,
]


def around_nothing_that_is_called(rank):
    """DDP around what is scheduled, whose own forward pass is never called."""

    class Past(Around):
        def forward(self, x):
            return self.core.a(x) + self.core.b(x) + self.own(x)

    said = []
    for order in ("before", "after"):
        core = Core()
        optimizer = sgd(core)
        whole = Past(core)

        def both(order=order, core=core, optimizer=optimizer, whole=whole):
            around = DDP(whole) if order == "before" else None
            art.schedule(core, optimizer)
            around = DDP(whole) if around is None else around
            return step(rank, around, core, optimizer)

        said.append(told(both))
        with contextlib.suppress(Exception):
            art.release(core)
    return said


def test_a_scheduled_part_need_not_be_called(ranks_of):
    for said in ranks_of(around_nothing_that_is_called)():
        assert [kind for kind, _ in said] == ["InputError"] * 2


def alone(rank, body):
    return told(lambda: ALONE[body](rank))


@pytest.mark.parametrize("body", range(len(ALONE)), ids=[each.__name__ for each in ALONE])
def test_what_is_exchanged_once_is_right(body, ranks_of):
    for kind, said in ranks_of(alone)(body):
        assert kind == "done", said
        assert said
        assert right(said), said


def replaced(rank, mode, layers, steps):
    """Put new parameters into layers after so many steps; train on."""
    core = Core()
    optimizer = sgd(core)
    with contextlib.ExitStack() as stack:
        if mode == "disabled":
            os.environ["ALLRAIL_DISABLE"] = "1"
            stack.callback(os.environ.pop, "ALLRAIL_DISABLE")
        art.schedule(core, optimizer, **MODES[mode])
    for _ in range(steps):
        step(rank, core, core, optimizer)
    for layer in layers:
        module = getattr(core, layer)
        module.weight = nn.Parameter(module.weight.detach().clone())
    said = told(lambda: step(rank, core, core, optimizer))
    with contextlib.suppress(InputError):
        art.release(core)
    return said


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("layers", ["a", "b", "ab"])
@pytest.mark.parametrize("mode", MODES)
def test_replaced_parameters_are_not_trained_in_silence(mode, layers, steps, ranks_of):
    for kind, said in ranks_of(replaced)(mode, layers, steps):
        assert kind == "InputError", said
        assert "was replaced after" in said


# -- a second schedule, and what is known by name


def again(core, **mode):
    art.schedule(core, sgd(core), **mode)


def tied(core, **mode):
    other = Around(Core())
    other.own.weight = core.b.weight
    art.schedule(other, sgd(other), **mode)


def stepped_by_horovod(core, **mode):
    kind = type("SGD", (torch.optim.SGD,), {"__module__": "horovod.torch.optimizer"})
    art.schedule(Core(), kind(core.parameters(), lr=1.0), **mode)


SECOND = {
    "the same model": (again, "scheduled already", "release(model)"),
    "a part of it": (lambda core, **mode: again(core.b, **mode), "`b.weight`", "release(model)"),
    "around it": (lambda core, **mode: again(Around(core), **mode), "core.a.weight", "release"),
    "a shallow copy": (lambda core, **mode: again(copy.copy(core), **mode), "already", "release"),
    "tied weights": (tied, "`model.own.weight`: it is scheduled already, as `b.weight`", "release"),
    "DeepSpeed": (
        lambda _, **mode: again(DeepSpeedEngine(Core()), **mode),
        "`DeepSpeedEngine` exchanges its gradient, too",
        "leave the wrapper",
    ),
    "Horovod": (stepped_by_horovod, "`SGD` of horovod exchanges gradients, too", "takes its place"),
}


def second(rank, name, mode):
    core = Core()
    with contextlib.ExitStack() as stack:
        if mode == "disabled":
            os.environ["ALLRAIL_DISABLE"] = "1"
            stack.callback(os.environ.pop, "ALLRAIL_DISABLE")
        optimizer = sgd(core)
        art.schedule(core, optimizer, **MODES[mode])
        said = told(lambda: SECOND[name][0](core, **MODES[mode]))
        steps = step(rank, core, core, optimizer)  # the first goes on
        art.release(core)
        assert mode == "every" or right(steps), steps
        return said


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SECOND)
def test_a_second_schedule_is_refused(name, mode, ranks_of):
    _, why, how = SECOND[name]
    for kind, said in ranks_of(second)(name, mode):
        assert kind == "InputError", said
        message, _, hint = said.partition("\n\nhint: ")
        assert why in message
        assert how in hint


def test_replicas_of_several_devices_are_refused(ranks_of):
    for kind, said in ranks_of(replicated)():
        assert kind == "InputError"
        assert "`DataParallel` exchanges its gradient" in said


def replicated(rank):
    """What `DataParallel` does on several GPUs, without one."""
    core = Core()
    art.schedule(core, sgd(core))
    replica = core._replicate_for_data_parallel()
    replica._is_replica = True
    return told(lambda: replica(torch.ones(1, 4)))


def test_wrappers_of_several_devices_are_known_by_them():
    around = DataParallel(Core())
    assert not claims.wrapper_name(around)
    around.device_ids = [0, 1]
    assert claims.wrapper_name(around) == "DataParallel"


def test_one_rank_has_nothing_to_exchange(on_ranks):
    """With one rank a later wrapper changes nothing; a wrapper that is scheduled is a mistake."""

    def body(rank):
        core = Core()
        optimizer = sgd(core)
        art.schedule(core, optimizer)
        moved = step(rank, DDP(core), core, optimizer)
        return [each.tolist() for each in moved], told(lambda: again(DDP(Core())))

    ((moved, (kind, _)),) = on_ranks(body, ranks=1)
    assert moved == [[1.0] * 4] * 2
    assert kind == "InputError"
