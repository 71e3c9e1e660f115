"""What holds of traffic on any graph: `ideal` is never slower, no share is above the possible."""

from __future__ import annotations

import pytest

import allrail

TREES = [
    {"topology": "fat_tree", "npus": npus, "switch_radix": 8, "levels": levels, "taper": taper}
    for npus, levels, taper in [(12, 2, 0.0), (24, 2, 0.5), (32, 3, 0.25)]
]
FABRICS = [
    *TREES,
    {"topology": "torus", "shape": [5, 2]},
    {"topology": "torus", "shape": [5, 4]},
    {"topology": "hyperx", "shape": [3, 5]},
    {"topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 5},
]
PATTERNS = [
    {"pattern": "permutation"},
    {"pattern": "uniform"},
    {"pattern": "incast"},
    {"pattern": "all_to_all"},
    {"pattern": "all_to_all", "phase_barrier": False},
]
ROUNDING = 1e-9


def scenario(fabric, traffic, seed, **keys):
    return {"schema_version": 1, "fabric": fabric, "traffic": traffic, "seed": seed, **keys}


@pytest.mark.parametrize("traffic", PATTERNS, ids=str)
def test_a_best_splitting_does_not_lose_to_a_plain_one(traffic):
    cases = [(fabric, seed) for fabric in FABRICS for seed in range(3)]

    def times(paths):
        size = {"size": "4 MiB", "paths": paths}
        every = [scenario(fabric, {**traffic, **size}, seed) for fabric, seed in cases]
        return allrail.simulate_many(every)

    ideal, minimal = times("ideal"), times("minimal")
    for plain in (times("ecmp"), times("single")):
        for case, best, shortest, one in zip(cases, ideal, minimal, plain, strict=True):
            assert best.time_us <= shortest.time_us <= one.time_us, (traffic, case)
            for result in (best, one):
                assert result.lower_bound_time_us <= result.time_us * (1 + ROUNDING)
                assert 0 < result.share_of_injection <= 1 + ROUNDING


@pytest.mark.parametrize("shape", [[2, 2], [3, 4], [8, 8]], ids=str)
@pytest.mark.parametrize("algorithm", ["ring", "ring_unidirectional", "rings", "torus"])
def test_no_all_reduce_is_above_its_optimum(algorithm, shape):
    if algorithm == "rings" and shape != [8, 8]:
        pytest.skip("no two disjoint Hamiltonian cycles")
    traffic = {"pattern": "all_reduce", "algorithm": algorithm, "shape": shape, "size": "1 GiB"}
    if algorithm == "ring_unidirectional":
        del traffic["shape"]
    result = allrail.simulate(
        scenario({"topology": "torus", "shape": shape}, traffic, 0, network_model="flows")
    )
    assert 0 < result.share_of_optimum <= 1 + ROUNDING


@pytest.mark.parametrize("fabric", FABRICS, ids=str)
@pytest.mark.parametrize("pattern", ["broadcast", "reduce_scatter", "all_gather"])
def test_no_group_collective_is_above_its_optimum(fabric, pattern):
    """Every NPU sends or receives what is not its own; with one port or with many."""
    for algorithm in ("ring", "ring_unidirectional", "tree"):
        if algorithm == "tree" and pattern != "broadcast":
            continue
        traffic = {"pattern": pattern, "algorithm": algorithm, "size": "64 MiB"}
        result = allrail.simulate(scenario(fabric, traffic, 0, network_model="flows"))
        assert 0 < result.share_of_optimum <= 1 + ROUNDING, algorithm
        assert result.lower_bound_time_us <= result.time_us * (1 + ROUNDING)
        assert (result.segments is None) == (pattern != "broadcast")
        assert (result.steps is None) == (pattern == "broadcast")


def test_a_broadcast_on_disjoint_rings_fills_all_links():
    """A fourth of what one ring one way takes: four trees share no link."""

    def time(algorithm):
        traffic = {"pattern": "broadcast", "algorithm": algorithm, "size": "1 GiB"}
        traffic |= {"segments": 2048}
        torus = {"topology": "torus", "shape": [4, 4]}
        return allrail.simulate(scenario(torus, traffic, 0)).time_us

    assert time("ring_unidirectional") / time("rings") == pytest.approx(4, rel=1e-3)
    assert time("ring_unidirectional") / time("ring") == pytest.approx(2, rel=1e-3)


def test_switches_that_reduce_have_their_own_optimum():
    tree = {**TREES[0], "in_network_reduction": True}
    traffic = {"pattern": "all_reduce", "algorithm": "in_network", "size": "1 GiB"}
    result = allrail.simulate(scenario(tree, traffic, 0))
    assert 0.99 < result.share_of_optimum <= 1 + ROUNDING


@pytest.mark.parametrize(
    "fabric",
    [
        {"topology": "torus", "shape": [8, 8]},
        {"topology": "torus", "shape": [4, 4, 4]},
        {"topology": "hammingmesh", "board": [2, 2], "grid": [4, 4]},
        {"topology": "hammingmesh_3d", "board": [2, 2, 2], "grid": [2, 2, 2]},
    ],
    ids=str,
)
def test_routers_that_sum_take_few_latencies(fabric):
    """No more bytes a link than a ring, within a tenth, and latencies of a diameter."""

    def run(algorithm, size):
        summing = {**fabric, "in_network_reduction": True}
        traffic = {"pattern": "all_reduce", "algorithm": algorithm, "size": size}
        return allrail.simulate(scenario(summing, traffic, 0))

    large, small = run("in_network", "1 GiB"), run("in_network", "1 KiB")
    assert 0 < large.share_of_optimum <= 1 + ROUNDING
    assert large.time_us < 1.1 * run("ring", "1 GiB").time_us
    assert small.time_us < 0.2 * run("ring", "1 KiB").time_us
