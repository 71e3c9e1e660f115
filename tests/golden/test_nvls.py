"""NVLink SHARP: switches that sum at the rate that was published for them."""

from __future__ import annotations

import pytest

import allrail

# busbw in GB/s of 8 GPUs, by size: all_reduce_bench.py of stas00/ml-engineering, network/README.md.
H200 = {"1 GiB": 463.58, "4 GiB": 473.1, "16 GiB": 482.26}


def one(fabric, size: str, *, kind: str = "all_reduce", composition: str = "merged"):
    """A collective in one system; `merged`: an all-reduce is one stage there."""
    collective = {"kind": kind, "size": size, "dimensions": [0]}
    scenario = {"schema_version": 1, "fabric": fabric, "collective": collective}
    return allrail.simulate({**scenario, "schedule": {"composition": composition}})


@pytest.mark.parametrize(("size", "published"), H200.items())
def test_a_large_all_reduce_takes_what_was_published(size, published):
    # The largest one is where the rate is from; of smaller ones some is not in the model.
    assert one("dgx-h100-nvls", size).busbw_GBps == pytest.approx(published, rel=0.05)


def test_a_small_one_waits_for_launches_that_are_not_here():
    # Published: 39.93 GB/s at 1 MiB.
    assert one("dgx-h100-nvls", "1 MiB").busbw_GBps > 2 * 39.93


def test_an_all_reduce_in_two_stages_gains_nothing():
    ours, plain = (one(f"dgx-h100{name}", "1 GiB", composition="stages") for name in ("-nvls", ""))
    assert ours.time_us == plain.time_us


@pytest.mark.parametrize("kind", ["reduce_scatter", "all_gather", "all_to_all"])
def test_what_gains_nothing_stays_with_its_algorithm(kind):
    ours, plain = one("dgx-h100-nvls", "1 GiB", kind=kind), one("dgx-h100", "1 GiB", kind=kind)
    assert ours.time_us == plain.time_us


def test_it_is_never_slower_than_without():
    for size in ("1 KiB", "1 MiB", "1 GiB"):
        assert one("dgx-h100-nvls", size).time_us <= one("dgx-h100", size).time_us


def test_a_switch_that_sums_as_fast_as_its_links_needs_no_rate():
    fabric = allrail.load_fabric("dgx-h100-nvls").model_dump()
    slow = one(fabric, "1 GiB").time_us
    fabric["dimensions"][0]["reduction_bandwidth"] = "450 GB/s"
    full = one(fabric, "1 GiB").time_us
    fabric["dimensions"][0]["reduction_bandwidth"] = None
    assert one(fabric, "1 GiB").time_us == full < slow
