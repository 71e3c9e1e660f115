"""A job's secret comes to all ranks on a host; who reads or changes the store has none of it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import threading
import time
import warnings

import pytest

from allrail.base.errors import InputError
from allrail.runtime import handover
from allrail.runtime.agreement import Agreement
from allrail.runtime.handover import hand_over
from allrail.runtime.job import find_job
from allrail.runtime.job_agreed import settings_of_all
from allrail.runtime.nodes import settings_of

RANKS = 3
FILE = "5a" * 32
IS_ROOT = os.geteuid() == 0


class Open:
    """A store that everybody reads, and that `change` may change."""

    def __init__(self, change=None):
        self.texts, self.change, self.all = {}, change, []

    def set(self, key, value):
        self.all.append(value)
        self.texts[key] = self.change(key, value) if self.change else value

    def get(self, key):
        until = time.monotonic() + 120
        while key not in self.texts:
            if time.monotonic() > until:
                raise RuntimeError("nobody has set it")
            time.sleep(0.001)
        return self.texts[key]

    def check(self, keys):
        return all(key in self.texts for key in keys)

    def compare_set(self, key, expected, value):
        assert expected == ""
        if key not in self.texts:
            self.set(key, value)
        return self.texts[key]


def on_ranks(store, body):
    """What each rank's `body(rank, agreement)` returns or raises."""
    answers = {}

    def run(rank):
        try:
            answers[rank] = body(rank, Agreement(store, rank, RANKS, "test"))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            answers[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[rank] for rank in range(RANKS)]


def given(store, **options):
    return on_ranks(store, lambda _, agreement: hand_over(agreement, **options))


def one_secret(answers):
    [secret] = set(answers)
    assert len(bytes.fromhex(secret)) == 32
    return secret


@contextlib.contextmanager
def child(body):
    """A process that runs `body(say)`, and what it says once."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        try:
            body(lambda text: os.write(writes, text.encode()))
        finally:
            os._exit(0)
    os.close(writes)
    try:
        with open(reads) as said:  # noqa: PTH123 - a pipe
            yield said
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_all_ranks_get_it_and_the_store_does_not():
    store = Open()
    secret = one_secret(given(store))
    assert secret not in "".join(store.all)
    assert one_secret(given(Open())) != secret
    assert not any(one.name == "allrail secret" for one in threading.enumerate())


@pytest.mark.parametrize(
    "name", [None, 1, "", "/etc/passwd", "allrail secret of nobody", "allrail secret \0", "x" * 300]
)
def test_an_address_that_was_changed_is_an_error_on_all_ranks(name):
    def change(key, value):
        return json.dumps({"decided": name}) if key.endswith("secret at/decided") else value

    store = Open(change)
    for error in given(store):
        assert isinstance(error, InputError)
        assert error.field == "secret"
        assert "job.secret" in error.hint


@pytest.mark.skipif(not IS_ROOT, reason="only root becomes another user")
def test_a_stranger_who_puts_an_address_into_the_store_hands_over_nothing():
    def stranger(say):
        os.setuid(12345)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\0allrail secret of a stranger")
            listener.listen()
            say("ready\n")
            while True:
                peer, _ = listener.accept()
                with contextlib.suppress(OSError):  # a rank hangs up once it knows the user
                    peer.sendall(b"ab" * 32)
                peer.close()

    def change(key, value):
        name = {"decided": "allrail secret of a stranger"}
        return json.dumps(name) if key.endswith("secret at/decided") else value

    with child(stranger) as said:
        assert said.readline() == "ready\n"
        store = Open(change)
        for error in given(store):
            assert isinstance(error, InputError)
            assert "user 12345" in error.message


@pytest.mark.skipif(not IS_ROOT, reason="only root becomes another user")
def test_another_user_is_given_nothing_and_does_not_delay_the_ranks(monkeypatch):
    """It has read the address, and holds a thousand connections to it."""
    monkeypatch.setattr(handover, "_PATIENCE", 60.0)
    with handover._Giver() as giver:

        def stranger(say):
            os.setuid(12345)
            crowd = []
            for _ in range(1000):
                crowd.append(socket.socket(socket.AF_UNIX))
                crowd[-1].connect(f"\0{giver.name}")
            heard = b"".join(one.recv(100) for one in crowd)
            say(f"{len(heard)}\n")
            time.sleep(120)

        with child(stranger) as said:
            assert said.readline() == "0\n"
            began = time.monotonic()
            assert handover._take(giver.name) == (giver.secret, None)
            assert time.monotonic() - began < 40


def test_silent_connections_do_not_delay_the_ranks(monkeypatch):
    monkeypatch.setattr(handover, "_PATIENCE", 60.0)
    began, crowd = time.monotonic(), []

    def change(key, value):
        if key.endswith("secret at/decided"):
            for _ in range(1000):
                crowd.append(socket.socket(socket.AF_UNIX))
                crowd[-1].connect("\0" + json.loads(value)["decided"])
        return value

    one_secret(given(Open(change)))
    assert time.monotonic() - began < 40
    for one in crowd:
        one.close()


@pytest.mark.skipif(not IS_ROOT, reason="only root becomes another user or has other files")
@pytest.mark.parametrize("kind", ["mounts", "user"])
def test_ranks_in_other_namespaces_or_of_other_users(kind):
    """The address needs no common files; another user's rank is told."""
    with handover._Giver() as giver:

        def rank(say):
            if kind == "mounts":
                assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS
                os.chroot("/proc")
            else:
                os.setuid(12345)
            say("|".join(str(one) for one in handover._take(giver.name)) + "\n")

        with child(rank) as said:
            secret, why = said.readline().strip().split("|")
    if kind == "mounts":
        assert (secret, why) == (giver.secret, "None")
    else:
        assert not secret
        assert "this is user 12345" in why


