"""Training with `allrail.torch` equals training without it, bit for bit on two ranks.

Each case trains twice in the same processes, by `DistributedDataParallel` over gloo and by
`allrail.torch`, and compares parameters, buffers and optimizer state; it says how many steps may
have had a barrier, and why. Where DDP is no oracle (it is wrong, refuses, or rounds in another
order), one process that has all ranks' data is.

Run on torch 2.15, 2.8 and 2.4.
"""

from __future__ import annotations

import contextlib
import copy
import io
from dataclasses import dataclass, field
from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import allrail.torch as art  # noqa: E402

STEPS = 6
# "late" is `c10d` where no exchange is over before somebody waits for it: every step is made
# at the last moment.
TRANSPORTS = ("native", "late")

# -- models


class Mlp(nn.Module):
    """Its own parameter, `scale`, stands beside modules, and is used last."""

    def __init__(self, dtype=None):
        super().__init__()
        sizes = [(16, 64), (64, 64), (64, 64), (64, 4)]
        self.layers = nn.ModuleList([nn.Linear(*size, dtype=dtype) for size in sizes])
        self.scale = nn.Parameter(torch.ones(4, dtype=dtype))

    def forward(self, x):
        x = x.to(self.scale.dtype)
        for layer in self.layers[:-1]:
            x = F.gelu(self.apply_to(layer, x))
        return self.layers[-1](x) * self.scale

    def apply_to(self, layer, x):
        return layer(x)


class Checkpointed(Mlp):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant

    def apply_to(self, layer, x):
        x = x if x.requires_grad else x.requires_grad_()
        return checkpoint(layer, x, use_reentrant=self.reentrant)


class AllCheckpointed(nn.Module):
    """No gradient comes but in passes within the pass."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = checkpoint(lambda x: F.gelu(self.a(x)), x.requires_grad_(), use_reentrant=True)
        return checkpoint(self.b, x, use_reentrant=True)


class SharedCheckpoint(nn.Module):
    """One layer in two checkpoints: if they are reentrant, it has two gradients in a pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.a, self.b, self.reentrant = nn.Linear(16, 16), nn.Linear(16, 4), reentrant

    def forward(self, x):
        x = x.requires_grad_()
        for _ in range(2):
            x = checkpoint(lambda x: F.gelu(self.a(x)), x, use_reentrant=self.reentrant)
        return self.b(x)


class Tied(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.embedding = nn.Embedding(32, 16, sparse=sparse)
        self.hidden = nn.Linear(16, 16)
        self.out = nn.Linear(16, 32, bias=False)
        if not sparse:
            self.out.weight = self.embedding.weight

    def forward(self, x):
        tokens = x[:, 0].mul(7).long().remainder(32)
        return self.out(F.gelu(self.hidden(self.embedding(tokens))))


class Changing(nn.Module):
    """Uses another layer on every rank and step; one is never used, one is frozen."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = (nn.Linear(16, 16) for _ in range(3))
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.last = nn.Linear(16, 4)
        self.count = 0

    def forward(self, x):
        self.count += 1
        first = (self.count + rank_of(x)) % 2
        x = self.frozen(x)
        x = self.a(x) if first else self.b(x)
        return self.last(F.gelu(x))


class Sometimes(nn.Module):
    """A layer that one rank, all, or none uses, by turns."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.last, self.count = (
            nn.Linear(16, 16),
            nn.Linear(16, 16),
            nn.Linear(16, 4),
            0,
        )

    def forward(self, x):
        turn = self.count % 4
        self.count += 1
        used = turn == 2 or (turn == 0 and not rank_of(x)) or (turn == 3 and rank_of(x))
        x = self.a(x)
        return self.last(self.b(x) if used else x)


