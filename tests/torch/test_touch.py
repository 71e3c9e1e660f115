"""What a script reads and writes of parameters between two steps is what it would be without.

Each idiom runs after every `optimizer.step()`, while the steps of all parameters are pending, once
under `DistributedDataParallel` and once under `allrail.torch`. What it returns, the parameters and
the optimizer's state are the same, bit for bit on two ranks.
"""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.torch.touch import Unstepped  # noqa: E402

STEPS = 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 24), nn.Linear(24, 4)
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.last(F.gelu(self.first(x))) * self.gain


class Run:
    """One training: by `ddp`, `alone` with the data of both ranks, or by `art`.

    By `art` no exchange is over before somebody waits for it.
    """

    def __init__(self, way, rank, make=Model, optimizer=None, prepare=None, **options):
        torch.manual_seed(0)
        self.way, self.rank, self.kept = way, rank, {}
        self.model = make()
        if prepare is not None:
            prepare(self)
        make_optimizer = optimizer or (lambda p: torch.optim.Adam(p, lr=0.01))
        self.optimizer = make_optimizer(self.model.parameters())
        self.called = self.model
        if way == "ddp":
            self.called = nn.parallel.DistributedDataParallel(self.model)
        elif way == "art":
            art.schedule(self.model, self.optimizer, **options)
            art._of(self.model)[0]._transport.is_done = lambda *_: False

    @property
    def parameters(self):
        return list(self.model.parameters())

    def input(self, step, rank=None):
        seed = 10 * step + (self.rank if rank is None else rank)
        return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))

    def backward(self, step):
        self.optimizer.zero_grad()
        ranks = range(2) if self.way == "alone" else [self.rank]
        losses = [self.called(self.input(step, rank)).square().mean() for rank in ranks]
        (sum(losses) / len(ranks)).backward()

    def keep(self, name, make):
        """What an idiom keeps from one step to the next, made when it is first asked for."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]


def seen(value):
    """Anything that an idiom returns, in a form that can be compared and sent."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().cpu().double().numpy().tolist()
    if isinstance(value, dict):
        return [(str(key), seen(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [seen(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def train(way, rank, touch, *, pending=True, **options):
    run = Run(way, rank, **options)
    said = []
    for step in range(STEPS):
        run.backward(step)
        run.optimizer.step()
        if way == "art" and pending:
            assert any(type(each) is Unstepped for each in run.parameters), "nothing is pending"
        said.append(seen(touch(run)))
    art.synchronize()
    state = [run.optimizer.state[each] for each in run.parameters]
    said.append(seen([run.parameters, state, dict(run.model.state_dict())]))
    assert not any(isinstance(each, Unstepped) for each in run.parameters)
    art.release(run.model)
    return said


# -- reading


def each(read):
    return lambda run: [read(parameter) for parameter in run.parameters]


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def printed(run):
    return "\n".join(repr(p).replace("Unstepped", "Parameter") for p in run.parameters)


def histogram(run):
    return [p.clone().cpu().data.numpy().flatten().sum() for p in run.parameters]


def gathered(run):
    vector = nn.utils.parameters_to_vector(run.model.parameters())
    return vector, vector.norm()


def functional(run):
    parameters = {name: p.detach() for name, p in run.model.named_parameters()}
    return torch.func.functional_call(run.model, parameters, (run.input(9),))


def functional_live(run):
    return torch.func.functional_call(
        run.model, dict(run.model.named_parameters()), (run.input(9),)
    )


def loss_of(run):
    return lambda parameters: (
        torch.func.functional_call(run.model, parameters, (run.input(9),)).square().mean()
    )


def func_grad(run):
    return torch.func.grad(loss_of(run))(dict(run.model.named_parameters()))


def func_grad_detached(run):
    detached = {name: p.detach() for name, p in run.model.named_parameters()}
    return torch.func.grad(loss_of(run))(detached)


def func_grad_direct(run):
    x = run.input(9)
    return torch.func.grad(lambda w: F.linear(x, w).square().mean())(run.model.first.weight)


def func_hessian(run):
    return torch.func.hessian(lambda b: (b**3).sum())(run.model.last.bias)


def func_vjp(run):
    _, pull = torch.func.vjp(lambda w: w.square().sum(0), run.model.last.weight)
    return pull(torch.ones(24))


def func_jvp(run):
    weight = run.model.last.weight.detach()
    return torch.func.jvp(lambda w: w.square().sum(), (weight,), (torch.ones_like(weight),))


def func_vmap(run):
    return torch.func.vmap(lambda row: row.norm())(run.model.first.weight)


def func_per_sample(run):
    """Gradients of each example: the model runs within `grad` within `vmap`."""
    parameters = dict(run.model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(run.model, parameters, (x[None],)).square().mean()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, run.input(9))


def func_grad_within(run):
    """The model itself is called within a transform of something else."""
    return torch.func.grad(lambda x: run.model(x).square().mean())(run.input(9))


def ensemble(run):
    parameters, _ = torch.func.stack_module_state([run.model, run.model])
    return parameters


def in_thread(run):
    said = []
    thread = threading.Thread(
        target=lambda: said.extend(p.detach().clone() for p in run.parameters)
    )
    thread.start()
    thread.join()
    return said


def in_fork(run):
    """A worker, such as of a DataLoader, reads what it was forked with."""
    mine, theirs = multiprocessing.Pipe()
    pid = os.fork()
    if not pid:
        theirs.send(seen(run.parameters))
        os._exit(0)
    said = mine.recv()
    os.waitpid(pid, 0)
    return said


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p):
        ctx.save_for_backward(p)
        return p * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


def autograd_grad(run):
    total = sum(p.square().sum() for p in run.parameters)
    return torch.autograd.grad(total, run.parameters)


def under_inference(run):
    with torch.inference_mode():
        return [p.sum() for p in run.parameters]


def under_autocast(run):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return F.linear(run.input(9), run.model.first.weight).float()


def under_modes(run):
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("cpu"), FlopCounterMode(display=False), torch.no_grad():
        return run.model.first.weight @ torch.ones(16, 2)


def traced(run):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(run.model, run.input(9))(run.input(9))


def exported(run):
    program = torch.export.export(run.model, (run.input(9),))
    return program.module()(run.input(9))


def symbolically(run):
    return torch.fx.symbolic_trace(run.model)(run.input(9))


def kept_best(run):
    """A state of before this step, deeply copied or not."""
    best = run.keep("best", lambda: copy.deepcopy(run.model.state_dict()))
    return [best, run.model.state_dict()]


def pickled(run):
    return [p.detach() for p in pickle.loads(pickle.dumps(list(run.parameters)))]


def optimizer_state(run):
    state = run.optimizer.state
    return [len(state), *(state[p]["exp_avg"] for p in run.parameters), list(state)[0]]  # noqa: RUF015


def optimizer_pickled(run):
    return copy.deepcopy(run.optimizer).state_dict(), type(run.optimizer.state.copy()).__name__


def numpy_views(run):
    return [np_of(p) for p in run.parameters]


def np_of(p):
    import numpy as np

    return np.asarray(p.detach()).copy()


READS = {
    "p.data": each(lambda p: p.data),
    "p.detach()": each(lambda p: p.detach()),
    "p.clone()": each(lambda p: p.clone()),
    "p.detach().numpy()": each(lambda p: p.detach().numpy().copy()),
    "np.asarray": numpy_views,
    "p.data.cpu().numpy()": each(lambda p: p.data.cpu().numpy().copy()),
    "p.tolist()": each(lambda p: p.tolist()),
    "p.item()": lambda run: run.model.gain.item(),
    "float(p)": lambda run: float(run.model.gain),
    "bool(p)": lambda run: bool(run.model.gain),
    "format": lambda run: f"{run.model.gain.item():.9f}",
    "print": printed,
    "p.sum()": each(lambda p: p.sum()),
    "p.norm()": each(lambda p: p.norm()),
    "torch.norm": each(torch.norm),
    "linalg": each(torch.linalg.vector_norm),
    "linalg.svdvals": lambda run: torch.linalg.svdvals(run.model.first.weight),
    "nn.utils.get_total_norm": lambda run: nn.utils.get_total_norm(run.parameters),
    "p.isnan().any()": each(lambda p: p.isnan().any()),
    "p.abs().max()": each(lambda p: p.abs().max()),
    "mean, std": each(lambda p: (p.mean(), p.std(correction=0))),
    "p[0]": lambda run: run.model.first.weight[0],
    "p[mask]": lambda run: run.model.first.weight[run.model.first.weight > 0],
    "for row in p": lambda run: [row.sum() for row in run.model.first.weight],
    "x in p": lambda run: (run.model.first.weight == 0).any(),
    "p > 0": each(lambda p: p > 0),
    "torch.equal": each(lambda p: torch.equal(p, torch.zeros_like(p))),
    "torch.allclose": each(lambda p: torch.allclose(p, p * 1.0)),
    "1 - p": each(lambda p: 1 - p),
    "x @ p": lambda run: run.input(9) @ run.model.first.weight.T,
    "p.T": lambda run: run.model.first.weight.T,
    "p.view(-1)": each(lambda p: p.view(-1)),
    "F.linear": lambda run: F.linear(run.input(9), run.model.first.weight),
    "F.normalize": lambda run: F.normalize(run.model.first.weight, dim=1),
    "torch.cat": lambda run: torch.cat([p.flatten() for p in run.parameters]),
    "torch.stack": lambda run: torch.stack([run.model.gain, run.model.gain]),
    "torch.where": each(lambda p: torch.where(p > 0, p, 0)),
    "out=": each(lambda p: torch.mul(p.detach(), 2, out=torch.empty_like(p))),
    "parameters_to_vector": gathered,
    "_foreach_norm": lambda run: torch._foreach_norm(run.parameters),
    "torch.ops": each(torch.ops.aten.sum.default),
    "histogram": histogram,
    "p.cpu()": each(lambda p: p.cpu()),
    "p.to(dtype)": each(lambda p: p.to(torch.float64)),
    "p.half()": each(lambda p: p.half().float()),
    "p.type(...)": each(lambda p: p.type(torch.float64)),
    "new.copy_(p)": each(lambda p: torch.empty(p.shape).copy_(p.detach())),
    "new.set_": each(lambda p: torch.empty(0).set_(p.detach())),
    "p.untyped_storage()": each(lambda p: list(p.untyped_storage())),
    "p.storage()": each(lambda p: p.storage().tolist()),
    "p.data_ptr()": each(lambda p: bool(p.data_ptr()) and p),
    "from_dlpack": each(lambda p: torch.from_dlpack(p.detach())),
    "to_dlpack(p.detach())": each(
        lambda p: torch.from_dlpack(torch.utils.dlpack.to_dlpack(p.detach()))
    ),
    "np.from_dlpack": each(lambda p: __import__("numpy").from_dlpack(p.detach())),
    "copy.copy(p)": each(copy.copy),
    "copy.deepcopy(p)": each(copy.deepcopy),
    "copy.deepcopy(model)": lambda run: list(copy.deepcopy(run.model).parameters()),
    "pickle": pickled,
    "torch.save(p)": lambda run: saved(run.parameters),
    "torch.save(model)": lambda run: list(saved(run.model).parameters()),
    "torch.save(state_dict)": lambda run: saved(run.model.state_dict()),
    "state_dict": lambda run: run.model.state_dict(),
    "state_dict of a part": lambda run: run.model.last.state_dict(),
    "best state": kept_best,
    "named_parameters": lambda run: {n: p.detach() for n, p in run.model.named_parameters()},
    "a part is called": lambda run: run.model.first(run.input(9)),
    "called without gradients": torch.no_grad()(lambda run: run.model(run.input(9))),
    "functional_call": functional,
    "functional_call, live": functional_live,
    "func.grad": func_grad,
    "func.grad, detached": func_grad_detached,
    "func.grad of a parameter": func_grad_direct,
    "func.grad around the model": func_grad_within,
    "func.hessian": func_hessian,
    "func.vjp": func_vjp,
    "func.jvp, detached": func_jvp,
    "func.vmap": func_vmap,
    "func, per sample": func_per_sample,
    "stack_module_state": ensemble,
    "another thread": in_thread,
    "a fork": in_fork,
    "autograd.Function": each(Doubled.apply),
    "autograd.grad": autograd_grad,
    "inference mode": under_inference,
    "autocast": under_autocast,
    "modes": under_modes,
    "jit.trace": traced,
    "export": exported,
    "fx": symbolically,
    "optimizer.state": optimizer_state,
    "optimizer copied": optimizer_pickled,
    "optimizer.state_dict": lambda run: run.optimizer.state_dict(),
    "dict(optimizer.state)": lambda run: list(dict(run.optimizer.state).values()),
    "param_groups": lambda run: [p.sum() for g in run.optimizer.param_groups for p in g["params"]],
}


# -- writing


def unwatched(write):
    """A write to each parameter, without gradients."""

    @torch.no_grad()
    def touch(run):
        for parameter in run.parameters:
            write(parameter)

    return touch


def foreach(run):
    with torch.no_grad():
        torch._foreach_mul_(run.parameters, 0.9)
        torch._foreach_add_(run.parameters, [p.detach() for p in run.parameters], alpha=0.01)


def replaced(run):
    for p in run.parameters:
        p.data = p.data.clone() * 0.9


def replaced_blindly(run):
    for p in run.parameters:
        p.data = torch.full_like(p, 0.25)


def vectors(run):
    vector = nn.utils.parameters_to_vector(run.model.parameters())
    nn.utils.vector_to_parameters(vector * 0.9, run.model.parameters())


def decayed(run):
    for group in run.optimizer.param_groups:
        for p in group["params"]:
            p.data.mul_(1 - group["lr"] * 0.1)


def averaged(run):
    """A moving average by hand, used in the end."""
    mean = run.keep("mean", lambda: [p.detach().clone() for p in run.parameters])
    with torch.no_grad():
        for kept, p in zip(mean, run.parameters, strict=True):
            kept.lerp_(p, 0.25)
    return mean


def averaged_model(run):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    swa = run.keep("swa", lambda: AveragedModel(run.model))
    ema = run.keep("ema", lambda: AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(0.9)))
    swa.update_parameters(run.model)
    ema.update_parameters(run.model)
    return list(swa.module.parameters()), list(ema.module.parameters())


def polyak(run):
    target = run.keep("target", lambda: copy.deepcopy(run.model))
    with torch.no_grad():
        for kept, p in zip(target.parameters(), run.parameters, strict=True):
            kept.data.copy_(0.9 * kept.data + 0.1 * p.data)
    return list(target.parameters())


def reptile(run):
    start = run.keep("start", lambda: [p.detach().clone() for p in run.parameters])
    for kept, p in zip(start, run.parameters, strict=True):
        p.data = kept + 0.5 * (p.data - kept)


def swapped_for_evaluation(run):
    """Averages are put in the parameters' place and taken out again, by their memory."""
    mean = averaged(run)
    backup = [p.data for p in run.parameters]
    for p, kept in zip(run.parameters, mean, strict=True):
        p.data = kept.clone()
    with torch.no_grad():
        said = run.model(run.input(9))
    for p, kept in zip(run.parameters, backup, strict=True):
        p.data = kept
    return said


def rewound(run):
    start = run.keep("start", lambda: copy.deepcopy(run.model.state_dict()))
    for name, p in run.model.named_parameters():
        mask = (p.abs() > 0.05).float()
        p.data = start[name] * mask


def masked(run):
    masks = run.keep("masks", lambda: [(p.detach().abs() > 0.05).float() for p in run.parameters])
    for p, mask in zip(run.parameters, masks, strict=True):
        p.data.mul_(mask)


def pruned(run):
    prune.l1_unstructured(run.model.first, "weight", amount=0.3)
    prune.remove(run.model.first, "weight")


def initialised(run):
    torch.manual_seed(7)
    nn.init.xavier_uniform_(run.model.first.weight)
    nn.init.zeros_(run.model.first.bias)
    nn.init.trunc_normal_(run.model.last.weight, std=0.1)
    run.model.last.reset_parameters()


def loaded(run):
    state = run.keep("state", lambda: copy.deepcopy(run.model.state_dict()))
    run.model.load_state_dict(state)


def loaded_in_place(run):
    """A checkpoint read into the tensors of `state_dict`, as torch.distributed.checkpoint does."""
    for value in run.model.state_dict().values():
        value.mul_(0.9)


def indexed(run):
    with torch.no_grad():
        run.model.first.weight[0] = 0.5
        run.model.first.weight[1:3, ::2] *= 2
        run.model.last.weight[run.model.last.weight > 0.1] = 0.1
        run.model.gain.fill_(1.25)


def spectral(run):
    with torch.no_grad():
        weight = run.model.first.weight
        weight.div_(torch.linalg.matrix_norm(weight, 2).clamp(min=1))


def noisy(run):
    generator = torch.Generator().manual_seed(3)
    for p in run.parameters:
        p.data.add_(torch.randn(p.shape, generator=generator), alpha=0.01)


def frozen_part(run):
    run.model.last.bias.requires_grad_(requires_grad=False).mul_(0.5)
    run.model.last.bias.requires_grad_()


def by_state_of_optimizer(run):
    for state in run.optimizer.state.values():
        state["exp_avg"].zero_()


def optimizer_reset(run):
    run.optimizer.state.clear()
    for p in run.parameters:
        run.optimizer.state[p]


def hyperparameters(run):
    for group in run.optimizer.param_groups:
        group["lr"] *= 0.5
        group["betas"] = (0.8, 0.99)


def groups_split(run):
    if len(run.optimizer.param_groups) == 1:
        moved = run.optimizer.param_groups[0]["params"].pop()
        run.optimizer.add_param_group({"params": [moved], "lr": 0.5})


def modules_swapped(run):
    run.model.first, run.model.last = run.model.first, copy_into(run.model.last)


def copy_into(linear):
    """Another module, with the parameters of this one."""
    other = nn.Linear(linear.in_features, linear.out_features)
    other.weight, other.bias = linear.weight, linear.bias
    return other


def synchronised_by_hand(run):
    for p in run.parameters:
        dist.broadcast(p.data, 0)
        dist.all_reduce(p.data)
        p.data /= 2


def synchronised_whole(run):
    with torch.no_grad():
        for p in run.parameters:
            dist.all_reduce(p)
            p.div_(2)
            dist.broadcast(p, 0)


def in_place_by_numpy(run):
    for p in run.parameters:
        array = p.detach().numpy()
        array *= 0.9


def by_storage(run):
    for p in run.parameters:
        p.untyped_storage()[0:4] = 0


def shared(run):
    for p in run.parameters:
        p.share_memory_()
    return [p.is_shared() for p in run.parameters]


def by_pointer(run):
    """A library in C reads and writes by address."""
    import ctypes

    for p in run.parameters:
        numbers = (ctypes.c_float * p.numel()).from_address(p.data_ptr())
        numbers[0] = numbers[0] * 0.5


def out_of(run):
    with torch.no_grad():
        for p in run.parameters:
            torch.mul(p, 0.9, out=p)


def swapped_tensors(run):
    for p in run.parameters:
        other = torch.full_like(p, 0.25)
        with torch.no_grad():
            other, p.data = p.data, other


WRITES = {
    "p.data.clamp_": lambda run: [p.data.clamp_(-0.05, 0.05) for p in run.parameters] and None,
    "p.data.copy_": lambda run: [p.data.copy_(p.data * 2) for p in run.parameters] and None,
    "p.data.add_": lambda run: [p.data.add_(0.01) for p in run.parameters] and None,
    "p.data.mul_": lambda run: [p.data.mul_(0.9) for p in run.parameters] and None,
    "p.data.fill_": lambda run: [p.data.fill_(0.1) for p in run.parameters] and None,
    "p.data.zero_": lambda run: run.model.last.weight.data.zero_().sum(),
    "p.data = new": replaced,
    "p.data = other": replaced_blindly,
    "p.detach().mul_": lambda run: [p.detach().mul_(0.9) for p in run.parameters] and None,
    "p.clamp_": unwatched(lambda p: p.clamp_(-0.05, 0.05)),
    "p.mul_": unwatched(lambda p: p.mul_(0.9)),
    "p *= 0.9": unwatched(lambda p: p.__imul__(0.9)),
    "p.copy_": unwatched(lambda p: p.copy_(p.sign() * 0.1)),
    "p.zero_": unwatched(lambda p: p.zero_()),
    "p.data.renorm_": lambda run: run.model.first.weight.data.renorm_(2, 0, 0.5).sum(),
    "p.set_": unwatched(lambda p: p.set_(p.detach() * 0.9)),
    "out=p": out_of,
    "_foreach": foreach,
    "vector_to_parameters": vectors,
    "decay by hand": decayed,
    "average by hand": averaged,
    "AveragedModel": averaged_model,
    "Polyak": polyak,
    "Reptile": reptile,
    "average put in place": swapped_for_evaluation,
    "rewinding": rewound,
    "masks": masked,
    "prune": pruned,
    "nn.init": initialised,
    "load_state_dict": loaded,
    "state_dict written to": loaded_in_place,
    "p[0] =": indexed,
    "spectral clipping": spectral,
    "noise": noisy,
    "freeze, write, thaw": frozen_part,
    "optimizer.state written to": by_state_of_optimizer,
    "optimizer.state cleared": optimizer_reset,
    "param_groups edited": hyperparameters,
    "add_param_group": groups_split,
    "modules swapped": modules_swapped,
    "broadcast(p.data)": synchronised_by_hand,
    "all_reduce(p)": synchronised_whole,
    "numpy in place": in_place_by_numpy,
    "by pointer": by_pointer,
    "by storage": by_storage,
    "share_memory_": shared,
    "tensors swapped": swapped_tensors,
}

# -- parametrizations: what is trained stands behind what is read


def weight_normed(run):
    run.model.first = parametrizations.weight_norm(run.model.first)


def weight_normed_by_hook(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.model.first = nn.utils.weight_norm(run.model.first)


def spectral_normed(run):
    torch.manual_seed(3)
    run.model.first = parametrizations.spectral_norm(run.model.first)


def orthogonal(run):
    run.model.last = parametrizations.orthogonal(run.model.last)


def pruned_before(run):
    prune.random_unstructured(run.model.first, "weight", amount=0.3)


def weights(run):
    weight = run.model.first.weight, run.model.last.weight
    return [each * 2 for each in weight]


PREPARED = {
    "weight_norm": (weight_normed, weights),
    "weight_norm by hook": (weight_normed_by_hook, weights),
    "spectral_norm": (spectral_normed, weights),
    "orthogonal": (orthogonal, weights),
    "pruned": (pruned_before, weights),
}

# -- aliases that were taken before the step


def alias(make):
    def touch(run):
        kept = run.keep("alias", lambda: [make(p) for p in run.parameters])
        return [torch.as_tensor(each).clone() for each in kept]

    return touch


def alias_written(run):
    for kept in run.keep("alias", lambda: [p.data for p in run.parameters]):
        kept.mul_(0.9)


def alias_of_state(run):
    return run.keep("alias", run.model.state_dict)


def flat(run):
    """All parameters lie in one vector, by which a script decays them."""
    if "flat" not in run.kept:
        vector = nn.utils.parameters_to_vector(run.model.parameters()).detach().clone()
        nn.utils.vector_to_parameters(vector, run.model.parameters())
        run.kept["flat"] = vector
    run.kept["flat"].mul_(0.9)


ALIASES = {
    "p.data kept": alias(lambda p: p.data),
    "p.detach() kept": alias(lambda p: p.detach()),
    "numpy kept": alias(lambda p: p.detach().numpy()),
    "p.view kept": alias(lambda p: p.detach().view(-1)),
    "storage kept": alias(lambda p: torch.tensor(list(p.untyped_storage()))),
    "p.data kept, written to": alias_written,
    "state_dict kept": alias_of_state,
    "one vector": flat,
}

# -- compiled


def compiled(write):
    """A compiled function that holds the parameters; it is one graph, compiled once."""

    def touch(run):
        if "function" not in run.kept:
            torch._dynamo.reset()
            run.kept["counter"] = CompileCounterWithBackend("aot_eager")
            parameters = run.parameters
            run.kept["function"] = torch.compile(
                lambda: write(run, parameters), backend=run.kept["counter"], fullgraph=True
            )
        said = run.kept["function"]()
        assert run.kept["counter"].frame_count == 1
        return said

    return touch


def compiled_clip(run, parameters):
    with torch.no_grad():
        for p in parameters:
            p.clamp_(-0.05, 0.05)


def compiled_norm(run, parameters):
    return sum(p.detach().square().sum() for p in parameters)


def compiled_average(run, parameters):
    with torch.no_grad():
        for kept, p in zip(run.kept["mean"], parameters, strict=True):
            kept.lerp_(p, 0.25)
    return [kept.clone() for kept in run.kept["mean"]]


def with_mean(touch):
    def first(run):
        run.keep("mean", lambda: [p.detach().clone() for p in run.parameters])
        return touch(run)

    return first


def compiled_arguments(run):
    function = run.keep("function", lambda: torch.compile(lambda p: p * 2, backend="aot_eager"))
    return [function(p) for p in run.parameters]


def compiled_by_name(run):
    def total():
        return run.model.first.weight.sum()

    return run.keep("function", lambda: torch.compile(total, backend="eager"))()


COMPILED = {
    "compiled clipping": compiled(compiled_clip),
    "compiled norm": compiled(compiled_norm),
    "compiled average": with_mean(compiled(compiled_average)),
    "compiled, as arguments": compiled_arguments,
    "compiled, by name": compiled_by_name,
}

IDIOMS = {
    **{name: (touch, {}) for name, touch in (READS | WRITES | COMPILED).items()},
    **{name: (touch, {"prepare": prepare}) for name, (prepare, touch) in PREPARED.items()},
    **{name: (touch, {"pending": False}) for name, touch in ALIASES.items()},
}
IDIOMS["share_memory_"] = (shared, {"pending": False})
# A thread of gloo may let go of what it was given after the call is over: an alias until then.
IDIOMS["broadcast(p.data)"] = (synchronised_by_hand, {"pending": False})
# After `set_`, DDP goes on with the gradient of the memory before.
IDIOMS["p.set_"] = (WRITES["p.set_"], {"oracle": "alone"})


def both(rank, name):
    touch, options = IDIOMS[name]
    pending = options.get("pending", True)
    given = {key: value for key, value in options.items() if key != "pending"}
    oracle = given.pop("oracle", "ddp")
    expected = train(oracle, rank, touch, **given)
    return expected, train("art", rank, touch, pending=pending, **given)


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_sees_and_does_what_it_would_without(name, ranks_of):
    for expected, got in ranks_of(both)(name):
        assert expected == got


# -- all of them within a compiled region

THIN = (
    "p.data",
    "p.detach().numpy()",
    "func.grad around the model",
    "p.data.mul_",
    "p[0] =",
    "average by hand",
)
"""Idioms that are compiled in every run; the others take minutes, and are long."""
HELD = {"functional_call"}
"""What the compiler makes of these holds the memory of parameters: their steps are made at once."""


def in_region(rank, name):
    """Train with an idiom within a compiled function, without allrail and with it."""
    touch, options = IDIOMS[name]
    pending = options.get("pending", True) and name not in HELD
    given = {key: value for key, value in options.items() if key != "pending"}
    oracle = given.pop("oracle", "ddp")

    def compiled(run):
        def function():
            torch._dynamo.reset()
            return torch.compile(touch, backend="eager")

        return run.keep("region", function)(run)

    try:
        expected = train(oracle, rank, compiled, **given)
    except RuntimeError as error:  # torch's compiler does not take it
        with pytest.raises(type(error)):
            train("art", rank, compiled, pending=pending, **given)
        return [], []
    return expected, train("art", rank, compiled, pending=pending, **given)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in THIN else [pytest.mark.long])
        for name in IDIOMS
        if name not in COMPILED
    ],
)
def test_an_idiom_in_a_compiled_region_does_what_it_would_without(name, ranks_of):
    for expected, got in ranks_of(in_region)(name):
        assert expected == got
