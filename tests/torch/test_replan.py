"""When a dimension counts as slow, and that ranks with the same numbers decide alike."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from allrail.torch.speeds import LOOKS, SLOW, Speeds, measured, slowest_groups

MB, MILLISECOND, SECOND = 10**6, 10**6, 10**9


def test_one_slow_look_is_a_hiccup():
    speeds = Speeds([1.0, 1.0])
    for _ in range(5):
        for _ in range(LOOKS - 1):
            assert speeds.look([1.0, 0.1]) == {}
        assert speeds.look([1.0, 0.9]) == {}
    assert speeds.planned == [1.0, 1.0]


def test_a_slow_dimension_is_planned_with_once_and_recovers_to_the_fabric_at_most():
    speeds = Speeds([1.0, 0.5])
    looks = [speeds.look([0.95, 0.1]) for _ in range(3 * LOOKS)]
    assert [look for look in looks if look] == [{1: (0.1, 0.5)}]
    assert looks[LOOKS - 1]
    back = [speeds.look([0.95, 3.0]) for _ in range(3 * LOOKS)]
    assert [look for look in back if look] == [{1: (0.5, 0.1)}]
    assert speeds.planned == [1.0, 0.5]


def test_what_lies_between_the_thresholds_never_flaps():
    speeds = Speeds([1.0, 1.0])
    for place in range(20):
        assert speeds.look([1.0, 1.02 * SLOW if place % 2 else 1.0]) == {}


def test_no_number_says_nothing_and_one_dimension_is_left_alone():
    speeds = Speeds([1.0, 1.0])
    assert not any(speeds.look([None, None]) for _ in range(3 * LOOKS))
    alone = Speeds([1.0])
    assert not any(alone.look([0.01]) for _ in range(3 * LOOKS))


def test_a_late_rank_slows_its_peers_only_a_link_all_of_a_group():
    late = [[0.1, 0.1], [1.0, 1.0], [0.1, 1.0], [1.0, 0.1]]
    late[2], late[0] = [1.0, 1.0], [0.1, 0.1]
    assert slowest_groups(late, [2, 2]) == [1.0, 1.0]
    link = [[1.0, 0.1], [1.0, 1.0], [1.0, 0.2], [1.0, 1.0]]  # between ranks 0 and 2
    assert slowest_groups(link, [2, 2]) == [1.0, 0.2]
    assert slowest_groups([[1.0, 0.0]] * 4, [2, 2]) == [1.0, None]


def stage(dimension, start, end, sent):
    return {"dimension": dimension, "start": start, "end": end, "bytes": sent}


def test_measures_busy_times_and_leaves_out_what_is_small_old_or_open():
    stages = [stage(0, 10**7 * n, 10**7 * n + 8 * 10**6, 10**6) for n in range(1, 8)]
    stages += [stage(1, 10**7 * n, 10**7 * n + 10**6, 1000) for n in range(1, 8)]
    stages += [stage(0, 0, 10**6, 10**9), stage(0, 10**9, None, 10**9)]
    assert measured({"stages": stages}, 2, since=5) == [1.0, 0.0]


def exchanged(late, gbps):
    """Return what two ranks measure: of both, by step, when they come; both end together."""
    took = 8 * MB / gbps
    rows = []
    for rank in range(2):
        stages = []
        for step, come in enumerate(late):
            begin = step * SECOND
            both = begin + max(come) * MILLISECOND
            stages.append(stage(0, begin + come[rank] * MILLISECOND, int(both + took), MB))
        rows.append(measured({"stages": stages}, 1, since=0))
    return rows


def test_ranks_that_wait_for_each_other_in_turns_do_not_make_a_link_slow():
    late = [(0, 90), (80, 0), (0, 70), (90, 0), (0, 80), (70, 0), (0, 90), (80, 0)]
    assert slowest_groups(exchanged(late, 0.2), [2]) == [pytest.approx(0.2)]
    assert slowest_groups(exchanged(late, 0.04), [2]) == [pytest.approx(0.04)]


def test_a_wait_within_a_busy_time_is_not_counted():
    # One stage waits all the time for its peer; others go on beside it.
    busy = []
    for n in range(1, 6):
        begin = n * SECOND
        busy.append(stage(0, begin, begin + 500 * MILLISECOND, MB))
        busy.append(stage(0, begin + 10 * MILLISECOND, begin + 50 * MILLISECOND, MB))
        busy.append(stage(0, begin + 50 * MILLISECOND, begin + 90 * MILLISECOND, MB))
    assert measured({"stages": busy}, 1, since=0) == [pytest.approx(0.2)]


def test_stages_side_by_side_share_a_link_and_are_not_counted_twice():
    busy = []
    for n in range(1, 6):
        begin = n * SECOND
        busy += [stage(0, begin, begin + 160 * MILLISECOND, MB) for _ in range(4)]
    assert measured({"stages": busy}, 1, since=0) == [pytest.approx(0.2)]


def test_a_link_that_was_quick_in_a_few_busy_times_only_is_slow():
    busy = [stage(0, SECOND * n, SECOND * n + 40 * MILLISECOND, MB) for n in range(2)]
    busy += [stage(0, SECOND * n, SECOND * n + 200 * MILLISECOND, MB) for n in range(2, 12)]
    assert measured({"stages": busy}, 1, since=0) == [pytest.approx(0.04)]
