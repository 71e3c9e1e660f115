"""Where ranks without torch tell each other things: texts under keys, served over HTTP.

`allrail launch` serves it, or rank 0; everyone else asks. It holds what ranks agree on before they
connect, some kilobytes: no tensor goes through it. Whoever has its token can read and write all of
it, and so join the job: it is for this host, or for a network that the job trusts (SECURITY.md).

The token itself is never sent: a request proves it by an HMAC over what it asks for, and an answer
by one over what it says to that request. What is sent is text, in bounded pieces; nothing is ever
unpickled or run. A connection that has proved nothing stands at the `door`, where it neither delays
others nor costs a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import http.client
import io
import resource
import secrets
import threading
import time
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from allrail.base.errors import InputError, TrainingError
from allrail.runtime.door import Door, Known

LARGEST_KEY = 512
LARGEST_VALUE = 8 << 20
LARGEST_STORE = 64 << 20
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

    def check(self, keys: list[str], /) -> bool:
        """Whether all these keys are set."""
        return all(key in self._texts for key in keys)

    def compare_set(self, key: str, expected: str, value: str, /) -> str:
        """Keep a text if the key is not set; return what is kept."""
        del expected
        return self._texts.setdefault(key, value)


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
        self._token = token.encode()
        self._patience = patience

    def set(self, key: str, value: str, /) -> None:
        """Keep a text for all ranks, from now on."""
        self._ask("PUT", key, value.encode())

    def get(self, key: str, /) -> str:
        """Return a text, once some rank has set it; a `NotSetError` after a while without."""
        return str(self._ask("GET", key, None))

    def check(self, keys: list[str], /) -> bool:
        """Whether all these keys are set."""
        return all(self._ask("GET", key, None, waits=False) is not None for key in keys)

    def compare_set(self, key: str, expected: str, value: str, /) -> str:
        """Keep a text if the key is not set, which is what is expected; return what is kept."""
        if expected:
            raise NotImplementedError("only keys that are not set")
        return str(self._ask("POST", key, value.encode()) or value)

    def _ask(
        self,
        method: str,
        key: str,
        body: bytes | None,
        *,
        waits: bool = True,
    ) -> Any:
        """The text; None of a key that is not set, if it is not waited for.

        Args:
            method: As of HTTP: `GET`; `PUT`, which replaces what is kept; `POST`, which does not.
            key: Which.
            body: What is to be kept.
            waits: Whether a key that is not set is waited for.
        """
        until = time.monotonic() + self._patience
        pause = 0.002
        while True:
            status, said = self._once(method, key, body)
            if status in {200, 204, 412}:
                return said
            if status == 404 and not waits:
                return None
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
        path, nonce = "/" + quote(key, safe="/"), secrets.token_hex(16)
        digest = _digest(body or b"")
        proof = _proof(self._token, "ask", nonce, method, path, digest)
        headers = {_PROOF: f"{nonce} {proof}", _DIGEST: digest}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            said, status = response.read(LARGEST_VALUE), response.status
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE}:
                raise too_many_files(error) from None
            return 0, str(error) or type(error).__name__
        finally:
            connection.close()
        proof = _proof(self._token, "answer", nonce, str(status), _digest(said))
        if not hmac.compare_digest(response.headers.get(_PROOF, "").encode(), proof.encode()):
            return 403, ""
        return status, said.decode()


def too_many_files(error: Exception) -> TrainingError:
    """What to say where this process has as many open files as it may."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * max(now, 1024)
    if most == resource.RLIM_INFINITY or wanted <= most:
        hint = f"run `ulimit -n {wanted}` before the job starts, on each host (now {now})"
    else:
        hint = (
            f"raise the limit of open files to {wanted} (`nofile` in /etc/security/limits.conf):"
            f" this user may raise it from {now} to {most} only"
        )
    return TrainingError(f"this process has too many open files: {error}", hint=hint)


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
        self._token, self._texts = token.encode(), _Texts()
        try:
            if not why:
                self._door = Door(
                    host, port, self._is_right, refusal=b"HTTP/1.0 403 \r\n\r\n", patience=REQUEST
                )
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise InputError(
                f"the store cannot listen there: {why}",
                field="ALLRAIL_STORE",
                value=f"http://{named}:{port}",
                hint="take one address of this host, and a port that is free",
            )
        self.address = f"http://{named}:{self._door.port}"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="allrail store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._ends.set()
        self._thread.join()
        self._door.close()

    def _is_right(self, head: bytes) -> bool:
        asked = _asked(head)
        return asked is not None and hmac.compare_digest(
            asked.proof.encode(errors="replace"), asked.right_proof(self._token).encode()
        )

    def _serve(self) -> None:
        while not self._ends.is_set():
            for known in self._door.wait(0.05):
                answer = partial(self._answer, known)
                threading.Thread(target=answer, name="allrail store's answer", daemon=True).start()

    def _answer(self, known: Known) -> None:
        """Serve one request, and end its connection."""
        asked = _asked(known.head)
        with known.peer as peer, contextlib.suppress(OSError):
            if asked is not None:
                status, said = self._served(asked, known)
                proof = _proof(self._token, "answer", asked.nonce, str(status), _digest(said))
                lines = [f"HTTP/1.0 {status} ", f"{_PROOF}: {proof}"]
                if status != 204:
                    lines.append(f"Content-Length: {len(said)}")
                peer.sendall("\r\n".join([*lines, "", ""]).encode() + said)

    def _served(self, asked: _Asked, known: Known) -> tuple[int, bytes]:
        """The status of an answer, and what it says."""
        key = unquote(asked.path[1:])
        if len(key) > LARGEST_KEY:
            return 414, f"a key has {LARGEST_KEY} characters at most".encode()
        if asked.method == "GET":
            found = self._texts.get(key)
            return (404, b"") if found is None else (200, found)
        if asked.method not in {"PUT", "POST"}:
            return 501, b""
        if not asked.length.isdecimal() or int(asked.length) > LARGEST_VALUE:
            return 413, f"a text has {LARGEST_VALUE} bytes at most".encode()
        text = bytearray(known.rest)
        while len(text) < int(asked.length) and (more := known.peer.recv(1 << 16)):
            text += more
        if not hmac.compare_digest(_digest(bytes(text)).encode(), asked.digest.encode()):
            return 400, b"it is not what was proved"
        kept = self._texts.set(key, bytes(text), once=asked.method == "POST")
        if isinstance(kept, bytes):
            return 412, kept
        if not kept:
            return 507, f"it is full: {LARGEST_STORE} bytes".encode()
        return 204, b""


