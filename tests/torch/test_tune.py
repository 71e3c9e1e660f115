"""A running job is tuned: all ranks change at the same step, and it never ends slower."""

from __future__ import annotations

import contextlib
import io
import random
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
pytest.importorskip("optuna", reason="`allrail[tune]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.search.tuning import live  # noqa: E402
from allrail.search.tuning.live import Live, typical  # noqa: E402
from allrail.search.tuning.searcher import Searcher  # noqa: E402
from allrail.search.tuning.space import Knob  # noqa: E402
from allrail.torch import timed  # noqa: E402
from allrail.torch.tune import Tune, knobs  # noqa: E402

SPACE = (Knob("a", tuple(range(8))), Knob("b", tuple(range(8))))


def ended(cost, seed, *, noise=0.0):
    """What tuning of a made-up job ends with, and how often it measured."""
    one = Live(Searcher(SPACE, seed=seed, noisy=True))
    drawn = random.Random(seed)
    sets, count = {}, 0
    while True:
        steps = [cost(sets) * (1 + noise * drawn.gauss(0, 1)) for _ in range(10)]
        count += 1
        following = one.told(*typical(steps))
        sets = following.sets
        if following.over:
            return sets, count


def bowl(sets):
    return 100.0 + 2 * (sets["a"] - 5) ** 2 + 2 * (sets["b"] - 2) ** 2 if sets else 150.0


def flat(sets):
    return 100.0


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_finds_what_is_faster_in_few_trials(noise):
    for seed in range(2):
        sets, count = ended(bowl, seed, noise=noise)
        assert bowl(sets) < 125.0
        assert count <= live.TRIALS


def test_where_nothing_helps_the_start_stays():
    for seed in range(3):
        sets, count = ended(flat, seed, noise=0.05)
        assert sets == {}
        assert count <= live.TRIALS


def test_what_was_luck_is_found_out():
    """The first time something is measured it looks fast, the second time it is as the start."""
    seen = set()

    def lucky(sets):
        key = tuple(sorted(sets.items()))
        first = key not in seen
        seen.add(key)
        return 80.0 if first and sets else 100.0

    assert ended(lucky, 0)[0] == {}


def test_it_never_ends_slower_than_it_began():
    for seed in range(3):
        worse = ended(lambda sets: 120.0 + sets["a"] if sets else 100.0, seed, noise=0.02)
        assert worse[0] == {}


def changing(cost, a_trial):
    """A job on a machine that is another part slower or faster in each trial of ten steps."""
    steps = []

    def drifting(sets):
        steps.append(sets)
        return cost(sets) * (1 + a_trial) ** ((len(steps) - 1) // 10)

    return drifting


@pytest.mark.parametrize("a_trial", [-0.05, -0.03, -0.01, 0.01, 0.03])
def test_a_machine_that_becomes_faster_or_slower_is_no_gain(a_trial):
    for seed in range(2):
        slower = changing(lambda sets: 102.0 if sets else 100.0, a_trial)
        assert ended(slower, seed)[0] == {}


@pytest.mark.parametrize("a_trial", [-0.01, 0.01])
def test_what_is_faster_is_found_while_the_machine_changes(a_trial):
    for seed in range(2):
        sets, count = ended(changing(bowl, a_trial), seed)
        assert bowl(sets) < 125.0
        assert count <= live.TRIALS


def test_it_ends_early_where_nothing_is_gained():
    assert ended(flat, 0)[1] == 1 + live.PATIENCE


def test_one_step_that_was_held_up_does_not_count():
    calm = typical([10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 10.1, 9.9, 10.0])
    held = typical([10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0, 10.1, 9.9, 500.0])
    assert held[0] == pytest.approx(calm[0], rel=0.01)


def test_the_knobs_are_those_of_the_job():
    names = [
        [knob.path for knob in knobs(dimensions=dimensions, native=native)]
        for dimensions, native in ((1, True), (2, True), (1, False))
    ]
    assert names == [
        ["partition", "send_ahead"],
        ["partition", "send_ahead", "chunks"],
        ["partition"],
    ]


def model_of(rank):
    torch.manual_seed(rank)  # rank 0's parameters are everybody's
    return nn.Sequential(nn.Linear(32, 600), nn.ReLU(), nn.Linear(600, 600), nn.Linear(600, 4))


def trained(rank, steps, *, tune, job=None):
    model = model_of(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    art.schedule(model, optimizer, job={"schema_version": 1, **(job or {})}, tune=tune)
    said = io.StringIO()
    draw = torch.Generator().manual_seed(10 + rank)
    with contextlib.redirect_stderr(said):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 32, generator=draw)).square().mean().backward()
            optimizer.step()
    left = {name: value.clone() for name, value in model.state_dict().items()}
    carrier = art._of(model)[0]._carrier
    art.release(model)
    return left, said.getvalue(), type(carrier).__name__


@pytest.mark.parametrize("transport", ["native", "c10d"])
def test_a_job_is_tuned_and_its_parameters_are_those_of_another(transport, on_ranks, monkeypatch):
    monkeypatch.setattr(timed, "STEPS", 2)

    def body(rank):
        tried = []
        begin = Tune._begin

        def noted(self, way):
            tried.append(dict(way.settings))
            # Another setting than the start is faster, whatever this machine is busy with.
            self.slow = not way.settings
            return begin(self, way)

        def measured(self, steps, before=Tune._measured):
            return before(self, [0.2 if self.slow else 0.1] * len(steps))

        Tune._begin, Tune._measured = noted, measured
        steps = live.TRIALS * (timed.WARM + timed.STEPS) + 3
        job = {"transport": transport}
        ours, said, carrier = trained(rank, steps, tune=True, job=job)
        theirs, _, _ = trained(rank, steps, tune=False, job=job)
        differ = [name for name in theirs if not torch.allclose(ours[name], theirs[name])]
        return differ, said, carrier, tried

    answers = on_ranks(body)
    assert len({str(tried) for *_, tried in answers}) == 1, "all ranks change alike"
    for rank, (differ, said, carrier, tried) in enumerate(answers):
        assert differ == []
        assert carrier == ("Native" if transport == "native" else "Ordered")
        assert tried[0] == {}
        assert all(one["partition"] for one in tried[1:-4])
        assert tried[-4] == tried[-2] == {}, "the start is measured again on both sides"
        assert tried[-3] == tried[-1] != {}, "the faster one stays"
        assert ("50.0 % less" in said) == (rank == 0)


def refused(rank):
    answers = []
    rows = [
        ({"compression": "bf16"}, {}),
        ({"exchange": "auto"}, {}),
        ({"exchange": "plain"}, {}),
        ({}, {"every": 2}),
    ]
    for keys, options in rows:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(InputError) as error:
            art.schedule(model, optimizer, job={"schema_version": 1, **keys}, tune=True, **options)
        answers.append(str(error.value))
    return answers


def test_what_does_not_go_together_says_so(on_ranks):
    others = ("compression", "exchange: auto", "exchange: plain", "every")
    for answers in on_ranks(refused):
        for other, said in zip(others, answers, strict=True):
            assert f"leave `tune` or `{other}` out" in said


def test_a_real_job_ends_with_something(on_ranks):
    def body(rank):
        torch.set_num_threads(1)
        started = time.monotonic()
        steps = live.TRIALS * (timed.WARM + timed.STEPS) + 1
        _, said, _ = trained(rank, steps, tune=True)
        return said, time.monotonic() - started

    answers = on_ranks(body)
    assert "tuned in" in answers[0][0]
    assert answers[1][0] == ""
