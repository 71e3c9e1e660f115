"""Ranks that wait for what another says."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch.distributed as dist  # noqa: E402

from allrail.base.errors import InputError, TrainingError  # noqa: E402
from allrail.runtime import store as ours  # noqa: E402
from allrail.runtime.agreement import Agreement, Patience  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402
from ports import free_port  # noqa: E402


def serving(seconds):
    return dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=seconds)
    )


def waiting_for_rank_0(store):
    return Agreement(store, 1, 2, "test").on("topic", "mine", lambda said: said)


def test_ctrl_c_is_heard_while_a_rank_waits():
    # Whoever is started in the background of a shell ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            waiting_for_rank_0(serving(120))
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 60


SHORT = Patience(connect=1.5, warn=0.3, stalled=3)
LONG = Patience(connect=120)


class FromTheLast:
    """The module `time`, with a clock that stands still until so many threads have looked at it."""

    sleep = staticmethod(time.sleep)

    def __init__(self, threads):
        self.threads, self.seen, self.begun = threads, set(), None

    def monotonic(self):
        self.seen.add(threading.get_ident())
        if self.begun is None and len(self.seen) == self.threads:
            self.begun = time.monotonic()
        return 0.0 if self.begun is None else time.monotonic() - self.begun


@pytest.fixture(params=["torch", "allrail"])
def stores(request):
    """What gives each rank its connection with one store, of either kind."""
    if request.param == "torch":
        store = serving(30)
        port = store.port
        yield lambda: dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        return
    server = ours.Server("a token of this test")
    yield lambda: ours.Client(server.address, "a token of this test")
    server.close()


def said_by(stores, ranks, of, *, patience=SHORT, **more):
    """What each of these ranks is told, or its error, by rank."""
    heard = {}

    def rank_says(rank):
        try:
            agreement = Agreement(stores(), rank, of, "test", patience=patience, **more)
            heard[rank] = agreement.on("topic", rank, lambda said: said)
        except (TrainingError, InputError) as error:
            heard[rank] = error

    threads = [threading.Thread(target=rank_says, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard


@pytest.mark.parametrize(
    ("come", "of", "says"),
    [
        ([0, 1], 3, "1 of 3 ranks has not come within 1.5 s: rank 2"),
        ([1, 2], 3, "1 of 3 ranks has not come within 1.5 s: rank 0"),
        ([0, 3], 5, "3 of 5 ranks have not come within 1.5 s: ranks 1, 2, 4"),
        ([0], 12, "11 of 12 ranks have not come within 1.5 s: ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3"),
    ],
)
def test_who_does_not_come_to_the_first_meeting_is_named_on_every_rank(
    stores, come, of, says, monkeypatch
):
    # Time passes once all who come are there: how soon they are is the machine's affair.
    monkeypatch.setattr("allrail.runtime.agreement.time", FromTheLast(len(come)))
    begun = time.monotonic()
    heard = said_by(stores, come, of)
    assert time.monotonic() - begun < 60
    assert sorted(heard) == come
    for error in heard.values():
        assert isinstance(error, TrainingError)
        assert error.why.startswith(says)
        assert "timeouts.connect" in error.hint


def test_who_is_late_at_a_later_meeting_is_warned_of_before_it_is_given_up(stores):
    with pytest.warns(RuntimeWarning, match=r"rank 7 has not come .*`topic` of test.* ends after"):
        heard = said_by(stores, [0], 2, meets=False, called=[3, 7])
    assert "rank 7 has not come to where this rank is" in heard[0].why


def test_a_second_claimant_of_a_rank_is_refused_and_names_the_first(stores, monkeypatch):
    monkeypatch.setattr("allrail.runtime.agreement._TOKEN", "another process")
    said_by(stores, [1], 2)
    monkeypatch.undo()
    heard = said_by(stores, [0, 1], 2, patience=LONG)
    assert isinstance(heard[1], InputError)
    assert "two processes claim rank 1 of 2: process" in heard[1].why
    assert f"this one, process {os.getpid()} on" in heard[1].why
    assert heard[0] == [0, 1]


def test_all_who_come_agree(stores):
    heard = said_by(stores, range(4), 4, patience=LONG)
    assert heard == {rank: [0, 1, 2, 3] for rank in range(4)}


def environment(monkeypatch, rank, ranks, port):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    for name, value in (("RANK", rank), ("WORLD_SIZE", ranks), ("MASTER_PORT", port)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")


def test_a_port_of_torchs_store_that_is_taken_is_named_at_once(monkeypatch):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        environment(monkeypatch, 0, 2, port)
        begun = time.monotonic()
        with pytest.raises(InputError, match=f"`MASTER_PORT` is `{port}`.*another process listens"):
            store_of_job(Patience(connect=200))
        assert time.monotonic() - begun < 100


def test_a_store_of_torchs_that_nobody_serves_is_given_up_in_time(monkeypatch):
    port = free_port()
    environment(monkeypatch, 1, 2, port)
    begun = time.monotonic()
    with pytest.raises(TrainingError, match=f"rank 0 has not come within 1 s: .*127.0.0.1:{port}"):
        store_of_job(Patience(connect=1))
    assert time.monotonic() - begun < 60


def test_no_rank_waits_for_others_in_torchs_store(monkeypatch):
    port = free_port()
    environment(monkeypatch, 0, 3, port)
    begun = time.monotonic()
    store, rank, ranks = store_of_job(Patience(connect=200))
    assert time.monotonic() - begun < 60
    assert (rank, ranks) == (0, 3)
    with pytest.raises(TrainingError, match="2 of 3 ranks have not come within"):
        Agreement(store, 0, 3, "test", patience=SHORT).on("topic", 0, lambda said: said)


def test_too_many_open_files_have_a_hint_at_once(monkeypatch):
    def refused(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    client = ours.Client("http://127.0.0.1:9", "a token of this test", patience=60)
    monkeypatch.setattr("http.client.HTTPConnection.request", refused)
    with pytest.raises(TrainingError, match="too many open files") as raised:
        client.get("key")
    assert "ulimit -n " in raised.value.hint or "nofile" in raised.value.hint


def test_what_comes_late_is_heard():
    store = serving(30)
    rank_0 = Agreement(store, 0, 2, "test")
    late = threading.Timer(0.2, rank_0.on, ("topic", "first", lambda said: said))
    late.start()
    assert waiting_for_rank_0(store) == ["first", "mine"]
    late.join()
