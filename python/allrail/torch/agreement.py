"""What ranks tell each other once, through torchrun's store: texts of JSON, no pickle.

Rank 0 collects what every rank says about a topic, decides, and tells all. Keys carry the run and
its restart, since the store of an elastic job survives both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from allrail.errors import InputError
from allrail.torch.errors import TrainingError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Agreement:
    """Agrees on topics, each once, among the processes that torchrun started.

    Args:
        name: Tells this one from others of the same processes; alike on all ranks.

    Attributes:
        name: The same, with the run and its restart.
    """

    def __init__(self, store: Any, rank: int, ranks: int, name: str) -> None:
        run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.name = f"{run}/{restart}/{name}"
        self._prefix = f"allrail/{self.name}"
        self._store = store
        self._rank = rank
        self._ranks = ranks

    def on(self, topic: str, mine: Any, decide: Callable[[list[Any]], Any]) -> Any:
        """Tell the others, and return what rank 0 decides.

        Args:
            topic: What it is about; once for each topic.
            mine: What this rank says; anything that JSON holds.
            decide: Called on rank 0 with what each rank says. An `InputError` that it raises is
                raised on every rank.
        """
        prefix = f"{self._prefix}/{topic}"
        self._store.set(f"{prefix}/{self._rank}", json.dumps(mine))
        if self._rank == 0:
            said = [self._get(f"{prefix}/{rank}", rank) for rank in range(self._ranks)]
            try:
                answer = {"decided": decide(said)}
            except InputError as error:
                answer = {"why": error.why, "field": error.field, "hint": error.hint}
            self._store.set(f"{prefix}/decided", json.dumps(answer))
        answer = self._get(f"{prefix}/decided", 0)
        if "why" in answer:
            raise InputError(answer["why"], field=answer["field"], hint=answer["hint"])
        return answer["decided"]

    def _get(self, key: str, rank: int) -> Any:
        try:
            return json.loads(self._store.get(key))
        except (RuntimeError, dist.DistError) as error:
            raise TrainingError(
                f"rank {rank} has not said what it schedules",
                hint="every rank calls `allrail.torch.schedule` as often and in the same order, and"
                " runs a backward pass; look at that rank's first error",
            ) from error


def store_of_job() -> tuple[Any, int, int]:
    """Return torchrun's store, this process' rank and the number of processes.

    Raises:
        InputError: The process was not started by torchrun, nor has it a process group.
    """
    if not dist.is_available():
        raise InputError("this torch was built without torch.distributed", hint="install another")
    if dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
        return store, dist.get_rank(), dist.get_world_size()
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing:
        raise InputError(
            "this process knows no others to train with: " + ", ".join(missing) + " not set",
            field="environment",
            hint="start the script with `torchrun --nproc-per-node 2 script.py`, or call"
            " `torch.distributed.init_process_group` first",
        )
    try:
        store, rank, ranks = next(iter(dist.rendezvous("env://")))
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the environment of torchrun makes no sense: {error}",
            field="environment",
            hint="start the script with `torchrun --nproc-per-node 2 script.py`",
        ) from error
    return store, rank, ranks
