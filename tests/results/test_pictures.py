"""What the pictures are drawn from."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allrail.base.units import show_size, show_time
from allrail.output.lanes import assign_lanes
from allrail.output.report.activity import activity_rates, present
from allrail.output.report.gantt import gantt
from allrail.results.result import Stage


def span(start: float, length: float) -> Stage:
    return Stage(
        dimension=0,
        collective=0,
        chunk=0,
        stage=0,
        operation="reduce_scatter",
        bytes=1,
        start_us=start,
        end_us=start + length,
        finish_us=start + length,
    )


spans = st.lists(
    st.builds(span, st.integers(0, 900).map(float), st.integers(0, 100).map(float)), max_size=60
)


@given(spans)
def test_no_two_spans_of_a_lane_overlap(some):
    lanes, count = assign_lanes(some)
    for lane in range(count):
        mine = sorted(
            (s for s, at in zip(some, lanes, strict=True) if at == lane and s.end_us > s.start_us),
            key=lambda s: s.start_us,
        )
        for one, following in pairwise(mine):
            assert one.end_us <= following.start_us
    assert len(lanes) == len(some)


@given(spans)
def test_there_are_no_more_lanes_than_spans_at_once(some):
    _, count = assign_lanes(some)
    most = max((sum(s.start_us <= t.start_us <= s.end_us for s in some) for t in some), default=0)
    assert count <= most


@given(spans, st.integers(1, 50))
def test_activity_is_the_time_that_is_covered(some, windows):
    rates = activity_rates(
        [(one.start_us, one.end_us) for one in some], end_us=1000.0, windows=windows
    )
    assert len(rates) == windows
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    covered = set()
    for one in some:
        covered |= set(range(int(one.start_us), int(one.end_us)))
    assert sum(rates) * 1000.0 / windows == pytest.approx(len(covered), abs=1e-6)


def test_a_chunk_is_present_from_the_end_of_its_stage_before():
    """It waits for dim1 from 0 to 10, and for dim2 from 30, where it is served from 50."""
    first = replace(span(10.0, 15.0), finish_us=30.0)
    second = replace(span(50.0, 20.0), dimension=1, stage=1)
    other = replace(span(0.0, 10.0), chunk=1)
    found = present([second, other, first], [0.0])
    assert found == {0: [(0.0, 30.0), (0.0, 10.0)], 1: [(30.0, 70.0)]}


def test_a_gantt_chart_has_a_bar_for_every_stage(results):
    figure = gantt(results)
    drawn = [collection for axes in figure.axes for collection in axes.collections]
    bars = sum(len(one.get_paths()) for one in drawn if one.get_zorder() == 2)
    assert bars == sum(len(result.timeline) for result in results.values())


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.0, "0 µs"), (0.5, "500 ns"), (12.25, "12.25 µs"), (13635.871, "13.636 ms"), (2e7, "20 s")],
)
def test_times_are_shown_in_a_unit_that_suits(us, text):
    assert show_time(us) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1500, "1.5 KB"), (2.143e9, "2.143 GB")])
def test_sizes_are_shown_in_a_unit_that_suits(count, text):
    assert show_size(count) == text
