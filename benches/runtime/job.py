"""Workers of the testbed as ranks of a job: a gloo group, nodes of ours, and where they listen."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from allrail._core import Node
from allrail.runtime.agreement import Agreement
from allrail.torch.native import Native
from allrail.torch.store import store_of_job
from testbed import Cluster, Network
from testbed.local import run_local

WORKERS = 4
GIGABIT = 10**9
_PORT = 29500
OVER_TCP: dict[str, Any] = {"shared_memory": False}
"""Workers of the testbed share a host, and stand for hosts of their own."""
_LONG = 1800.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's `mallopt`, with the largest values that they take."""
_NEVER, _LARGEST = (1 << 31) - 1, 1 << 25


@dataclass
class Worker:
    """One rank, and the networks that it is on."""

    rank: int
    cluster: Cluster
    _made: int = 0

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.cluster.workers

    @property
    def next(self) -> int:
        """The rank after this one, in a ring."""
        return (self.rank + 1) % self.ranks

    def address(self, network: int, worker: int | None = None) -> str:
        """Where a worker listens; this one, if none is named."""
        return self.cluster.address(self.rank if worker is None else worker, network)

    def dimension(self, network: int) -> dict[str, Any]:
        """What a node is told of a network: as a user would, by its nominal rate and delay."""
        one = self.cluster.networks[network]
        return {
            "interface": self.address(network),
            "bandwidth": f"{one.rate} b/s",
            "latency": f"{round(one.delay * 1e6) + 20} us",
            "kind": "switch",
        }

    def agreement(self) -> Agreement:
        """A new one, alike on all ranks that have made as many."""
        self._made += 1
        store, rank, ranks = store_of_job()
        return Agreement(store, rank, ranks, f"bench{self._made}")

    def native(self, **settings: Any) -> Native:
        """A transport for gradients over the first network."""
        agreement = self.agreement()
        dimension = {"size": self.ranks, **self.dimension(0)}
        known = {"dimensions": [dimension], "secret": _secret(agreement), **OVER_TCP, **settings}
        return Native(self.rank, self.ranks, agreement, known)

    def use_job_file(self, **keys: Any) -> None:
        """Have what asks for a job file find one of the first network, over TCP.

        Args:
            keys: What else it says.
        """
        dimension = {"size": self.ranks, **self.dimension(0)}
        interface = dimension.pop("interface")
        job = {
            "schema_version": 1,
            "fabric": {"dimensions": [dimension]},
            "interfaces": [interface],
            "secret": "store",
            **OVER_TCP,
            **keys,
        }
        folder = Path(tempfile.mkdtemp(prefix="allrail-bench-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        (folder / "allrail.yaml").write_text(json.dumps(job), encoding="utf-8")
        os.environ["ALLRAIL_JOB"] = str(folder / "allrail.yaml")

    def node(self, dimensions: Sequence[dict[str, Any]], **settings: Any) -> Node:
        """A connected node for calls."""
        agreement = self.agreement()
        known = {"rank": self.rank, "ranks": self.ranks, "job": agreement.name}
        known["secret"] = _secret(agreement)
        node = Node(json.dumps(known | {"dimensions": list(dimensions), **OVER_TCP, **settings}))
        node.connect(agreement.on("addresses", node.addresses(), lambda said: said))
        node.start()
        return node


def _secret(agreement: Agreement) -> str:
    """One for all ranks; in networks of their own, processes cannot hand one over."""
    secret: str = agreement.on("secret", os.urandom(32).hex(), lambda said: said[0])
    return secret


def keep_memory() -> None:
    """Have this process keep what it frees, as the allocators of accelerators do.

    Else glibc gives the end of its heap back after every step, and each page is zeroed again in the
    next one: some 2,000 faults and 10 ms a step, for one way or for another, as it happens to lie.
    """
    library = ctypes.CDLL(None)
    for option, value in ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _NEVER)):
        library.mallopt(option, value)


def run_on(
    networks: Sequence[Network], work: Callable[[Worker], Any], *, workers: int = WORKERS
) -> list[Any]:
    """Run a function on workers joined by these networks; return what each returned."""
    cluster = Cluster(workers, networks)

    def begin(rank: int) -> Any:
        keep_memory()
        os.environ.update(
            GLOO_SOCKET_IFNAME=cluster.device(0),
            RANK=str(rank),
            WORLD_SIZE=str(workers),
            LOCAL_RANK="0",
            MASTER_ADDR=cluster.address(0),
            MASTER_PORT=str(_PORT),
        )
        dist.init_process_group("gloo", rank=rank, world_size=workers)
        try:
            return work(Worker(rank, cluster))
        finally:
            dist.destroy_process_group()

    return cluster.run(begin, timeout=_LONG).results


def run_on_host(work: Callable[[Worker], Any], *, workers: int = WORKERS) -> list[Any]:
    """Run a function on ranks of this host, which reach each other over loopback."""
    cluster = Cluster(workers, [])

    def begin(rank: int) -> Any:
        keep_memory()
        dist.init_process_group("gloo", rank=rank, world_size=workers)
        try:
            return work(Worker(rank, cluster))
        finally:
            dist.destroy_process_group()

    return run_local(workers, begin, timeout=_LONG)
