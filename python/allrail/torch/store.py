"""Where the ranks of a job find each other: the store that torch.distributed keeps, or ours.

Torch's satisfies `allrail.runtime.agreement.Store` as it is; ours is there where `allrail launch`,
MPI or srun has started the ranks.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from allrail.base.errors import InputError, TrainingError
from allrail.runtime.agreement import Patience
from allrail.runtime.environment import LAUNCHERS, TORCHRUN, place_of
from allrail.runtime.store import too_many_files
from allrail.torch import private

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_RESTARTED = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")

_met: dict[tuple[Any, ...], tuple[Any, int, int]] = {}
"""The connection of this process to torch's store, by what its environment says.

Torch asks for the name of either end of each connection, and the store does so in the one thread
that serves it: a name server that does not answer costs every rank 10 s a connection. So there is
one.
"""


def store_of_job(patience: Patience | None = None) -> tuple[Any, int, int]:
    """Return the job's store, this process' rank and the number of processes.

    Args:
        patience: How long ranks wait for each other; None for the defaults of a job file.

    Raises:
        InputError: The process was started by no launcher, nor has it a process group.
    """
    if not dist.is_available():
        raise InputError("this torch was built without torch.distributed", hint="install another")
    if dist.is_initialized():
        store = private.default_store()
        return store, dist.get_rank(), dist.get_world_size()
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing and any(one.rank in os.environ for one in LAUNCHERS if one is not TORCHRUN):
        place = place_of()
        return place.store(patience=patience), place.rank, place.ranks
    if missing:
        raise InputError(
            "this process knows no others to train with: " + ", ".join(missing) + " not set",
            field="environment",
            hint="start the script with `torchrun --nproc-per-node 2 script.py` or `allrail launch"
            " -n 2 python script.py`, or call `torch.distributed.init_process_group` first",
        )
    # With a rank that cannot be, torch would wait for a store that nobody serves.
    place_of({name: os.environ[name] for name in (TORCHRUN.rank, TORCHRUN.ranks)})
    said = (os.getpid(), *(os.environ.get(name) for name in (*_NEEDED, *_RESTARTED)))
    if said not in _met:
        _met.clear()
        _met[said] = _meet((patience or Patience()).connect)
    return _met[said]


def _meet(seconds: float) -> tuple[Any, int, int]:
    """Connect with torch's store, as `env://` does, but without waiting for other ranks.

    Who has not come is found, and named, where ranks agree on the first thing.
    """
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    # The agent of torchrun serves it, or rank 0.
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    try:
        store = dist.TCPStore(
            host,
            int(port),
            ranks,
            is_master=rank == 0 and not served,
            timeout=timedelta(seconds=seconds),
            wait_for_workers=False,
            multi_tenant=not served,
        )
    except (ValueError, RuntimeError) as error:
        raise _refused(str(error), (host, port), rank, seconds) from None
    store.set_timeout(dist.default_pg_timeout)
    return store, rank, ranks


def _refused(said: str, at: tuple[str, str], rank: int, seconds: float) -> Exception:
    host, port = at
    text = said.lower()
    if "eaddrinuse" in text or "address already in use" in text:
        return InputError(
            f"another process listens at port {port} of this host",
            field="MASTER_PORT",
            value=port,
            hint="give all ranks another port, such as `torchrun --master-port 29511 ...`",
        )
    if "emfile" in text or "too many open files" in text:
        return too_many_files(RuntimeError("torch cannot open its store"))
    if "timed out" in text or "timeout" in text or "connect" in text:
        return TrainingError(
            f"rank 0 has not come within {seconds:g} s: nobody answers at {host}:{port}, where rank"
            f" {rank} looks for it",
            hint="look whether rank 0 runs, and at its first error; `MASTER_ADDR` and `MASTER_PORT`"
            " are the same on all ranks",
        )
    return InputError(
        f"the environment of torchrun makes no sense: {said}",
        field="environment",
        hint="start the script with `torchrun --nproc-per-node 2 script.py`",
    )
