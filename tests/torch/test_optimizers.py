"""Optimizers of others train as under `DistributedDataParallel`, bit for bit on two ranks."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402

STEPS = 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 24), nn.Linear(24, 4)

    def forward(self, x):
        return self.last(F.gelu(self.first(x)))


def batch(step, rank):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + rank))


def train(way, rank, make, *, inner=False, closure=False, steps=STEPS, model=Model):
    """Train; with `inner`, what `make` wraps is scheduled before it is wrapped."""
    torch.manual_seed(0)
    model = model()
    called = nn.parallel.DistributedDataParallel(model) if way == "ddp" else model
    scheduled = inner(model.parameters()) if inner else make(model.parameters())
    if way == "art":
        art.schedule(model, scheduled)
        art._of(model)[0]._transport.is_done = lambda *_: False
    optimizer = make(scheduled) if inner else scheduled
    torch.manual_seed(1)
    said = []
    for step in range(steps):
        optimizer.zero_grad()

        def loss(step=step):
            optimizer.zero_grad()
            loss = called(batch(step, rank)).square().mean()
            loss.backward()
            return loss

        loss()
        optimizer.step(*[loss] * closure)
        counts = [
            {name: each for name, each in group.items() if type(each) is int}
            for group in optimizer.param_groups
        ]
        said.append(copy.deepcopy(counts))
    barriers = art.barriers(model)
    art.synchronize()
    values = [p.detach().double().numpy().tolist() for p in model.parameters()]
    art.release(model)
    return values, said, barriers


def compare(rank, *arguments, **options):
    expected = train("ddp", rank, *arguments, **options)
    dist.barrier()
    got = train("art", rank, *arguments, **options)
    return expected, got


class Counted(torch.optim.Optimizer):
    """Counts in its groups, from the first step on, by which it corrects its bias and turns."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            group["twice"] = group.get("twice", 0) + 2
            lr = group["lr"] / (1 - 0.9 ** group["step"])
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 0.1)
                p.add_(mean if group["step"] % 3 else p.grad, alpha=-lr)


class Elapsed(Counted):
    """Also keeps a sum in its group that is no count."""

    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            group["elapsed"] = group.get("elapsed", 0.0) + group["lr"]


def counters(rank):
    return compare(rank, Counted), compare(rank, Elapsed)


def test_a_counter_in_a_group_is_counted_once_a_step(on_ranks):
    for counted, elapsed in on_ranks(counters):
        (expected, counts, _), (got, counts_got, barriers) = counted
        assert got == expected
        assert counts_got == counts
        assert counts[-1] == [{"step": STEPS, "twice": 2 * STEPS}]
        assert barriers == {}
        (expected, counts, _), (got, counts_got, barriers) = elapsed
        assert got == expected
        assert counts_got == counts
        assert barriers == {"optimizer": STEPS}


def saved(rank):
    """A checkpoint between two steps goes on with the same count, in another process or this."""
    torch.manual_seed(0)
    model = Model()
    optimizer = Counted(model.parameters())
    art.schedule(model, optimizer)
    for step in range(2):
        optimizer.zero_grad()
        model(batch(step, rank)).square().mean().backward()
        optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    art.synchronize()
    count = optimizer.param_groups[0]["step"]
    art.release(model)
    optimizer.step()
    return state["param_groups"][0]["step"], count, optimizer.param_groups[0]["step"]


def test_a_counter_is_saved_as_it_is_counted(on_ranks):
    assert on_ranks(saved) == [(2, 2, 3)] * 2


# -- optimizers that hold another one


class Lookahead(torch.optim.Optimizer):
    """Every second step goes back half of the way; made without torch's own hooks, as many are."""

    def __init__(self, optimizer):
        self.optimizer, self.count, self.cleared = optimizer, 0, 0
        self.slow = {p: p.detach().clone() for g in optimizer.param_groups for p in g["params"]}

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    def zero_grad(self):
        self.cleared += 1
        self.optimizer.zero_grad()

    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        self.count += 1
        if self.count % 2 == 0:
            for p, slow in self.slow.items():
                slow.add_(p.data - slow, alpha=0.5)
                p.data.copy_(slow)
        return loss


class Sam(torch.optim.Optimizer):
    """Climbs, asks for gradients there, comes back and steps."""

    def __init__(self, params):
        super().__init__(params, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self, closure):
        kept = [[(p, p.grad * 0.05) for p in g["params"]] for g in self.param_groups]
        for p, climb in (each for group in kept for each in group):
            p.add_(climb)
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        for p, climb in (each for group in kept for each in group):
            p.sub_(climb)
        self.base.step()
        return loss


def adam(params):
    return torch.optim.Adam(params, lr=0.02)


def averaging(optimizer):
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=2, warmup_steps=0))


def wrappers(rank):
    return {
        "the wrapper is scheduled": compare(rank, lambda p: Lookahead(adam(p))),
        "what it wraps is scheduled": compare(rank, Lookahead, inner=adam),
        "PostLocalSGDOptimizer": compare(rank, lambda p: averaging(adam(p))),
        "PostLocalSGDOptimizer around": compare(rank, averaging, inner=adam),
        "a second backward pass": compare(rank, Sam, closure=True),
    }


def test_optimizers_that_hold_another_one(on_ranks):
    for said in on_ranks(wrappers):
        for name, ((expected, _, _), (got, _, _)) in said.items():
            assert got == expected, name


# -- every optimizer of a library that has most of those that were published

# They need a closure, or a model that trains otherwise.
NOT_PLAIN = {"adalomo", "alig", "bsam", "demo", "lbfgs", "lomo", "sophiah", "adahessian"}
MATRICES = {"spectralsphere"}


def of_library(rank):
    import pytorch_optimizer

    warnings.simplefilter("ignore")
    said = {}
    for name in sorted(pytorch_optimizer.get_supported_optimizers()):
        if name in NOT_PLAIN:
            continue
        kind = pytorch_optimizer.load_optimizer(name)

        def make(params, kind=kind):
            return kind(params, lr=0.01)

        try:
            make(Model().parameters())
            alone = train("alone", rank, make)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is so without allrail
            said[name] = f"{type(error).__name__}: {error}"
            continue
        del alone
        said[name] = compare(rank, make)
    for wrapper in ("Lookahead", "TRAC", "OrthoGrad"):
        wrap = getattr(pytorch_optimizer, wrapper)
        said[wrapper] = compare(rank, lambda params, wrap=wrap: wrap(adam(params)))
        said[f"{wrapper} around"] = compare(rank, wrap, inner=adam)
    return said


@pytest.mark.long
def test_optimizers_of_pytorch_optimizer(on_ranks):
    pytest.importorskip("pytorch_optimizer")
    for said in on_ranks(of_library, timeout=600):
        tried = {name: result for name, result in said.items() if not isinstance(result, str)}
        for name, ((expected, counts, _), (got, counts_got, _)) in tried.items():
            assert got == expected, name
            assert counts_got == counts, name
        crossed = [name for name, (_, (_, _, barriers)) in tried.items() if barriers == {}]
        assert len(crossed) >= 80, sorted(set(tried) - set(crossed))
