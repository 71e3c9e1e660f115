"""The store of jobs without torch: who may use it, what it keeps, and what strangers cost it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time

import pytest

from allrail.errors import InputError, TrainingError
from allrail.runtime import store
from allrail.runtime.agreement import Agreement
from allrail.runtime.store import REQUEST, Client, NotSetError, Server, host_and_port

TOKEN = "what only this job knows"


@pytest.fixture
def server():
    server = Server(TOKEN)
    yield server
    server.close()


@pytest.fixture
def client(server):
    return Client(server.address, TOKEN, patience=0.3)


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(*host_and_port(server.address), timeout=5)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def allowed(**more):
    return {"Authorization": f"Bearer {TOKEN}"} | more


def test_keeps_texts_under_keys(client):
    client.set("a/b c/ü", '"Ü"')
    assert client.get("a/b c/ü") == '"Ü"'
    client.set("a/b c/ü", "2")
    assert client.get("a/b c/ü") == "2"
    client.set("empty", "")
    assert client.get("empty") == ""


def test_waits_for_what_is_not_there_yet(server, client):
    patient = Client(server.address, TOKEN, patience=10)
    later = threading.Timer(0.1, client.set, ("late", "1"))
    later.start()
    assert patient.get("late") == "1"
    later.join()
    with pytest.raises(NotSetError, match="no rank has set never within 0 s"):
        client.get("never")


def test_ranks_agree_over_it(server):
    answers = {}

    def rank(number):
        agreement = Agreement(Client(server.address, TOKEN), number, 3, "test")
        answers[number] = agreement.on("sum", number, sum)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {0: 3, 1: 3, 2: 3}


def test_a_rank_that_does_not_come_is_named(client):
    with pytest.raises(TrainingError) as raised:
        Agreement(client, 0, 2, "test").on("sum", 1, sum)
    assert "rank 1 has not come" in str(raised.value)


def test_a_store_that_is_gone_is_said(server):
    gone = Client(server.address, TOKEN, patience=0.2)
    server.close()
    with pytest.raises(TrainingError, match="does not answer"):
        Agreement(gone, 1, 2, "test").on("sum", 1, sum)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": TOKEN}])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_strangers_are_refused(server, client, method, headers):
    client.set("secret", '"s"')
    assert ask(server, method, "/secret", b"" if method == "PUT" else None, headers)[0] == 403
    assert client.get("secret") == '"s"'


def test_another_job_is_told_so(server):
    with pytest.raises(InputError) as raised:
        Client(server.address, "another token").get("a")
    assert "refuses this token" in str(raised.value)
    assert raised.value.field == "ALLRAIL_STORE_TOKEN"


def test_what_is_too_long_is_refused(server, client, monkeypatch):
    monkeypatch.setattr(store, "LARGEST_VALUE", 100)
    monkeypatch.setattr(store, "LARGEST_STORE", 2000)
    client.set("a", "x" * 100)
    with pytest.raises(TrainingError, match="100 bytes at most"):
        client.set("a", "x" * 101)
    assert ask(server, "PUT", "/a", b"x", allowed(**{"Content-Length": "-1"}))[0] == 413
    assert ask(server, "PUT", "/a", None, allowed(**{"Transfer-Encoding": "chunked"}))[0] == 413
    with pytest.raises(TrainingError, match="512 characters at most"):
        client.set("k" * 513, "")
    client.set("b", "y" * 100)
    client.set("c", "y" * 100)
    with pytest.raises(TrainingError, match="it is full"):
        client.set("d", "y" * 100)
    client.set("c", "z" * 100)  # in the place of another
    assert client.get("c") == "z" * 100


def test_nothing_but_texts_of_keys_is_served(server):
    for method in ("POST", "DELETE", "PATCH", "CONNECT"):
        assert ask(server, method, "/a", None, allowed())[0] == 501
    assert ask(server, "GET", "/../../etc/passwd", None, allowed())[0] == 404


def test_who_floods_or_trickles_is_hung_up_on(server, monkeypatch):
    monkeypatch.setattr(store, "REQUEST", 0.3)
    strangers = []
    for _ in range(2 * store.CONNECTIONS):
        stranger = socket.create_connection(host_and_port(server.address))
        stranger.sendall(b"GET /a HT")
        strangers.append(stranger)
    time.sleep(0.1)
    assert threading.active_count() < store.CONNECTIONS + 5
    began = time.monotonic()
    client = Client(server.address, TOKEN, patience=5)
    client.set("a", "1")  # it has to ask more than once
    assert client.get("a") == "1"
    assert time.monotonic() - began < 3
    for stranger in strangers:
        stranger.settimeout(2)
        with contextlib.suppress(ConnectionResetError):
            assert not stranger.recv(1)
        stranger.close()


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1:80", "http://127.0.0.1", "https://a:1", "http://a:99999", "http://:1"],
)
def test_an_address_that_is_none(address):
    with pytest.raises(InputError, match="no address with a port"):
        Client(address, TOKEN)


def test_it_does_not_listen_on_all_interfaces_nor_where_it_cannot(server):
    with pytest.raises(InputError, match="everyone could reach it"):
        Server(TOKEN, "0.0.0.0")
    with pytest.raises(InputError, match="cannot listen there"):
        Server(TOKEN, *host_and_port(server.address))


def test_it_ends():
    before = threading.active_count()
    server = Server(TOKEN)
    Client(server.address, TOKEN).set("a", "1")
    server.close()
    # The thread of an answered request ends by itself.
    until = time.monotonic() + REQUEST
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == before
