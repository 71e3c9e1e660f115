"""Operations that wait: who is named, for every kind, by a warning and then by an error."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import allrail
from allrail import _core
from allrail.base.errors import TrainingError
from allrail.runtime.agreement import Patience
from allrail.runtime.message import Message
from allrail.runtime.nodes import Memory

HASTY = {
    "schema_version": 1,
    "timeouts": {"connect": "20 s", "heartbeat": "50 ms", "warn": "1500 ms", "stalled": "4 s"},
}
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


def told(wait):
    """What is warned of while this waits, and the error that ends it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            wait()
        except TrainingError as error:
            return [str(one.message) for one in said], str(error), error.hint
    return [str(one.message) for one in said], "", ""


def late(rank, kind, name, absent):
    with allrail.Communicator(job=HASTY) as group:
        if rank == absent:
            handle = None
        else:
            more = {"root": absent} if kind == "broadcast" else {}
            handle = getattr(group, kind)(np.zeros(6, np.float32), name=name, **more)
        # The absent rank lives on, and hears the end.
        wait = handle.wait if handle else group.all_reduce(np.zeros(1), name="later").wait
        return told(wait)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["loss", None])
def test_whoever_does_not_call_is_named_in_one_line_and_then_in_the_error(kind, name, on_ranks):
    absent = KINDS.index(kind) % 3
    said = on_ranks(late, kind, name, absent, ranks=3)
    what = name or "call 0 ("
    for rank, (lines, error, hint) in enumerate(said):
        if rank == absent:
            continue
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"`{what}")
        assert f"rank {absent} did not call it; rank {absent} waits for `later`" in lines[0]
        assert "wait for it for 1 s; the job ends after 4 s" in lines[0]
        # What the absent rank waits for instead is stalled as well: which is found first, all say.
        others = ", ".join(str(rank) for rank in range(3) if rank != absent)
        found = f"rank {absent} did not call it", f"ranks {others} did not call it"
        assert any(one in error for one in found), error
        assert "timeouts.stalled" in hint


def misspelt(rank):
    with allrail.Communicator(job=HASTY) as group:
        return told(group.all_reduce(np.zeros(6), name=("loss", "Loss")[rank]).wait)


def test_a_name_that_is_spelt_otherwise_is_meant_perhaps(on_ranks):
    said = on_ranks(misspelt)
    for rank, (mine, other) in enumerate((("loss", "Loss"), ("Loss", "loss"))):
        lines, error, _ = said[rank]
        wanted = (
            f"rank {1 - rank} did not call it; rank {1 - rank} waits for `{other}`"
            f" (did you mean `{other}`?)"
        )
        assert len(lines) == 1
        assert lines[0].startswith(f"`{mine}`: {wanted}")
        assert "did not call it" in error


def at_a_barrier(rank):
    with allrail.Communicator(job=HASTY) as group:
        if rank == 0:
            return told(group.barrier)
        return told(group.all_reduce(np.zeros(6), name="loss").wait)


def test_a_rank_at_a_barrier_learns_what_the_other_waits_for(on_ranks):
    lines, error, _ = on_ranks(at_a_barrier)[0]
    assert lines[0].startswith("`call 0 (barrier)`: rank 1 did not call it")
    assert "rank 1 waits for `loss`" in lines[0]
    assert error


def late_by_a_second(rank):
    with allrail.Communicator(job=HASTY) as group:
        if rank == 1:
            group.all_reduce(np.zeros(1), name="first").wait()
        else:
            told(lambda: group.all_reduce(np.zeros(1), name="first").wait())
        handle = group.all_reduce(np.full(4, rank), name="loss")
        try:
            handle.wait(timeout=0.001 if rank else None)
        except TrainingError as error:
            return str(error)
        return handle.wait().tolist()


def test_a_wait_that_is_given_up_says_for_whom(on_ranks):
    first, second = on_ranks(late_by_a_second)
    assert first == [1, 1, 1, 1]
    assert second == [1, 1, 1, 1] or "is not over after 0.001 s" in second


def meets_nobody(rank):
    if rank == 2:
        return None
    try:
        allrail.Communicator(job={"schema_version": 1, "timeouts": {"connect": "1 s"}})
    except TrainingError as error:
        return error.why
    return "they have met"


def test_a_rank_that_does_not_come_at_all_is_named_after_timeouts_connect(on_ranks):
    said = on_ranks(meets_nobody, ranks=3)
    assert said[:2] == ["1 of 3 ranks has not come within 1 s: rank 2"] * 2


def names_without_end(rank, forget_after):
    allrail.runtime.communicator.settings_of_group = settings = FewNames(forget_after)
    with allrail.Communicator() as group:
        for number in range(400):
            for name in (f"name{number}", "always", f"name{number // 7}"):
                result = group.all_reduce(np.full(3, rank + number), name=name).wait()
                assert result.tolist() == [1 + 2 * number] * 3
    return settings.made


class FewNames:
    """Settings of a group that forgets names soon."""

    def __init__(self, after):
        self.after, self.made = after, 0
        self.before = allrail.runtime.communicator.settings_of_group

    def __call__(self, *arguments):
        self.made += 1
        return self.before(*arguments) | {"forget_after": self.after}


@pytest.mark.parametrize("forget_after", [0, 5, 64])
def test_names_that_count_up_are_forgotten_and_used_again(forget_after, on_ranks):
    assert on_ranks(names_without_end, forget_after) == [1, 1]


def message_of(patience):
    memory = Memory(_core.Memory.of_buffer(bytearray(1)), "uint8")
    return Message(memory, 7, 1, about="a message from rank 1", patience=patience)


def test_a_message_that_does_not_come_is_warned_of_and_then_an_error():
    message = message_of(Patience(warn=0.05, stalled=600))
    what = r"a message from rank 1 with tag 7 waits for the other side for \d+ s"
    with pytest.warns(RuntimeWarning, match=f"{what}; it fails after 600 s") as said:
        assert not message.wait(0.1)
    assert not message.wait(0.0)
    assert len(said) == 1
    message = message_of(Patience(warn=0.05, stalled=0.2))
    with pytest.warns(RuntimeWarning, match=what), pytest.raises(TrainingError, match=what):
        message.wait(60)
    message.end()
    assert message.wait(0.0)


def test_a_message_that_comes_in_time_is_not_spoken_of():
    message = message_of(Patience(warn=60, stalled=120))
    threading.Timer(0.1, message.end).start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert message.wait(60)
