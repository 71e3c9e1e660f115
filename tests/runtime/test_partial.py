"""Averages over the ranks that come in time, against those by hand, on three and four processes.

Nothing depends on how long anything takes: who is late waits for the others to say so.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import allrail
from allrail.base.errors import InputError, TrainingError


def mine(rank, step):
    return np.arange(6, dtype=np.float64).reshape(2, 3) * (rank + 1) + 10 * step


def mean(ranks, step):
    return sum(mine(rank, step) for rank in ranks) / len(ranks)


def all_in_step(rank):
    with allrail.Communicator() as group:
        averages = group.partial_averages([mine(0, 0)], backup_workers=0)
        found = []
        for step in range(5):
            (average,) = averages.exchange([mine(rank, step)])
            found.append(average)
        averages.close()
        assert (averages.step, averages.dropped) == (5, 0)
    return [(one.step, one.arrays[0], one.came) for one in found]


def test_without_backup_workers_it_is_the_average_of_all(on_ranks):
    for said in on_ranks(all_in_step, ranks=3):
        for step, (number, array, came) in enumerate(said):
            assert (number, came) == (step, (0, 1, 2))
            np.testing.assert_allclose(array, mean(came, step), rtol=1e-15)


STEPS = 12


def one_is_late(rank, late):
    """One rank comes to its second step when the others have told it that they have made six."""
    with allrail.Communicator() as group:
        averages = group.partial_averages([mine(0, 0)], backup_workers=1)
        found, brought, told = [], [], False
        while averages.step < STEPS:
            if rank == late and len(brought) == 1:
                for other in range(group.ranks):
                    if other != late:
                        group.recv(np.zeros(1), source=other).wait()
            brought.append(averages.step)
            found += averages.exchange([mine(rank, averages.step)])
            if rank != late and averages.step >= 6 and not told:
                group.send(np.zeros(1), to=late).wait()
                told = True
        averages.close()
        return [(one.step, one.arrays[0], one.came) for one in found], brought, averages.dropped


@pytest.mark.parametrize(("ranks", "late"), [(3, 1), (4, 0), (4, 3)])
def test_a_step_goes_on_without_the_last_rank(on_ranks, ranks, late):
    said = on_ranks(one_is_late, late, ranks=ranks)
    first, _, _ = said[0]
    others = tuple(rank for rank in range(ranks) if rank != late)
    for rank, (found, brought, dropped) in enumerate(said):
        # What is in no average was dropped.
        assert dropped == len(brought) - sum(rank in came for _, _, came in found)
        assert len(found) >= STEPS
        assert [one[0] for one in found] == list(range(len(found)))
        for (step, array, came), (_, same, those) in zip(found, first, strict=False):
            assert came == those
            assert len(came) >= ranks - 1
            np.testing.assert_array_equal(array, same)  # bit for bit on all ranks
            np.testing.assert_allclose(array, mean(came, step), rtol=1e-15)
    found, brought, dropped = said[late]
    # What it brought the second time was too late: the steps meanwhile have the others alone.
    assert [one[2] for one in found[brought[1] : 6]] == [others] * (6 - brought[1])
    assert dropped >= 1
    assert brought[2] >= 6


def nobody_is_there(rank):
    with allrail.Communicator(timeout=2.0) as group:
        averages = group.partial_averages([np.zeros(3)], backup_workers=1)
        error = ""
        if rank == 0:
            with pytest.raises(TrainingError) as raised:
                averages.exchange([np.zeros(3)])
            error = raised.value.why
        group.broadcast(np.zeros(1), root=0).wait(60.0)
        averages.close()
        return error


def test_too_few_ranks_are_said(on_ranks):
    said = on_ranks(nobody_is_there, ranks=4)
    assert "step 0 has not begun after 2 s: fewer than 3 of 4 ranks have come" in said[0]


def ranks_end_at_unequal_times(rank):
    """Steps of those that go on wait for no rank that has left."""
    with allrail.Communicator() as group:
        averages = group.partial_averages([np.zeros(1)], backup_workers=1)
        last = []
        for _ in range(3 + 4 * rank):
            last = averages.exchange([np.full(1, float(rank + 1))])
        averages.close()
        return [(one.step, one.arrays[0].tolist(), one.came) for one in last]


def test_who_has_left_is_not_waited_for(on_ranks):
    said = on_ranks(ranks_end_at_unequal_times, ranks=3)
    step, average, came = said[2][-1]
    assert came == (2,)
    assert average == [3.0]
    assert step >= 10


def a_rank_is_lost(rank):
    group = allrail.Communicator()
    averages = group.partial_averages([np.zeros(2)], backup_workers=1)
    averages.exchange([np.zeros(2)])
    if rank == 2:
        averages.exchange([np.zeros(2)])
        os._exit(1)
    error = ""
    while not error:
        try:
            averages.exchange([np.zeros(2)])
        except TrainingError as raised:
            error = str(raised)
    return error


def test_a_lost_rank_ends_the_job_and_is_no_straggler(on_ranks):
    said = on_ranks(a_rank_is_lost, ranks=3)
    assert said[2] == "ended"
    assert all("rank 2" in one for one in said[:2]), said


def kinds(rank):
    with allrail.Communicator() as group:
        like = [np.zeros((2, 2), np.float32), np.zeros(3, np.float16)]
        averages = group.partial_averages(like, backup_workers=1, most_behind=2)
        first = np.full((2, 2), rank, np.float32)
        (average, *_) = averages.exchange([first, np.full(3, 2 * rank, np.float16)])
        averages.close()
        numbers, halves = average.arrays
        assert first.tolist() == [[rank] * 2] * 2, "what was brought stays as it is"
        return numbers.tolist(), halves.dtype == np.float16, halves.tolist(), average.came


def test_arrays_of_several_types_and_shapes(on_ranks):
    for numbers, is_half, halves, came in on_ranks(kinds, ranks=3):
        there = sum(came) / len(came)
        assert is_half
        assert numbers == [[pytest.approx(there)] * 2] * 2
        assert halves == pytest.approx([2 * there] * 3, rel=1e-2)


def refusals(rank):
    errors = []
    with allrail.Communicator() as group:
        for backup in (-1, 3, 7, True, 1.0, "1"):
            with pytest.raises(InputError) as raised:
                group.partial_averages([np.zeros(1)], backup_workers=backup)
            errors.append((raised.value.field, raised.value.why))
        with pytest.raises(InputError) as raised:
            group.partial_averages([np.zeros(1)], backup_workers=rank % 2)
        errors.append((raised.value.field, raised.value.why))
        with pytest.raises(InputError) as raised:
            group.partial_averages([np.zeros(1, np.int32)], backup_workers=1)
        errors.append((raised.value.field, raised.value.why))
        averages = group.partial_averages([np.zeros(2)], backup_workers=1)
        for wrong in ([np.zeros(3)], [], [np.zeros(2, np.float32)]):
            with pytest.raises(InputError) as raised:
                averages.exchange(wrong)
            errors.append((raised.value.field, raised.value.why))
        averages.close()
        averages.close()
        with pytest.raises(InputError) as raised:
            averages.exchange([np.zeros(2)])
        errors.append((raised.value.field, raised.value.why))
    assert threading.active_count() < 20
    return errors


def test_what_is_wrong_is_said_on_every_rank(on_ranks):
    for said in on_ranks(refusals, ranks=3):
        assert said[:2] == [
            ("backup_workers", "it is no number of ranks"),
            ("backup_workers", "there are 3 ranks, and a step needs one at least"),
        ]
        assert said[2] == ("backup_workers", "there are 3 ranks, and a step needs one at least")
        assert set(said[3:6]) == {("backup_workers", "it is no number of ranks")}
        assert said[6] == ("backup_workers", "rank 1 has 1, rank 0 has 0")
        assert said[7] == ("like", "elements of type int32 have no average")
        assert {field for field, _ in said[8:]} == {"arrays"}