class _Asked(NamedTuple):
    """What the head of a request says."""

    method: str
    path: str
    nonce: str
    proof: str
    digest: str
    length: str

    def right_proof(self, token: bytes) -> str:
        """What its proof must be."""
        return _proof(token, "ask", self.nonce, self.method, self.path, self.digest)


def _asked(head: bytes) -> _Asked | None:
    """Take the head of a request apart; None if it is none."""
    line, _, rest = head.partition(b"\r\n")
    try:
        method, path, _ = line.decode("ascii").split(" ")
        headers = http.client.parse_headers(io.BytesIO(rest + b"\r\n\r\n"))
    except (ValueError, http.client.HTTPException):
        return None
    nonce, _, proof = headers.get(_PROOF, "").partition(" ")
    digest, length = headers.get(_DIGEST, ""), headers.get("Content-Length", "")
    return _Asked(method, path, nonce, proof, digest, length)


_PROOF = "Allrail-Proof"
_DIGEST = "Allrail-Digest"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _proof(token: bytes, *words: str) -> str:
    """Return what only who has the token can say of words; none of them has a line's end."""
    return hmac.new(token, "\n".join(words).encode(), "sha256").hexdigest()


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
            hint=_address_to_type(address),
        )
    return host, port


def _address_to_type(address: str) -> str:
    """What works in place of an address: `http://` before it, where that is all it lacks."""
    if "://" not in address:
        with contextlib.suppress(InputError):
            host_and_port(f"http://{address}")
            return f"write `http://{address}`"
    return "such as `http://127.0.0.1:29400`"


class _Texts:
    """What is kept, with a limit on all of it."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            return self._texts.get(key)

    def set(self, key: str, text: bytes, *, once: bool = False) -> bytes | bool:
        """Whether there was room for it; what is kept already, where that is to stay."""
        with self._lock:
            old = self._texts.get(key)
            if once and old is not None:
                return old
            # What a key costs beside its text, roughly.
            more = len(text) + LARGEST_KEY if old is None else len(text) - len(old)
            if self._bytes + more > LARGEST_STORE:
                return False
            self._bytes += more
            self._texts[key] = text
            return True
