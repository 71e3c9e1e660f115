"""Workers on a cluster: Ray's tasks, one a core.

Ray is not asked to try again when a node is lost; `Tasks` does, as with processes of this machine,
so a point counts once however often it was begun.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from allrail.base.errors import InputError
from allrail.base.installed import install
from allrail.results.plans import core
from allrail.scenario import Scenario
from allrail.search.sweeps.tasks import Done, Piece, Tasks, carry_out
from allrail.simulation.plugins import load_text, loaded

CONNECT_S = 3.0
GREETING_S = 10.0
"""How long what listens there may take to greet as gRPC does, which Ray speaks."""
HEALTH_S = 120.0
"""How long Ray's own check may take, most of it to start on a machine that is busy."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What begins a connection of HTTP/2: the preface, and a frame of no settings (RFC 9113, 3.4)."""
_SETTINGS = 4
"""The type of the frame that answers it, the fourth byte."""


def clustered(base: Scenario, tasks: Tasks, *, address: str) -> Iterator[tuple[str, ...]]:
    """Carry out all tasks on a cluster.

    Args:
        base: What every point changes.
        tasks: What is to be done.
        address: Of the cluster's head, `HOST:PORT`; `auto` for the one that runs on this machine.

    Yields:
        Lines of the journal as they come.

    Raises:
        InputError: Ray is not installed, or not there, or a node has another build of allrail.
    """
    ray = _connected(address)
    try:
        mine = core()
        given, plugins = ray.put(base), loaded()
        piece_of = ray.remote(max_retries=0, scheduling_strategy="SPREAD", num_cpus=1)(_carry_out)
        running: dict[Any, Piece] = {}
        while True:
            room = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while len(running) < room and (piece := tasks.next()) is not None:
                running[piece_of.remote(mine, given, plugins, piece)] = piece
            if not running:
                return
            ready, _ = ray.wait(list(running), timeout=1.0)
            for reference in ready:
                piece = running.pop(reference)
                try:
                    done = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise _refused(address, error) from None
                except ray.exceptions.RayError as error:
                    yield tasks.lost(piece, str(error).splitlines()[0])
                    continue
                yield tasks.done(piece, done)
    finally:
        ray.shutdown()


def _carry_out(core_of_driver: str, base: Scenario, plugins: dict[str, str], piece: Piece) -> Done:
    """Runs on a node."""
    if core() != core_of_driver:
        raise InputError(f"a node has another build: {core()}, here it is {core_of_driver}")
    for source, text in plugins.items():
        if loaded().get(source) != text:
            load_text(source, text)
    return carry_out(base, piece)


def _refused(address: str, error: Exception) -> InputError:
    why = str(error).strip().splitlines()[-1]
    return InputError(
        f"a node of the cluster cannot work: {why}",
        hint="the same allrail must be installed on every node",
        source="--ray",
        value=address,
    )


def _connected(address: str) -> Any:
    """Return Ray, connected; within seconds say that it is not there."""
    try:
        import ray
    except ImportError:
        raise InputError(
            "Ray is not installed",
            hint=install("ray"),
            source="--ray",
            value=address,
        ) from None
    if address != "auto":
        _answers(address)
    try:
        ray.init(
            address=address,
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
        raise _not_there(address, str(error).strip().splitlines()[0]) from None
    return ray


def _answers(address: str) -> None:
    """Refuse an address at which no Ray answers: Ray itself would try for minutes.

    Raises:
        InputError: Nobody answers, or someone else does.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(
            "it is no address",
            hint="`HOST:PORT` of the cluster's head, as `ray start --head` prints it, or `auto`",
            source="--ray",
            value=address,
        )
    try:
        connection = socket.create_connection((host, int(port)), timeout=CONNECT_S)
    except OSError as error:
        raise _not_there(address, error.strerror or str(error)) from None
    with connection:
        if not _greets(connection):
            raise _not_there(address, "something listens, but not Ray")
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(  # noqa: S603, Ray's own command
            asked,
            capture_output=True,
            timeout=HEALTH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _not_there(address, f"`ray health-check` has no answer in {HEALTH_S:g} s") from None
    if done.returncode != 0:
        raise _not_there(address, "something listens, but not Ray")


def _greets(connection: socket.socket) -> bool:
    """Whether what listens there speaks HTTP/2, as gRPC does."""
    connection.settimeout(GREETING_S)
    head = b""
    try:
        connection.sendall(_GREETING)
        while len(head) < 9 and (more := connection.recv(9 - len(head))):
            head += more
    except OSError:
        return False
    return len(head) == 9 and head[3] == _SETTINGS


def _not_there(address: str, why: str) -> InputError:
    return InputError(
        f"no Ray cluster is there: {why}",
        hint="start one by `ray start --head`, which prints its address",
        source="--ray",
        value=address,
    )
