"""When a dimension starves: cases by hand, and what must hold of every result."""

from __future__ import annotations

import pytest

import allrail
from allrail.output.frames import dimensions_frame
from allrail.output.report import gantt, style
from allrail.results.result import Stage
from allrail.results.starvation import length, starved, without


def stage(dimension, chunk, number, start, end, finish=None, collective=0):
    return Stage(
        dimension=dimension,
        collective=collective,
        chunk=chunk,
        stage=number,
        operation="reduce_scatter",
        bytes=1.0,
        start_us=start,
        end_us=end,
        finish_us=end if finish is None else finish,
    )


def test_times_without_others():
    assert without([(0, 10)], []) == [(0, 10)]
    assert without([(0, 10)], [(2, 3), (3, 4), (9, 12)]) == [(0, 2), (4, 9)]
    assert without([(0, 4), (3, 6), (8, 9)], [(5, 8.5)]) == [(0, 5), (8.5, 9)]
    assert without([(1, 1)], [(0, 2)]) == []
    assert length([(0, 2), (4, 9)]) == 7


def test_a_dimension_starves_until_its_first_chunk_comes_and_between_two():
    """Dimension 0 sends 4 us a chunk, dimension 1 takes 1: it waits for each."""
    line = [stage(0, c, 0, 4 * c, 4 * c + 4) for c in range(3)]
    line += [stage(1, c, 1, 4 * c + 4, 4 * c + 5) for c in range(3)]
    # From 0 to 4, 5 to 8, 9 to 12; after the last chunk has come nothing is left to wait for.
    assert starved(line, [0.0]) == {0: [], 1: [(0, 4), (5, 8), (9, 12)]}


def test_what_is_here_is_not_elsewhere():
    """A chunk that waits for its turn, or is on its way, is no reason to starve."""
    held = [stage(0, 0, 0, 0, 1), stage(1, 0, 1, 5, 6), stage(1, 1, 0, 6, 7)]
    assert starved(held, [0.0])[1] == []
    late = [stage(0, 0, 0, 0, 1, 4), stage(0, 0, 1, 4, 5, 8)]
    assert starved(late, [0.0])[0] == []


def test_nothing_starves_before_its_collective_begins():
    line = [
        stage(0, 0, 0, 0, 1),
        stage(1, 0, 1, 1, 2),
        stage(0, 0, 0, 10, 11, collective=1),
        stage(1, 0, 1, 11, 12, collective=1),
    ]
    assert starved(line, [0.0, 10.0])[1] == [(0, 1), (10, 11)]


@pytest.fixture(scope="module")
def results():
    tree = {
        "schema_version": 1,
        "fabric": "3D-SW_SW_SW_homo",
        "collective": {"kind": "all_reduce", "size": "100 MB"},
    }
    return {
        policy: allrail.simulate(
            {**tree, "schedule": {"policy": policy, "chunks": 16}}, timeline=True
        )
        for policy in ("baseline", "themis")
    }


def test_it_is_a_part_of_the_idle_time_and_the_baselines_later_dimensions_starve(results):
    for result in results.values():
        assert result.starved_us is not None
        for lost, one in zip(result.starved_us, result.dimensions, strict=True):
            assert 0 <= lost <= (1 - one.busy_fraction) * result.time_us + 1e-6
    baseline, themis = (results[name].starved_us for name in ("baseline", "themis"))
    assert baseline[0] == 0
    assert min(baseline[1:]) > 0.3 * results["baseline"].time_us
    assert max(themis) < 0.5 * max(baseline)


def test_without_a_timeline_nobody_knows(results):
    tree = {
        "schema_version": 1,
        "fabric": "2D-SW_SW",
        "collective": {"kind": "all_reduce", "size": "1 MB"},
    }
    alone = allrail.simulate(tree)
    assert alone.starved_us is None
    frame = dimensions_frame({"alone": alone, **results})
    assert frame["starved_us"].to_list()[:2] == [None, None]
    assert frame["starved_us"].to_list()[2:5] == list(results["baseline"].starved_us)


def test_the_picture_shows_it(results):
    text = style.svg(gantt.gantt(results), name="gantt")
    share = 100 * results["baseline"].starved_us[1] / results["baseline"].time_us
    assert f"starved {share:.1f} %" in text
    assert "its chunks are elsewhere" in text
