"""The store of jobs without torch: who may use it, what it keeps, and what strangers cost it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time

import pytest

from allrail.base.errors import InputError, TrainingError
from allrail.runtime import door, store
from allrail.runtime.agreement import Agreement, Patience
from allrail.runtime.store import Client, NotSetError, Server, host_and_port

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


def allowed(method, path, body=b"", token=TOKEN, **more):
    digest = store._digest(body or b"")
    proof = store._proof(token.encode(), "ask", "n", method, path, digest)
    return {"Allrail-Proof": f"n {proof}", "Allrail-Digest": digest} | more


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
        Agreement(client, 0, 2, "test", patience=Patience(connect=0.3)).on("sum", 1, sum)
    assert "1 of 2 ranks has not come within 0.3 s: rank 1" in str(raised.value)


def test_a_store_that_is_gone_is_said(server):
    gone = Client(server.address, TOKEN, patience=0.2)
    server.close()
    with pytest.raises(TrainingError, match="does not answer"):
        Agreement(gone, 1, 2, "test").on("sum", 1, sum)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {TOKEN}"},
        {"Allrail-Proof": TOKEN},
        {"Allrail-Proof": ""},
        allowed("GET", "/other"),
        allowed("PUT", "/other"),
        allowed("GET", "/secret", token="another"),
        allowed("PUT", "/secret", b"x", token="another"),
    ],
)
def test_strangers_are_refused_and_learn_nothing(server, client, method, headers):
    client.set("secret", '"s"')
    assert ask(server, method, "/secret", b"" if method == "PUT" else None, headers) == (403, b"")
    assert client.get("secret") == '"s"'


@pytest.mark.parametrize("words", [b"GET /secret HTTP/1.1\r\n\r\n", b"\xff" * 400 + b"\n", b"?\n"])
def test_strangers_are_not_told_what_serves(server, words):
    with socket.create_connection(host_and_port(server.address), timeout=5) as stranger:
        stranger.sendall(words)
        stranger.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: stranger.recv(4096), b""))
    assert said in {b"HTTP/1.0 403 \r\n\r\n", b""}


def test_what_was_proved_is_not_good_for_another_body(server, client):
    client.set("a", "1")
    assert ask(server, "PUT", "/a", b"2", allowed("PUT", "/a", b"1"))[0] == 400
    assert client.get("a") == "1"


def test_the_token_is_never_sent_and_who_lacks_it_answers_in_vain():
    """A stranger at the store's address hears no token, and nothing that it says is believed."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            stranger, _ = listener.accept()
            with stranger:
                heard.append(stranger.recv(65536))
                stranger.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1")

        thread = threading.Thread(target=answer)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN, patience=1)
        with pytest.raises(InputError, match="refuses this token"):
            client.get("a")
        thread.join()
    assert TOKEN.encode() not in heard[0]


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
    for header in ({"Content-Length": "-1"}, {"Transfer-Encoding": "chunked"}):
        body = b"x" if "Content-Length" in header else None
        headers = allowed("PUT", "/a", body, **header)
        assert ask(server, "PUT", "/a", body, headers)[0] == 413
    with pytest.raises(TrainingError, match="512 characters at most"):
        client.set("k" * 513, "")
    client.set("b", "y" * 100)
    client.set("c", "y" * 100)
    with pytest.raises(TrainingError, match="it is full"):
        client.set("d", "y" * 100)
    client.set("c", "z" * 100)  # in the place of another
    assert client.get("c") == "z" * 100


def test_a_text_that_is_claimed_is_kept(client):
    assert client.compare_set("a", "", "mine") == "mine"
    assert client.compare_set("a", "", "another's") == "mine"
    assert client.get("a") == "mine"
    assert (client.check(["a"]), client.check(["a", "b"])) == (True, False)


def test_nothing_but_texts_of_keys_is_served(server):
    for method in ("DELETE", "PATCH", "CONNECT"):
        assert ask(server, method, "/a", None, allowed(method, "/a"))[0] == 501
    path = "/../../etc/passwd"
    assert ask(server, "GET", path, None, allowed("GET", path))[0] == 404


KINDS = {
    "silent": b"",
    "half a line": b"GET /a HT",
    "headers without end": b"GET /a HTTP/1.1\r\n" + b"a: b\r\n" * 50,
    "a body that does not come": b"PUT /a HTTP/1.1\r\nContent-Length: 9\r\n",
    "garbage": b"\xff\n" * 100,
}