class Attention(nn.Module):
    """`out_proj` of an attention is used, but never called."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm, self.last = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        x = x.view(2, 4, 16)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.last(x).reshape(8, 4)


class Elsewhere(nn.Module):
    """Parameters that are used by others than their owners."""

    def __init__(self):
        super().__init__()
        self.lists = nn.ParameterList([torch.linspace(0.5, 1.5, 16) for _ in range(2)])
        self.holder, self.last = nn.Linear(16, 16), nn.Linear(16, 4)
        self.user = nn.Sequential(nn.GELU())

    def forward(self, x):
        x = x * self.lists[0] + self.lists[1]
        x = self.user(F.linear(x, self.holder.weight.T, self.holder.bias))
        return self.last(x)


class Normed(nn.Module):
    def __init__(self, old):
        super().__init__()
        wrap = nn.utils.weight_norm if old else nn.utils.parametrizations.weight_norm
        self.a, self.b = wrap(nn.Linear(16, 16)), wrap(nn.Linear(16, 4))

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


class Convolutions(nn.Module):
    """Normalisation keeps buffers; gradients are dense, but not in the usual order of axes."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 2)
        )
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        x = x[:, :12].reshape(8, 3, 2, 2).to(memory_format=torch.channels_last)
        return self.body(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(16, 8, 2), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.lstm(x[None])[0])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Blocks(nn.Module):
    def __init__(self, compiled=""):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.last = nn.Linear(16, 4)
        compiler = partial(torch.compile, backend="aot_eager", fullgraph=True)
        if compiled == "in place":
            for block in self.blocks:
                block.compile(backend="aot_eager", fullgraph=True)
        elif compiled == "wrapped":
            self.blocks = nn.ModuleList([compiler(block) for block in self.blocks])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def rank_of(x):
    """The rank whose batch this is: `batch` wrote it there."""
    return int(x[0, 0].item() > 0)


# -- optimizers


class GroupStep(torch.optim.Optimizer):
    """Counts its steps in the group."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / group["count"])


class GlobalNorm(torch.optim.Optimizer):
    """As LAMB does, it scales by the norm of all gradients."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        every = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        norm = torch.stack(every).norm().clamp(min=0.1)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad / norm, alpha=-group["lr"])


class OwnNorm(torch.optim.Optimizer):
    """As LARS does, it scales by norms of the parameter itself."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * float(p.norm() / (p.grad.norm() + 1e-8)))


O = torch.optim  # noqa: E741
OPTIMIZERS = {
    "sgd": partial(O.SGD, lr=0.1),
    "nesterov": partial(O.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd fused": partial(O.SGD, lr=0.1, momentum=0.9, fused=True),
    "adam": partial(O.Adam, lr=0.01),
    "amsgrad": partial(O.Adam, lr=0.01, amsgrad=True),
    "adamw": partial(O.AdamW, lr=0.01, weight_decay=0.1),
    "adamw foreach": partial(O.AdamW, lr=0.01, foreach=True),
    "adamw fused": partial(O.AdamW, lr=0.01, fused=True),
    "adam tensor lr": lambda params: O.Adam(params, lr=torch.tensor(0.01), foreach=False),
    "adagrad": partial(O.Adagrad, lr=0.05),
    "rmsprop": partial(O.RMSprop, lr=0.01),
    "nadam": partial(O.NAdam, lr=0.01),
    "radam": partial(O.RAdam, lr=0.01),
    "adamax": partial(O.Adamax, lr=0.01),
    "adadelta": O.Adadelta,
    "asgd": partial(O.ASGD, lr=0.05),
    "rprop": partial(O.Rprop, lr=0.01),
    "own norm": OwnNorm,
}
if hasattr(O, "Adafactor"):
    OPTIMIZERS["adafactor"] = partial(O.Adafactor, lr=0.05)
adam, sgd, nesterov = (OPTIMIZERS[name] for name in ("adam", "sgd", "nesterov"))

# -- one training


class Run:
    """One training, in one of three ways: by `ddp`, by `art`, or `alone` with all ranks' data."""

    def __init__(self, way, case, rank, ranks, transport):
        self.way, self.case, self.rank, self.ranks = way, case, rank, ranks
        torch.manual_seed(rank if way != "alone" else 0)  # rank 0's parameters are everybody's
        self.model = case.model()
        self.optimizer = case.optimizer(self.model.parameters())
        self.called = self.model
        if way == "ddp":
            self.called = nn.parallel.DistributedDataParallel(
                self.model, find_unused_parameters=case.unused
            )
        case.prepare(self)
        if way == "art":
            late = transport == "late"
            options = {"transport": "c10d" if late else transport, **case.options}
            art.schedule(self.model, self.optimizer, **options)
            if late:
                art._of(self.model)[0]._transport.is_done = lambda *_: False
        case.prepare_after(self)

    def batch(self, step, part=0, rank=None):
        rank = self.rank if rank is None else rank
        generator = torch.Generator().manual_seed(1000 * step + 10 * part + rank)
        x = torch.randn(8, 16, generator=generator)
        x[0, 0] = 0.5 if rank else -0.5
        return x

    def loss(self, step, part=0):
        def one(rank):
            return self.called(self.batch(step, part, rank)).float().square().mean()

        if self.way == "alone":
            return sum(one(rank) for rank in range(self.ranks)) / self.ranks
        return one(self.rank)

    def no_sync(self):
        if self.way == "alone":
            return contextlib.nullcontext()
        return self.called.no_sync() if self.way == "ddp" else art.no_sync(self.model)

    def synchronize(self):
        if self.way == "art":
            art.synchronize(self.model)

    def result(self):
        barriers = art.barriers(self.model)
        self.synchronize()
        state = self.optimizer.state_dict()["state"]
        tensors = [*self.model.parameters(), *self.model.buffers()]
        tensors += [
            value
            for _, values in sorted(state.items())
            for _, value in sorted(values.items())
            if torch.is_tensor(value)
        ]
        return [tensor.detach().clone() for tensor in tensors], barriers


