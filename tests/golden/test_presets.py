"""The packaged fabrics hold the numbers of their sources, and say where each comes from."""

from __future__ import annotations

import pytest

from allrail import load_fabric, preset_names
from allrail.scenario import GraphFabric, load_any_fabric
from allrail.scenario.fields import parse_quantity
from allrail.scenario.models import load_model, model_names, read_model

# Sizes, aggregate Gb/s, step latencies in ns (Themis, ISCA'22).
THEMIS = {
    "2D-SW_SW": ((16, 64), (1200, 800), (700, 1700)),
    "3D-SW_SW_SW_homo": ((16, 8, 8), (800, 800, 800), (700, 700, 1700)),
    "3D-SW_SW_SW_hetero": ((16, 8, 8), (1600, 800, 400), (700, 700, 1700)),
    "3D-FC_Ring_SW": ((8, 16, 8), (1400, 800, 400), (700, 700, 1700)),
    "4D-Ring_SW_SW_SW": ((4, 4, 8, 8), (2000, 1600, 800, 400), (20, 700, 700, 1700)),
    "4D-Ring_FC_Ring_SW": ((4, 8, 4, 8), (3000, 1400, 1200, 800), (20, 700, 700, 1700)),
}
SHORT = {"SW": "switch", "FC": "fully_connected", "Ring": "ring"}


@pytest.mark.parametrize("name", THEMIS)
def test_themis_platforms(name):
    fabric = load_fabric(name)
    sizes, aggregates, latencies = THEMIS[name]
    assert fabric.npus == 1024
    assert tuple(one.size for one in fabric.dimensions) == sizes
    kinds = [SHORT[part] for part in name.split("-")[1].split("_") if part in SHORT]
    assert [one.kind for one in fabric.dimensions] == kinds
    for one, aggregate, latency in zip(fabric.dimensions, aggregates, latencies, strict=True):
        assert parse_quantity("bandwidth", one.bandwidth) * one.links * 8 == aggregate * 10**9
        assert parse_quantity("time", one.latency) == latency * 1000


def test_the_tutorial_s_link_latency_counts_twice_on_a_switch():
    for one in load_fabric("tutorial-8x8x8").dimensions:
        assert (one.size, one.links) == (8, 1)
        assert parse_quantity("bandwidth", one.bandwidth) == 50 << 30
        assert parse_quantity("time", one.latency) == 2000


@pytest.mark.parametrize("name", model_names())
def test_every_model_has_its_sources(name):
    tree, _ = read_model(name)
    assert tree["name"] == name
    assert tree["about"]
    assert tree["sources"]
    assert all(tree["sources"].values())
    assert load_model(name)["name"] == name
    # What the defaults say beside sizes has a source too.
    assert set(tree.get("defaults", {})) <= {*tree["sources"], "precision"}


@pytest.mark.parametrize("name", preset_names())
def test_every_number_has_its_source(name):
    fabric = load_any_fabric(name)
    assert fabric.name == name
    assert fabric.about
    assert not fabric.calibrated
    if isinstance(fabric, GraphFabric):
        assert set(fabric.sources) == set(fabric.keys)
    else:
        known = {"kind", "size", "links", "bandwidth", "latency"}
        sums = {"in_network_reduction", "reduction_bandwidth"}
        assert set(fabric.sources) == known | (
            sums if fabric.dimensions[0].in_network_reduction else set()
        ) | ({"device"} if fabric.device else set())
    assert all(fabric.sources.values())
