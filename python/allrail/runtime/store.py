"""Where ranks without torch tell each other things: texts under keys, served over HTTP.

`allrail launch` serves it, or rank 0; everyone else asks. It holds what ranks agree on before they
connect, some kilobytes: no tensor goes through it. Whoever has its token can read and write all of
it, and so join the job: it is for this host, or for a network that the job trusts (SECURITY.md).

A request without the token is refused before its body is read. What is sent is text, in bounded
pieces; nothing is ever unpickled or run. A stranger who opens many connections, or sends slowly,
can delay others: `CONNECTIONS` requests are served at a time, none for longer than `REQUEST`
seconds, and others are hung up on, who ask again.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import socket
import socketserver
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from allrail.errors import InputError, TrainingError

LARGEST_KEY = 512
LARGEST_VALUE = 8 << 20
LARGEST_STORE = 64 << 20
CONNECTIONS = 16
REQUEST = 5.0

# Seconds that a key, or the store, is waited for.
_PATIENCE = 300.0


class Local:
    """The store of a job with one rank."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def set(self, key: str, value: str, /) -> None:
        """Keep a text."""
        self._texts[key] = value

    def get(self, key: str, /) -> str:
        """Return a text."""
        return self._texts[key]


class Client:
    """Asks the store at an address.

    Args:
        address: Such as `http://127.0.0.1:29400`.
        token: What it knows its users by.
        patience: Seconds that a key, or the store itself, is waited for.
    """

    def __init__(self, address: str, token: str, *, patience: float = _PATIENCE) -> None:
        self._host, self._port = host_and_port(address)
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._patience = patience

    def set(self, key: str, value: str, /) -> None:
        """Keep a text for all ranks, from now on."""
        self._ask("PUT", key, value.encode())

    def get(self, key: str, /) -> str:
        """Return a text, once some rank has set it; a `NotSetError` after a while without."""
        return self._ask("GET", key, None)

    def _ask(self, method: str, key: str, body: bytes | None) -> str:
        until = time.monotonic() + self._patience
        pause = 0.002
        while True:
            status, said = self._once(method, key, body)
            if status in {200, 204}:
                return said
            if status == 403:
                raise InputError(
                    f"the store at {self._address} is another job's: it refuses this token",
                    field="ALLRAIL_STORE_TOKEN",
                    hint="give all ranks of a job the same token, and each job its own address",
                )
            if status not in {0, 404}:
                raise TrainingError(f"the store at {self._address} says: {said}")
            if time.monotonic() > until:
                break
            time.sleep(pause)
            pause = min(0.1, 1.5 * pause)
        if status == 404:
            raise NotSetError(f"no rank has set {key} within {self._patience:.0f} s")
        raise TrainingError(
            f"the store at {self._address} does not answer: {said}",
            hint="look at the first error of rank 0, and of what has started the job",
        )

    def _once(self, method: str, key: str, body: bytes | None) -> tuple[int, str]:
        """Return the status, 0 if it cannot be reached, and the text."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=REQUEST)
        try:
            connection.request(method, "/" + quote(key, safe="/"), body, self._headers)
            response = connection.getresponse()
            return response.status, response.read(LARGEST_VALUE).decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error) or type(error).__name__
        finally:
            connection.close()


class NotSetError(RuntimeError):
    """A key was not set in time."""


class Server:
    """Keeps texts, and answers who has the token; `close` ends it.

    Args:
        token: What its users are known by.
        host: Where it listens.
        port: The port; any free one if 0.
    """

    def __init__(self, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        named = f"[{host}]" if ":" in host else host
        why = "everyone could reach it" if host in {"0.0.0.0", "::"} else ""  # noqa: S104
        try:
            if not why:
                self._server = _Http(host, port, partial(_Request, token, _Texts()))
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise InputError(
                f"the store cannot listen there: {why}",
                field="ALLRAIL_STORE",
                value=f"http://{named}:{port}",
                hint="take one address of this host, and a port that is free",
            )
        self.address = f"http://{named}:{self._server.server_address[1]}"
        serve_forever = partial(self._server.serve_forever, poll_interval=0.05)
        self._thread = threading.Thread(target=serve_forever, name="allrail store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_served: dict[str, Server] = {}


def serve(address: str, token: str) -> None:
    """Serve a store at an address until this process ends; again, it changes nothing.

    Ranks ask as late as they like, so there is no time at which it could be closed before.
    """
    if address not in _served:
        host, port = host_and_port(address)
        _served[address] = Server(token, host, port)


def host_and_port(address: str) -> tuple[str, int]:
    """Take an address such as `http://127.0.0.1:29400` apart.

    Raises:
        InputError: It is none.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or not port or not address.startswith("http://"):
        raise InputError(
            "it is no address with a port",
            field="ALLRAIL_STORE",
            value=address,
            hint="such as `http://127.0.0.1:29400`",
        )
    return host, port


class _Texts:
    """What is kept, with a limit on all of it."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            return self._texts.get(key)

    def set(self, key: str, text: bytes) -> bool:
        with self._lock:
            old = self._texts.get(key)
            # What a key costs beside its text, roughly.
            more = len(text) + LARGEST_KEY if old is None else len(text) - len(old)
            if self._bytes + more > LARGEST_STORE:
                return False
            self._bytes += more
            self._texts[key] = text
            return True


class _Http(ThreadingHTTPServer):
    request_queue_size = 1024

    def __init__(self, host: str, port: int, handler: Any) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._since: dict[Any, float] = {}
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        # Its parent's asks the network for the name of this host, which can take long.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._since) >= CONNECTIONS:
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._since.pop(request, None)

    def service_actions(self) -> None:
        super().service_actions()
        late = time.monotonic() - REQUEST
        for request, since in list(self._since.items()):
            if since < late:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that hangs up is no news."""


class _Request(BaseHTTPRequestHandler):
    timeout = REQUEST

    def __init__(self, token: str, texts: _Texts, *arguments: Any) -> None:
        self._token = f"Bearer {token}".encode()
        self._texts = texts
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if (key := self._key()) is None:
            return
        text = self._texts.get(key)
        self._answer(404 if text is None else 200, text or b"")

    def do_PUT(self) -> None:
        if (key := self._key()) is None:
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_VALUE:
            self._answer(413, f"a text has {LARGEST_VALUE} bytes at most".encode())
            return
        text = self.rfile.read(int(length))
        if len(text) != int(length):
            self._answer(400, b"it ends early")
        elif self._texts.set(key, text):
            self._answer(204, b"")
        else:
            self._answer(507, f"it is full: {LARGEST_STORE} bytes".encode())

    def _key(self) -> str | None:
        """The key that is asked for, if the asker may ask."""
        said = self.headers.get("Authorization", "").encode("utf-8", "replace")
        key = unquote(self.path[1:])
        if not hmac.compare_digest(said, self._token):
            self._answer(403, b"another token")
        elif len(key) > LARGEST_KEY:
            self._answer(414, f"a key has {LARGEST_KEY} characters at most".encode())
        else:
            return key
        return None

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Nothing: requests are no news."""
