"""Ranks that wait for what another says."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch.distributed as dist  # noqa: E402

from allrail.errors import TrainingError  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402


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
            waiting_for_rank_0(serving(30))
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 15


def test_a_rank_that_does_not_come_is_named():
    with pytest.raises(TrainingError, match="rank 0 has not come to where this rank is"):
        waiting_for_rank_0(serving(1))


def test_what_comes_late_is_heard():
    store = serving(30)
    rank_0 = Agreement(store, 0, 2, "test")
    late = threading.Timer(0.2, rank_0.on, ("topic", "first", lambda said: said))
    late.start()
    assert waiting_for_rank_0(store) == ["first", "mine"]
    late.join()
