"""Ways to exchange gradients: each equals the others; `auto` tries all, keeps the fastest."""

from __future__ import annotations

import contextlib
import io

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.search.tuning.each import Each  # noqa: E402
from allrail.search.tuning.live import Next  # noqa: E402
from allrail.search.tuning.space import Knob  # noqa: E402
from allrail.torch import timed  # noqa: E402
from allrail.torch.tune import MARGIN, Tune  # noqa: E402

WAYS = ("overlap", "reduce_scatter", "barrier", "plain")


def model_of(rank):
    torch.manual_seed(rank)  # rank 0's parameters are everybody's
    layers = [nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 600), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 4))


def trained(rank, exchange, steps, *, accumulate=False):
    """What training leaves, by DDP where `exchange` is None; and what was told."""
    model = model_of(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    called, apart = model, lambda: art.no_sync(model)
    if exchange is None:
        called = nn.parallel.DistributedDataParallel(model)
        apart = called.no_sync
    else:
        art.schedule(model, optimizer, job={"schema_version": 1, "exchange": exchange})
    # Made after `schedule`: it wraps the optimizer's step.
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.9)
    said = io.StringIO()
    draw = torch.Generator().manual_seed(10 + rank)
    with contextlib.redirect_stderr(said):
        for _ in range(steps):
            optimizer.zero_grad()
            if accumulate:
                with apart():
                    called(torch.randn(8, 32, generator=draw)).square().mean().backward()
            called(torch.randn(8, 32, generator=draw)).square().mean().backward()
            optimizer.step()
            scheduler.step()
    left = {**model.state_dict(), "lr": torch.tensor(scheduler.get_last_lr())}
    for place, state in optimizer.state_dict()["state"].items():
        left |= {f"{place}.{name}": value for name, value in state.items()}
    carrier = None
    if exchange is not None:
        carrier = type(art._of(model)[0]._carrier).__name__
        art.release(model)
    return {name: value.clone() for name, value in left.items()}, said.getvalue(), carrier


def check_alike(rank, exchange, steps, **options):
    ours, said, carrier = trained(rank, exchange, steps, **options)
    theirs, _, _ = trained(rank, None, steps, **options)
    differ = [name for name in theirs if not torch.equal(ours[name], theirs[name])]
    return differ, said, carrier


@pytest.mark.parametrize("exchange", WAYS)
def test_every_way_equals_ddp_bit_for_bit(exchange, on_ranks):
    for differ, said, carrier in on_ranks(lambda rank: check_alike(rank, exchange, 4)):
        assert (differ, said) == ([], "")
        assert carrier == ("Whole" if exchange == "plain" else "Native")


@pytest.mark.parametrize("best", ["overlap", "plain"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["", "accumulate"])
def test_auto_tries_each_and_keeps_the_fastest(best, accumulate, on_ranks, monkeypatch):
    monkeypatch.setattr(timed, "STEPS", 2)
    tried = []
    begin = Tune._begin

    def noted(self, way):
        tried.append(way.name)
        return begin(self, way)

    def measured(self, steps, before=Tune._measured):
        # One way is faster, whatever this machine is busy with.
        return before(self, [0.1 if self._way.name == best else 0.2] * len(steps))

    def body(rank):
        Tune._begin, Tune._measured = noted, measured
        steps = 4 * (timed.WARM + timed.STEPS) + 3
        return *check_alike(rank, "auto", steps, accumulate=accumulate), tried

    answers = on_ranks(body)
    for rank, (differ, said, carrier, ways) in enumerate(answers):
        assert differ == []
        assert ways == [*WAYS, best][: 4 if best == "plain" else 5]
        assert carrier == ("Whole" if best == "plain" else "Native")
        assert (said.count("\n"), f"`{best}`" in said) == ((1, True) if rank == 0 else (0, False))
        assert all(f"`{name}`" in said for name in WAYS) == (rank == 0)


def kept(times):
    """What stays of ways that take so long, and what is said of it."""
    search = Each(Knob("exchange", tuple(times)), plain="plain", least=MARGIN)
    first, *others = times
    for time, following in zip(times.values(), others, strict=False):
        assert search.told(time, 0.0) == Next({"exchange": following}, over=False)
    ended = search.told(times[next(reversed(times))], 0.0)
    assert ended.over
    return ended.sets.get("exchange", first), search.said


def test_what_is_not_clearly_faster_than_plain_is_not_kept():
    best, said = kept({"overlap": 90.0, "barrier": 95.0, "plain": 100.0})
    assert best == "overlap"
    assert said == (
        "exchange `overlap`, the fastest: 90.00 ms a step; `barrier` 95.00, `plain` 100.00"
    )
    best, said = kept({"overlap": 99.0, "barrier": 120.0, "plain": 100.0})
    assert best == "plain"
    assert said.startswith("exchange `plain`, no other is faster by 2 %: 100.00 ms a step; ")
    assert kept({"overlap": 101.0, "plain": 100.0})[0] == "plain"


def refused(rank):
    answers = []
    rows = [
        ({"exchange": "auto", "compression": "bf16"}, {}),
        ({"exchange": "auto"}, {"every": 2}),
        ({"exchange": "reduce_scatter", "transport": "c10d"}, {}),
        ({"exchange": "fastest"}, {}),
    ]
    for keys, options in rows:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(InputError) as error:
            art.schedule(model, optimizer, job={"schema_version": 1, **keys}, **options)
        answers.append(str(error.value))
    return answers


def test_what_does_not_go_together_says_so(on_ranks):
    for compressed, every, ordered, unknown in on_ranks(refused):
        assert "leave `exchange: auto` or `compression` out" in compressed
        assert "leave `exchange: auto` or `every` out" in every
        assert "`overlap`, `plain`" in ordered
        assert "`exchange`" in unknown
