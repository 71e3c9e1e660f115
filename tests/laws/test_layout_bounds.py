"""A search that prunes finds what one that simulates all finds; no bound is above a simulation."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from allrail.search.layouts import Bounded, Job, search, space
from allrail.search.layouts.trial import RECOMPUTED, Ranked, Trials


def a_case(seed):
    """A small model on a small fabric, all drawn; so are the layouts that are looked at."""
    draw = random.Random(seed)
    heads = draw.choice([2, 4, 8])
    sizes = {
        "layers": draw.choice([2, 4, 6, 8]),
        "heads": heads,
        "hidden": heads * draw.choice([32, 64, 128]),
        "vocabulary": draw.choice([500, 2_000, 20_000]),
        "sequence_length": draw.choice([128, 512, 1024]),
        "tied": draw.random() < 0.5,
    }
    if draw.random() < 0.2:
        sizes["experts"] = {"count": 4, "top_k": 2}
    dimensions = [
        {
            "kind": draw.choice(["switch", "ring", "fully_connected"]),
            "size": draw.choice([2, 4]),
            "bandwidth": f"{draw.choice([5, 25, 100, 300])} GB/s",
            "latency": f"{draw.choice([0, 1, 5, 20])} us",
        }
        for _ in range(draw.choice([1, 2, 3]))
    ]
    npus = 1
    for one in dimensions:
        npus *= one["size"]
    job = Job(
        model={"transformer": sizes, "name": "drawn"},
        fabric={"dimensions": dimensions},
        npus=npus,
        inner=dimensions[0]["size"],
        global_batch=npus * draw.choice([1, 2, 4, 8]),
        compute={"device": draw.choice(["a100", "h100", "v100"])},
        precision="bf16",
        dimensions=tuple(one["size"] for one in dimensions),
    )
    layouts = space(job, sizes).layouts
    return job, draw.sample(layouts, min(len(layouts), 8))


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_pruned_and_exhaustive_agree_and_no_bound_is_above_its_simulation(seed):
    job, layouts = a_case(seed)
    few, every = (search(job, layouts, top=3, exhaustive=all_) for all_ in (False, True))
    assert few.ranked[:3] == every.ranked[:3]
    assert few.recommended == every.recommended
    # Some tool can run what is recommended, where one can run any.
    assert few.recommended.tools or not any(one.tools for one in every.ranked)
    assert not every.pruned
    assert len(few.ranked) + len(few.pruned) == len(every.ranked)
    third = few.ranked[2].step_s if few.pruned else 0
    assert all(one.bound_s > third for one in few.pruned)
    steps = {one.layout: one.step_s for one in every.ranked}
    trials = Trials(job, layouts[0])
    whole = [
        Bounded(one.layout, one.recompute, 0.0, one.memory_gb)
        for one in every.ranked
        if one.layout.microbatches(job) <= 3 * one.layout.pp
    ]
    # A step that was simulated whole is never lifted to its bound.
    bounds = {one.layout: one.bound_s for one in _bounds(trials, every.ranked)}
    for simulated in trials.simulate(whole):
        assert isinstance(simulated, Ranked)
        assert bounds[simulated.layout] <= simulated.step_s, simulated.layout.name
        assert steps[simulated.layout] == simulated.step_s, simulated.layout.name


def test_in_every_few_cases_something_is_pruned():
    for part in range(5):
        cases = (a_case(seed) for seed in range(part, 200, 5))
        assert any(search(job, layouts, top=3).pruned for job, layouts in cases)


def _bounds(trials, ranked):
    for recompute in RECOMPUTED:
        layouts = [one.layout for one in ranked if one.recompute == recompute]
        yield from trials.bounds(layouts, recompute)


def test_bounds_say_something():
    job, layouts = a_case(3)
    trials = Trials(job, layouts[0])
    shares = []
    for one in search(job, layouts, exhaustive=True).ranked:
        [bound] = trials.bounds([one.layout], one.recompute)
        shares.append(bound.bound_s / one.step_s)
    assert min(shares) > 0.3
    assert max(shares) > 0.8