def plain(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()


def nothing(run):
    pass


@dataclass
class Case:
    model: object = Mlp
    optimizer: object = adam
    loop: object = plain
    prepare: object = nothing
    prepare_after: object = nothing
    barriers: dict | None = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    unused: bool = False
    oracle: str = "ddp"
    tolerance: float = 0.0
    alike: bool = True  # buffers are each rank's own, after a step


# -- loops


def zero_after(run, **kwargs):
    for step in range(STEPS):
        run.loss(step).backward()
        run.optimizer.step()
        run.optimizer.zero_grad(**kwargs)


def keep_tensors(run):
    for step in range(STEPS):
        run.optimizer.zero_grad(set_to_none=False)
        run.loss(step).backward()
        run.optimizer.step()


def zero_by_model(run):
    for step in range(STEPS):
        run.model.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
    run.model.zero_grad(set_to_none=False)


def zero_by_hand(run):
    for step in range(STEPS):
        run.loss(step).backward()
        run.optimizer.step()
        for parameter in run.model.parameters():
            parameter.grad = None


def accumulate(run, sync=False):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        for part in range(3):
            with contextlib.nullcontext() if sync or part == 2 else run.no_sync():
                (run.loss(step, part) / 3).backward()
        run.optimizer.step()


def clip(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        run.optimizer.step()


def clip_accumulated(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        with run.no_sync():
            run.loss(step, 1).backward()
        run.loss(step).backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        run.optimizer.step()


def scale(run, clip=False):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
    for step in range(STEPS):
        run.optimizer.zero_grad()
        scaler.scale(run.loss(step)).backward()
        if step == 2:  # an overflow: this step is left out by everybody
            next(iter(run.model.parameters())).grad.add_(float("inf"))
        if clip:
            scaler.unscale_(run.optimizer)
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
        scaler.step(run.optimizer)
        scaler.update()


def autocast(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run.loss(step)
        loss.backward()
        run.optimizer.step()


def with_scheduler(run):
    run.scheduler = O.lr_scheduler.StepLR(run.optimizer, 2, gamma=0.3)


def scheduled(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        run.scheduler.step()


def one_cycle(run):
    run.scheduler = O.lr_scheduler.OneCycleLR(run.optimizer, 0.1, total_steps=STEPS + 1)


def save(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        kept = copy.deepcopy(run.model.state_dict())
        assert len(run.optimizer.state_dict()["state"]) == len(list(run.model.parameters()))
    run.synchronize()
    for name, value in run.model.state_dict().items():
        assert torch.equal(kept[name], value), name


def save_whole(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        file = io.BytesIO()
        torch.save(run.model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        copied = copy.deepcopy(run.model)
        run.synchronize()
        for mine, theirs, other in zip(
            run.model.parameters(), loaded.parameters(), copied.parameters(), strict=True
        ):
            assert torch.equal(mine, theirs)
            assert torch.equal(mine, other)
            assert type(theirs) is type(other) is nn.Parameter
        loss = copied(run.batch(step)).square().mean()
        loss.backward()
        copied.zero_grad()
        assert all(parameter.grad is None for parameter in copied.parameters())


def load(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        if step == 1:
            kept = copy.deepcopy((run.model.state_dict(), run.optimizer.state_dict()))
        if step == 3:
            run.model.load_state_dict(kept[0])
            run.optimizer.load_state_dict(kept[1])


def evaluate(run, mode=torch.no_grad):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        run.model.eval()
        with mode():
            run.model(run.batch(step))
        run.model.train()


def evaluate_a_part(run):
    """Only some parameters are asked for; the others are still under way, and stay so."""
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        with torch.inference_mode():
            run.model.layers[0](run.batch(step))


def average(run):
    mean = [parameter.detach().clone() for parameter in run.model.parameters()]
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()
        run.synchronize()
        for kept, parameter in zip(mean, run.model.parameters(), strict=True):
            kept.lerp_(parameter.detach(), 0.5)
    with torch.no_grad():
        for kept, parameter in zip(mean, run.model.parameters(), strict=True):
            parameter.copy_(kept)


def closure(run):
    for step in range(STEPS):

        def loss(step=step):
            run.optimizer.zero_grad()
            loss = run.loss(step)
            loss.backward()
            return loss

        run.optimizer.step(loss)


def mean_closure(run):
    """LBFGS looks at the loss: every rank must see the same one."""
    for step in range(STEPS):

        def loss(step=step):
            run.optimizer.zero_grad()
            loss = run.loss(step)
            loss.backward()
            mean = loss.detach().clone() / 2
            dist.all_reduce(mean)
            return mean

        run.optimizer.step(loss)


def two_losses(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        losses = [run.loss(step, part) for part in range(2)]
        for loss in losses:
            loss.backward()
        run.optimizer.step()


def step_hook(run):
    run.seen = []
    run.optimizer.register_step_post_hook(
        lambda *_: run.seen.append(float(run.model.scale.detach().sum()))
    )


def hooked(run):
    plain(run)
    last = run.seen[-1]
    run.synchronize()
    assert last == float(run.model.scale.detach().sum())


def compile_whole(run):
    run.called = torch.compile(run.called, backend="aot_eager", fullgraph=run.way == "alone")


def compile_after(run):
    if run.way == "art":
        run.called = torch.compile(run.model, backend="aot_eager")


def freeze_midway(run):
    for step in range(STEPS):
        if step == 2:
            run.model.layers[1].requires_grad_(requires_grad=False)
        run.optimizer.zero_grad()
        run.loss(step).backward()
        run.optimizer.step()


def without_backward(run):
    """A step with gradients of the rank's own making, and one with none."""
    run.optimizer.step()
    plain(run)
    run.optimizer.zero_grad()
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    run.optimizer.step()
    run.optimizer.zero_grad()
    run.optimizer.step()


def fails_midway(run):
    """A pass that fails halfway, on every rank, is left out; training goes on."""
    for step in range(STEPS):
        run.optimizer.zero_grad()
        loss = run.loss(step)
        if step == 2:
            handle = run.model.layers[1].weight.register_hook(fail)
            with pytest.raises(ArithmeticError):
                loss.backward()
            handle.remove()
            continue
        loss.backward()
        run.optimizer.step()


def fail(gradient):
    raise ArithmeticError


def read_gradient(run):
    for step in range(STEPS):
        run.optimizer.zero_grad()
        run.loss(step).backward()
        assert run.model.layers[0].weight.grad.abs().sum() > 0
        run.optimizer.step()


PACKS_OF_ONE = {"schema_version": 1, "schedule": {"tensor": {"pack": "0 B"}}}


def every(cause):
    return {cause: STEPS}


CASES = {f"mlp, {name}": Case(optimizer=make) for name, make in OPTIMIZERS.items()}
CASES |= {
    "float64": Case(model=partial(Mlp, torch.float64)),
    "bfloat16": Case(model=partial(Mlp, torch.bfloat16)),
    "zero_grad after": Case(loop=zero_after),
    "zero_grad keeps tensors": Case(loop=keep_tensors, optimizer=nesterov),
    "zero_grad after, keeps tensors": Case(
        loop=partial(zero_after, set_to_none=False), optimizer=nesterov
    ),
    "zero_grad of the model": Case(loop=zero_by_model),
    "zero_grad by hand": Case(loop=zero_by_hand),
    "accumulation": Case(loop=accumulate),
    "accumulation, all exchanged": Case(loop=partial(accumulate, sync=True)),
    "accumulation, clipped": Case(loop=clip_accumulated, barriers=every("gradient")),
    "clipping": Case(loop=clip, barriers=every("gradient")),
    "a gradient is read": Case(loop=read_gradient, barriers=every("gradient")),
    "scaler": Case(loop=scale, barriers=every("gradient")),
    "scaler, clipped": Case(loop=partial(scale, clip=True), barriers=every("gradient")),
    "scaler, fused": Case(
        loop=scale, optimizer=OPTIMIZERS["adamw fused"], barriers=every("gradient")
    ),
    "autocast": Case(loop=autocast),
    "scheduler before": Case(loop=scheduled, prepare=with_scheduler, optimizer=nesterov),
    "scheduler after": Case(loop=scheduled, prepare_after=with_scheduler, optimizer=nesterov),
    "scheduler of momentum": Case(loop=scheduled, prepare_after=one_cycle),
    "group counter": Case(optimizer=GroupStep),
    "global norm": Case(optimizer=GlobalNorm, barriers=every("optimizer")),
    "lbfgs": Case(
        optimizer=partial(O.LBFGS, lr=0.1, max_iter=3),
        loop=mean_closure,
        barriers=every("optimizer"),
        oracle="ddp",
    ),
    "closure": Case(loop=closure, barriers={"closure": STEPS - 1}),
    "step hook": Case(loop=hooked, prepare=step_hook, barriers=every("step hook")),
    "state_dict": Case(loop=save, barriers=every("state_dict")),
    "saved whole, copied": Case(
        loop=save_whole, oracle="alone", tolerance=1e-6, barriers=every("copy")
    ),
    "load_state_dict": Case(loop=load, barriers={"state_dict": 1, "load_state_dict": 1}),
    "evaluation": Case(loop=evaluate, barriers=every("evaluation")),
    "evaluation, inference mode": Case(
        loop=partial(evaluate, mode=torch.inference_mode), barriers=every("evaluation")
    ),
    "evaluation of a part": Case(loop=evaluate_a_part, options={"job": PACKS_OF_ONE}),
    # Its parameters travel with others, for which another module waits: it may be noted as a read.
    "evaluation of a part, in packs": Case(loop=evaluate_a_part, barriers=None),
    "moving average": Case(loop=average, barriers=every("synchronize")),
    "two losses": Case(loop=two_losses, optimizer=sgd, oracle="alone", tolerance=1e-6),
    "without backward": Case(loop=without_backward),
    "fails midway": Case(loop=fails_midway, optimizer=sgd, oracle="alone", tolerance=1e-6),
    "frozen midway": Case(loop=freeze_midway, unused=True),
    "tied": Case(model=Tied, optimizer=nesterov),
    "tied, decayed": Case(model=Tied, optimizer=OPTIMIZERS["adamw"]),
    "sparse": Case(
        model=partial(Tied, sparse=True),
        optimizer=sgd,
        options={"sparse": "densify"},
        oracle="alone",
        tolerance=1e-6,
    ),
    "unused": Case(model=Changing, unused=True),
    "unused, kept tensors": Case(
        model=Changing, unused=True, loop=keep_tensors, optimizer=nesterov
    ),
    "unused, accumulated": Case(model=Changing, unused=True, loop=accumulate),
    "unused, clipped": Case(model=Changing, unused=True, loop=clip, barriers=every("gradient")),
    "unused by all": Case(model=Sometimes, unused=True, optimizer=nesterov),
    "unused by all, zero_grad after": Case(
        model=Sometimes,
        unused=True,
        optimizer=nesterov,
        loop=partial(zero_after, set_to_none=False),
    ),
    "unused by all, kept tensors": Case(
        model=Sometimes, unused=True, optimizer=nesterov, loop=keep_tensors
    ),
    "attention": Case(model=Attention),
    "used elsewhere": Case(model=Elsewhere),
    "weight norm": Case(model=partial(Normed, old=False)),
    "weight norm by hook": Case(model=partial(Normed, old=True)),
    "convolutions": Case(model=Convolutions, alike=False),
    "convolutions, accumulated": Case(model=Convolutions, loop=accumulate, alike=False),
    "recurrent": Case(model=Recurrent),
    "checkpoints": Case(model=partial(Checkpointed, reentrant=False)),
    "checkpoints, reentrant": Case(model=partial(Checkpointed, reentrant=True)),
    "checkpoints only": Case(model=AllCheckpointed),
    "checkpoints only, accumulated": Case(model=AllCheckpointed, loop=accumulate),
    "shared checkpoint": Case(model=partial(SharedCheckpoint, reentrant=False)),
    "shared checkpoint, reentrant": Case(
        model=partial(SharedCheckpoint, reentrant=True),
        optimizer=sgd,
        oracle="alone",
        tolerance=1e-6,
    ),
    "compiled blocks": Case(model=partial(Blocks, "in place")),
    "compiled blocks, wrapped": Case(model=partial(Blocks, "wrapped")),
    "no crossing": Case(options={"cross_barrier": False}),
    "no crossing, clipped": Case(options={"cross_barrier": False}, loop=clip),
    "no crossing, unused": Case(options={"cross_barrier": False}, model=Changing, unused=True),
    "no crossing, checkpoints only": Case(options={"cross_barrier": False}, model=AllCheckpointed),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_without(name, ranks_of, whole_graphs):
    case = CASES[name]
    if "compiled" in name:
        whole_graphs()
    results = ranks_of(both_ways)(name)
    for expected, by_transport in results:
        for transport, (got, barriers) in by_transport.items():
            assert case.barriers in (None, barriers), transport
            compare(expected, got, case.tolerance, transport)
    if case.alike:
        for transport in TRANSPORTS:
            left, right = (by_transport[transport][0] for _, by_transport in results)
            compare(left, right, 0, f"{transport}, rank by rank")


def compare(expected, got, tolerance, what):
    assert len(expected) == len(got), what
    for number, (left, right) in enumerate(zip(expected, got, strict=True)):
        apart = (left.double() - right.double()).abs().max().item() if left.numel() else 0
        assert apart <= tolerance, f"{what}: tensor {number} of {len(got)} is {apart} apart"


def both_ways(rank, name):
    """Train as the oracle does, then by `allrail.torch`, over each transport."""
    case = CASES[name]
    expected, _ = train(case.oracle, case, rank)
    dist.barrier()
    return expected, {each: train("art", case, rank, each) for each in TRANSPORTS}


def train(way, case, rank, transport=None):
    run = Run(way, case, rank, 2, transport)
    case.loop(run)
    result = run.result()
    art.release(run.model)
    return result