def test_where_it_cannot_be_handed_over_the_store_has_it_only_if_the_file_says_so(monkeypatch):
    monkeypatch.setattr(handover, "_take", lambda _: ("", "there is no such socket"))
    store = Open()
    for error in given(store):
        assert isinstance(error, InputError)
        assert "rank 1: there is no such socket" in error.message
    assert not any(len(text) > 60 and text.strip('"').isalnum() for text in store.all)
    store = Open()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        secret = one_secret(given(store, or_by_store=True))
    assert secret in "".join(store.all)
    assert ["others may read" in str(one.message) for one in caught] == [True]


def test_a_user_who_stands_for_all_unknown_ones_is_no_proof(monkeypatch):
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        monkeypatch.setattr(handover, "_nobody", os.geteuid)
        monkeypatch.setattr(handover, "_knows_all_users", lambda: False)
        assert "stands for all users" in handover._stranger(ours)
        monkeypatch.setattr(handover, "_knows_all_users", lambda: True)
        assert handover._stranger(ours) is None


SWITCH = {"kind": "switch", "size": RANKS, "bandwidth": "10 Gb/s", "latency": "30 us"}
APART = {"fabric": {"dimensions": [SWITCH]}}
JOBS = {
    "nothing": ({}, {}, True, "drawn"),
    "store": ({"secret": "store"}, {}, True, "drawn"),
    "file": ({"secret": "mine"}, {}, True, "file"),
    "variable": ({}, {"ALLRAIL_SECRET_FILE": "mine"}, True, "file"),
    "variable before store": ({"secret": "store"}, {"ALLRAIL_SECRET_FILE": "mine"}, True, "file"),
    "file, apart": ({"secret": "mine", "interfaces": ["lo"]}, {}, False, "file"),
    "variable, apart": ({"interfaces": ["lo"]}, {"ALLRAIL_SECRET_FILE": "mine"}, False, "file"),
    "store, apart": ({"secret": "store", "interfaces": ["lo"]}, {}, False, "in the store"),
}


@pytest.mark.parametrize("name", JOBS)
def test_no_secret_is_in_the_store_unless_the_file_says_so(name, tmp_path, monkeypatch):
    keys, variables, one_host, wanted = JOBS[name]
    (tmp_path / "mine").write_text(FILE)
    (tmp_path / "mine").chmod(0o600)
    (tmp_path / "allrail.yaml").write_text(json.dumps({"schema_version": 1, **APART, **keys}))
    monkeypatch.chdir(tmp_path)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    store = Open()

    def settings(rank, agreement):
        job = find_job(tmp_path / "allrail.yaml")
        of = {"rank": rank, "ranks": RANKS, "one_host": one_host}
        return settings_of_all(job, agreement, **of)["secret"]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        secret = one_secret(on_ranks(store, settings))
    assert (secret == FILE) == (wanted == "file")
    assert (secret in "".join(store.all)) == (wanted == "in the store")
    told = ["through its store" in str(one.message) for one in caught]
    assert told == ([True] if wanted == "in the store" else [])


def test_a_node_without_a_job_file_has_none_in_the_store_either():
    store = Open()
    made = on_ranks(store, lambda rank, agreement: settings_of(rank, RANKS, agreement)["secret"])
    assert one_secret(made) not in "".join(store.all)
