"""Which rank this process is, of how many, and where ranks find each other: from its environment.

| started by | rank, ranks, rank on this host | the store |
|---|---|---|
| `allrail launch` | `ALLRAIL_RANK`, `ALLRAIL_RANKS`, `ALLRAIL_LOCAL_RANK` | the launcher's |
| `torchrun` | `RANK`, `WORLD_SIZE`, `LOCAL_RANK` | torch's |
| Open MPI | `OMPI_COMM_WORLD_RANK`, `..._SIZE`, `..._LOCAL_RANK` | rank 0 serves it |
| MPICH, Intel MPI | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID` | rank 0 serves it |
| `srun` | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID` | rank 0 serves it |

Who stands higher in the table counts where several have left their variables: a scheduler starts
launchers, which start ranks. Where rank 0 serves the store, `ALLRAIL_STORE` says at which address
and `ALLRAIL_STORE_TOKEN` who may use it; both are the same on all ranks.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass

from allrail.base import late
from allrail.base.errors import InputError
from allrail.base.installed import install
from allrail.runtime import store
from allrail.runtime.agreement import Patience, Store

ADDRESS = "ALLRAIL_STORE"
TOKEN = "ALLRAIL_STORE_TOKEN"  # noqa: S105 - the name of a variable

SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Launcher:
    """A kind of launcher, and what it leaves in the environment.

    Attributes:
        about: What it is called.
        rank: The variable with this process' number.
        ranks: The variable with how many there are.
        local_rank: The variable with this process' number on its host.
        serves: Whether the launcher keeps the store; else rank 0 does.
    """

    about: str
    rank: str
    ranks: str
    local_rank: str
    serves: bool = False


OURS = Launcher(
    "allrail launch", "ALLRAIL_RANK", "ALLRAIL_RANKS", "ALLRAIL_LOCAL_RANK", serves=True
)
TORCHRUN = Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", serves=True)
LAUNCHERS = (
    OURS,
    TORCHRUN,
    Launcher(
        "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"
    ),
    Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Launcher("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in its job.

    Attributes:
        rank: Its number, from 0.
        ranks: How many there are.
        local_rank: Its number on its host; its rank where nobody says.
        launcher: Who has started it.
    """

    rank: int
    ranks: int
    local_rank: int
    launcher: Launcher

    def store(
        self, environment: Mapping[str, str] = os.environ, *, patience: Patience | None = None
    ) -> Store:
        """Return the store of the job; rank 0 begins to serve it where that is its part.

        Args:
            environment: Its variables.
            patience: How long ranks wait for each other; None for the defaults of a job file.

        Raises:
            InputError: Nothing says where it is, or who may use it.
        """
        if self.ranks == 1:
            return store.Local()
        if self.launcher is TORCHRUN and ADDRESS not in environment:
            return _store_of_torch(patience)
        address, token = environment.get(ADDRESS, ""), environment.get(TOKEN, "")
        if not address or len(token) < SHORTEST_TOKEN:
            missing = ADDRESS if not address else TOKEN
            raise InputError(
                "it says nothing" if not environment.get(missing) else "it is short to guess",
                field=missing,
                hint="give all ranks an address that rank 0 can serve, and a secret of"
                f" {SHORTEST_TOKEN} characters or more, such as: export"
                f" {ADDRESS}=http://127.0.0.1:29400 {TOKEN}=$(openssl rand -hex 16); with mpirun,"
                f" also -x {ADDRESS} -x {TOKEN}; or start the ranks with `allrail launch`",
            )
        if self.rank == 0 and not self.launcher.serves:
            store.serve(address, token)
        return store.Client(address, token, patience=(patience or Patience()).connect)


def place_of(environment: Mapping[str, str] = os.environ) -> Place:
    """Return where this process stands.

    Args:
        environment: Its variables.

    Raises:
        InputError: No launcher has started it, or what stands there makes no sense.
    """
    found = [one for one in LAUNCHERS if one.rank in environment or one.ranks in environment]
    if not found:
        raise InputError(
            "this process knows no others: no launcher has started it",
            field="environment",
            hint="start the script with `allrail launch -n 4 python script.py`, torchrun, mpirun or"
            " srun",
        )
    place = _place_of(found[0], environment)
    # Nobody starts ranks of ours by torchrun, or the other way round: one of them is left over.
    if found[:2] == [OURS, TORCHRUN]:
        other = _place_of(TORCHRUN, environment)
        if (place.rank, place.ranks) != (other.rank, other.ranks):
            raise InputError(
                f"`{OURS.rank}` and `{OURS.ranks}` say rank {place.rank} of {place.ranks}, and"
                f" `{TORCHRUN.rank}` and `{TORCHRUN.ranks}` rank {other.rank} of {other.ranks}",
                field="environment",
                hint="start the script with one of `allrail launch` and torchrun, and unset what"
                " the other has left",
            )
    return place


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process' number on its host; 0 where no launcher says.

    Args:
        environment: Its variables.
    """
    said = (environment.get(one.local_rank, "") for one in LAUNCHERS)
    return next((int(text) for text in said if text.isascii() and text.isdecimal()), 0)


def _place_of(launcher: Launcher, environment: Mapping[str, str]) -> Place:
    rank = _number(launcher, launcher.rank, environment)
    ranks = _number(launcher, launcher.ranks, environment)
    local = rank
    if launcher.local_rank in environment:
        local = _number(launcher, launcher.local_rank, environment)
    if rank >= ranks:
        raise InputError(
            f"there are {ranks} ranks, counted from 0, as `{launcher.ranks}` says",
            field=launcher.rank,
            value=str(rank),
            hint=f"both are what {launcher.about} sets: leave them as they are",
        )
    return Place(rank, ranks, local, launcher)


def _number(launcher: Launcher, name: str, environment: Mapping[str, str]) -> int:
    text = environment.get(name)
    if text is None or not text.isascii() or not text.isdecimal():
        raise InputError(
            "it is not set" if text is None else "it is not a number from 0 on",
            field=name,
            value=text,
            hint=f"{launcher.about} sets it, and what else it sets is there: leave it as it is",
        )
    return int(text)


def _store_of_torch(patience: Patience | None) -> Store:
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "`RANK` and `WORLD_SIZE` are torchrun's, and torch is not installed here",
            field="environment",
            hint=f"{install('torch')}, or start the script with `allrail launch`",
        )
    found: Store = late.call("store of torch", patience)[0]
    return found