# Strangers come, say their words, drip, and come again when they are hung up on.
CROWD = """
import contextlib, socket, sys, time
host, port, count, *words = sys.argv[1:]
words = [bytes.fromhex(one) for one in words]
def come(place):
    one = socket.create_connection((host, int(port)), timeout=5)
    with contextlib.suppress(OSError):
        one.sendall(words[place % len(words)])
    one.setblocking(False)
    return one
crowd = [come(place) for place in range(int(count))]
print(len(crowd), flush=True)
while True:
    for place, one in enumerate(crowd):
        try:
            if place % 2:
                one.send(b"x")
            if one.recv(4096):
                continue
        except BlockingIOError:
            continue
        except OSError:
            pass
        one.close()
        crowd[place] = come(place)
    time.sleep(0.01)
"""


@contextlib.contextmanager
def crowd_at(server, count, kinds):
    """Strangers from a process of their own."""
    host, port = host_and_port(server.address)
    words = [KINDS[kind].hex() for kind in kinds]
    command = [sys.executable, "-c", CROWD, host, str(port), str(count), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crowd:
        try:
            assert crowd.stdout.readline().strip() == str(count)
            yield
        finally:
            crowd.kill()


@pytest.fixture
def patient(monkeypatch):
    """A server that lets a stranger stay for a minute."""
    monkeypatch.setattr(store, "REQUEST", 60.0)
    server = Server(TOKEN)
    yield server
    server.close()


@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), list(KINDS)], ids=str)
@pytest.mark.parametrize("count", [1, 18, 70, 1000])
def test_strangers_do_not_delay_who_has_the_token(patient, count, kinds):
    """However many there are, whatever they say, and though they come again at once."""
    server = patient
    with crowd_at(server, count, kinds):
        began = time.monotonic()
        client = Client(server.address, TOKEN, patience=120)
        for number in range(10):
            client.set(f"key {number}", str(number))
            assert client.get(f"key {number}") == str(number)
        # 20 requests in less time than any one stranger may stay.
        assert time.monotonic() - began < 50
        # They cost no threads; that of an answered request ends by itself.
        until = time.monotonic() + 60
        while threading.active_count() >= 10 and time.monotonic() < until:
            time.sleep(0.01)
        assert threading.active_count() < 10


def test_who_stays_silent_is_hung_up_on_and_who_has_the_token_keeps_its_place(monkeypatch):
    monkeypatch.setattr(store, "REQUEST", 1.0)
    server = Server(TOKEN)
    slow = socket.create_connection(host_and_port(server.address), timeout=5)
    headers = allowed("PUT", "/a", b"1", **{"Content-Length": "1"})
    slow.sendall(b"PUT /a HTTP/1.1\r\n")
    slow.sendall("".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode())
    slow.sendall(b"\r\n")
    time.sleep(0.2)
    strangers = [
        socket.create_connection(host_and_port(server.address), timeout=5)
        for _ in range(2 * door.STRANGERS)
    ]
    slow.sendall(b"1")
    assert slow.recv(4096).startswith(b"HTTP/1.0 204")
    for stranger in strangers:
        with contextlib.suppress(ConnectionResetError):
            assert not stranger.recv(1)
        stranger.close()
    slow.close()
    server.close()


def test_a_crowd_from_one_host_gives_way_before_others(server):
    """Of the sources of strangers, the one with most of them loses its oldest."""
    few = [
        socket.create_connection(
            host_and_port(server.address), timeout=5, source_address=(f"127.0.0.{place}", 0)
        )
        for place in (2, 3, 4)
    ]
    crowd = [
        socket.create_connection(host_and_port(server.address), timeout=5)
        for _ in range(4 * door.STRANGERS)
    ]
    assert crowd[0].recv(1) == b""  # it is the oldest of them
    for one in few:
        one.settimeout(0.1)
        with pytest.raises(TimeoutError):
            one.recv(1)
    for one in [*few, *crowd]:
        one.close()


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1:80", "http://127.0.0.1", "https://a:1", "http://a:99999", "http://:1"],
)
def test_an_address_that_is_none(address):
    with pytest.raises(InputError, match="no address with a port"):
        Client(address, TOKEN)


@pytest.mark.parametrize("address", ["127.0.0.1:80", "localhost:29400", "[::1]:80"])
def test_the_hint_to_an_address_without_http_is_one(address):
    with pytest.raises(InputError) as raised:
        Client(address, TOKEN)
    assert f"`http://{address}`" in raised.value.hint
    host_and_port(f"http://{address}")


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
    until = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == before
