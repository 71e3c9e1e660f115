"""Steps that do not wait for the slowest ranks, against the same steps in one process.

Who is late is decided by messages, not by time.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402

STEPS = 10


def model_of(seed=0, *, norm=False):
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 8), nn.BatchNorm1d(8) if norm else nn.Tanh(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double()


def gradients(model, rank, step):
    drawn = torch.Generator().manual_seed(1000 * step + rank)
    batch = torch.randn(5, 6, generator=drawn, dtype=torch.float64)
    model.zero_grad()
    model(batch).square().mean().backward()
    return [each.grad.clone() for each in model.parameters()]


def adam(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)


def train(rank, late, norm):
    """One rank makes its second pass when the others have said that they have made five."""
    model = model_of(rank, norm=norm)
    optimizer, rates = adam(model)
    art.schedule(model, optimizer, backup_workers=1)
    scheduled = art._scheduled[id(model)]
    log, came, brought, told = [], [], [], False
    hooks = [
        optimizer.register_step_pre_hook(lambda *_: came.append(scheduled._pending[0].came)),
        optimizer.register_step_post_hook(
            lambda *_: log.append([each.detach().clone() for each in model.parameters()])
        ),
    ]
    while (step := min(art.steps(model).values())) < STEPS:
        if rank == late and len(brought) == 1:
            for other in range(dist.get_world_size()):
                if other != late:
                    dist.recv(torch.zeros(1), src=other)
        gradients(model, rank, step)
        optimizer.step()
        rates.step()
        brought.append(step)
        if rank != late and step >= 4 and not told:
            dist.send(torch.zeros(1), dst=late)
            told = True
    art.release(model)
    for hook in hooks:
        hook.remove()
    buffers = [each.clone() for each in model.buffers() if each.is_floating_point()]
    return log, came, brought, buffers, optimizer.param_groups[0]["lr"]


def same_on_all(said):
    for log, came, *_ in said:
        assert len(log) == len(came) >= STEPS
        for mine, first in zip(log, said[0][0], strict=False):
            assert all(torch.equal(one, other) for one, other in zip(mine, first, strict=True))


@pytest.mark.parametrize("ranks", [3, 4])
def test_replicas_make_the_same_steps_though_one_is_late(ranks_of, ranks):
    said = ranks_of(train, ranks=ranks)(ranks - 1, False)
    same_on_all(said)
    log, came, *_ = max(said, key=lambda one: len(one[0]))
    brought = [one[2] for one in said]
    # The last rank leaves out steps that the others have made meanwhile.
    assert tuple(range(ranks - 1)) in came[:5]
    assert len(brought[-1]) < len(log)
    # The same in one process, from who came to each step.
    model = model_of()
    optimizer, _ = adam(model)
    for step, who in enumerate(came):
        each = [gradients(model, rank, step) for rank in who]
        for parameter, *grads in zip(model.parameters(), *each, strict=True):
            parameter.grad = sum(grads) / len(grads)
        passes = max(brought[rank].index(step) for rank in who)
        optimizer.param_groups[0]["lr"] = 0.05 * 0.5 ** (passes // 3)
        optimizer.step()
        for one, other in zip(log[step], model.parameters(), strict=True):
            torch.testing.assert_close(one, other.detach(), rtol=1e-9, atol=1e-12)
    # What the script's scheduler has made of the learning rate is each rank's own.
    for *_, passes, _, rate in said:
        assert rate == pytest.approx(0.05 * 0.5 ** (len(passes) // 3))


def test_buffers_are_averages_of_those_that_came(ranks_of):
    said = ranks_of(train, ranks=3)(2, True)
    same_on_all(said)
    # Ranks that have made the same last step have the same statistics.
    ends = {}
    for log, _, _, buffers, _ in said:
        first = ends.setdefault(len(log), buffers)
        assert all(torch.equal(one, other) for one, other in zip(buffers, first, strict=True))
    assert len(ends) < 3


def plain(rank, backup):
    model = model_of(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    art.schedule(model, optimizer, job={"schema_version": 1, "backup_workers": backup})
    for step in range(3):
        gradients(model, rank, step)
        model[0].bias.grad = None  # unused on all ranks
        optimizer.step()
    art.release(model)
    return [each.detach() for each in model.parameters()], optimizer.state[model[0].bias]


def test_the_job_file_says_it_too_and_what_has_no_gradient_makes_no_step(ranks_of):
    said = ranks_of(plain, ranks=3)(1)
    for parameters, state in said:
        assert not state
        assert torch.equal(parameters[1], model_of().state_dict()["0.bias"])


REFUSED = [
    ({"backup_workers": 3}, "there are 3 ranks, and a step needs one at least"),
    ({"backup_workers": 30}, "there are 3 ranks, and a step needs one at least"),
    ({"backup_workers": -1}, "it is no number of ranks"),
    ({"backup_workers": 1, "every": 4}, "gradients travel whole"),
    ({"backup_workers": 1, "compression": "fp16"}, "gradients travel whole"),
    ({"backup_workers": 1, "tune": True}, "gradients travel whole"),
    ({"backup_workers": 1, "undo": True}, "gradients travel whole"),
    ({"backup_workers": 1, "transport": "c10d"}, "gradients travel whole"),
    (
        {
            "backup_workers": 1,
            "job": {"schema_version": 1, "schedule": {"tensor": {"policy": "fifo"}}},
        },
        "gradients travel whole",
    ),
]


def refusals(rank):
    errors = []
    for options, _ in REFUSED:
        model = model_of(rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(InputError) as raised:
            art.schedule(model, optimizer, **options)
        errors.append(raised.value.why)
    model = model_of(rank)
    optimizer = torch.optim.LBFGS(model.parameters())
    art.schedule(model, optimizer, backup_workers=1)
    with pytest.raises(InputError) as raised:
        optimizer.step(lambda: 0.0)
    errors.append(raised.value.why)
    art.release(model)
    both = [torch.optim.SGD([each], lr=0.1) for each in model.parameters()]
    with pytest.raises(InputError) as raised:
        art.schedule(model, both, backup_workers=1)
    errors.append(raised.value.why)
    return errors


def test_what_does_not_go_together_is_refused(ranks_of):
    for said in ranks_of(refusals, ranks=3)():
        for (_, wanted), error in zip(REFUSED, said, strict=False):
            assert wanted in error
        assert "in the middle of a step" in said[-2]
        assert "there are 4" in said[-1]
