"""The testbed itself: addresses, rates, isolation, and what becomes of workers that fail."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from pathlib import Path

import pytest

from testbed import Cluster, Network, WorkerFailedError, why_not

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

PORT = 7000


def test_every_worker_reaches_every_other_in_every_network():
    cluster = Cluster(3, [Network(), Network()])

    def work(worker):
        servers = [socket.create_server((cluster.address(worker, n), PORT)) for n in range(2)]
        found = []
        for network in range(2):
            for other in range(3):
                address = (cluster.address(other, network), PORT)
                while True:
                    try:
                        with socket.create_connection(address, timeout=5) as peer:
                            found.append(peer.getpeername()[0])
                        break
                    except ConnectionRefusedError:
                        time.sleep(0.01)
        for server in servers:
            for _ in range(3):
                server.accept()[0].close()
        return found

    every = [cluster.address(other, network) for network in range(2) for other in range(3)]
    assert cluster.run(work).results == [every] * 3


def test_no_way_leads_out():
    def work(worker):
        del worker
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
            except OSError as error:
                return error.strerror
        return "connected"

    assert Cluster(1, [Network()]).run(work).results == ["Network is unreachable"]


def received(cluster, worker, network, seconds):
    """Bytes a second that this worker gets from the one before it, while all send to the next.

    From when the other began to send, which says so: what waits to be read came meanwhile.
    """
    server = socket.create_server((cluster.address(worker, network), PORT))
    after = (worker + 1) % cluster.workers
    child = os.fork()
    if child == 0:
        while True:
            try:
                to = socket.create_connection((cluster.address(after, network), PORT), timeout=10)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        begun = time.monotonic()
        to.sendall(struct.pack("d", begun))
        while time.monotonic() < begun + seconds:
            to.sendall(bytes(1 << 16))
        os._exit(0)
    peer, _ = server.accept()
    buffer = bytearray(1 << 20)
    (begun,) = struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))
    count = 0
    while got := peer.recv_into(buffer):
        count += got
    os.waitpid(child, 0)
    return count / (time.monotonic() - begun)


def check_rate(cluster, network, rate):
    """Never more than that, and nearly as much in the best of some tries: a machine may be busy.

    A wrong shape would carry ten times as much, or a tenth.
    """
    best = [0.0] * cluster.workers
    for _ in range(8):
        found = cluster.run(lambda worker: received(cluster, worker, network, 0.7)).results
        assert all(8 * one < 1.1 * rate for one in found), found
        best = [max(pair) for pair in zip(best, found, strict=True)]
        if all(8 * one > 0.3 * rate for one in best):
            return
    raise AssertionError(best)


def test_a_cable_carries_what_it_is_told_and_no_more():
    rates = [100_000_000, 25_000_000]
    cluster = Cluster(2, [Network(rate) for rate in rates])
    for network, rate in enumerate(rates):
        check_rate(cluster, network, rate)


def test_what_a_worker_raises_is_told_with_its_traceback():
    def work(worker):
        if worker == 1:
            raise ValueError("here it is")
        return worker

    with pytest.raises(WorkerFailedError, match=r"worker 1: (.|\n)*here it is"):
        Cluster(2, [Network()]).run(work)


def test_a_worker_that_is_killed_or_hangs_is_named():
    def killed(worker):
        if worker == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return worker

    cluster = Cluster(2, [Network()])
    with pytest.raises(WorkerFailedError, match="worker 0 is gone"):
        cluster.run(killed)
    ran = cluster.run(killed, may_die=True)
    assert (ran.results, ran.died) == ([None, 1], [0])
    with pytest.raises(WorkerFailedError, match="worker 0 is gone"):
        Cluster(1, [Network()]).run(lambda _: time.sleep(300), timeout=0.3)


def test_nothing_is_left_behind():
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    Cluster(2, [Network()]).run(lambda worker: worker)
    assert count() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("delay", [0.0005, 0.005])
def test_a_frame_takes_as_long_as_its_network_is_told(delay):
    """A loaded machine may take longer; the rate stays, however long the cables are."""
    rate = 100_000_000
    cluster = Cluster(2, [Network(rate, delay)])

    def work(worker):
        if worker == 0:
            with socket.create_server((cluster.address(0), PORT)) as server:
                peer, _ = server.accept()
                while word := peer.recv(1):
                    peer.send(word)
            return None
        while True:
            try:
                peer = socket.create_connection((cluster.address(0), PORT), timeout=10)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        # As many as it takes: on a machine that is busy each may be late.
        while len(trips) < 20 or (min(trips) > 2 * delay + 0.05 and len(trips) < 500):
            begun = time.monotonic()
            peer.send(b"x")
            peer.recv(1)
            trips.append(time.monotonic() - begun)
        return min(trips)

    trip = cluster.run(work).results[1]
    assert 2 * delay <= trip < 2 * delay + 0.05
    check_rate(cluster, 0, rate)
