"""Where the ranks of a job find each other: the store that torch.distributed keeps, or ours.

Torch's satisfies `allrail.runtime.agreement.Store` as it is; ours is there where `allrail launch`,
MPI or srun has started the ranks.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from allrail.errors import InputError
from allrail.runtime.environment import LAUNCHERS, TORCHRUN, place_of

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_RESTARTED = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")

_met: dict[tuple[Any, ...], tuple[Any, int, int]] = {}
"""The connection of this process to torch's store, by what its environment says.

Torch asks for the name of either end of each connection, and the store does so in the one thread
that serves it: a name server that does not answer costs every rank 10 s a connection. So there is
one.
"""


def store_of_job() -> tuple[Any, int, int]:
    """Return the job's store, this process' rank and the number of processes.

    Raises:
        InputError: The process was started by no launcher, nor has it a process group.
    """
    if not dist.is_available():
        raise InputError("this torch was built without torch.distributed", hint="install another")
    if dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
        return store, dist.get_rank(), dist.get_world_size()
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing and any(one.rank in os.environ for one in LAUNCHERS if one is not TORCHRUN):
        place = place_of()
        return place.store(), place.rank, place.ranks
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
        _met[said] = _meet()
    return _met[said]


def _meet() -> tuple[Any, int, int]:
    try:
        store, rank, ranks = next(iter(dist.rendezvous("env://")))
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the environment of torchrun makes no sense: {error}",
            field="environment",
            hint="start the script with `torchrun --nproc-per-node 2 script.py`",
        ) from None
    return store, rank, ranks
