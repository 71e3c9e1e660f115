"""Whom the environment says a process is, and where its store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from allrail.base.errors import InputError
from allrail.runtime.environment import LAUNCHERS, place_of
from allrail.runtime.store import Local
from ports import free_port

OURS = {"ALLRAIL_RANK": "1", "ALLRAIL_RANKS": "4", "ALLRAIL_LOCAL_RANK": "1"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
MPICH = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (OURS, (1, 4, 1, "allrail launch")),
        (TORCHRUN, (5, 8, 1, "torchrun")),
        (OPEN_MPI, (2, 3, 0, "Open MPI")),
        (MPICH, (0, 2, 0, "MPICH")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, 1, "MPICH")),
        (SLURM, (3, 4, 1, "srun")),
        (SLURM | MPICH | OPEN_MPI, (2, 3, 0, "Open MPI")),
        (SLURM | TORCHRUN, (5, 8, 1, "torchrun")),
        (OURS | SLURM, (1, 4, 1, "allrail launch")),
        (OURS | {"RANK": "1", "WORLD_SIZE": "4"}, (1, 4, 1, "allrail launch")),
    ],
)
def test_who_this_process_is(environment, place):
    found = place_of(environment)
    assert (found.rank, found.ranks, found.local_rank, found.launcher.about) == place


@pytest.mark.parametrize(
    ("environment", "why", "hint"),
    [
        ({}, "no launcher has started it", "allrail launch -n 4 python script.py"),
        ({"RANK": "0"}, "`WORLD_SIZE`: it is not set", "torchrun sets it"),
        ({"PMI_SIZE": "2"}, "`PMI_RANK`: it is not set", "MPICH sets it"),
        (OURS | {"ALLRAIL_RANK": "four"}, "`ALLRAIL_RANK` is `four`", "leave it as it is"),
        (OURS | {"ALLRAIL_RANKS": "-1"}, "`ALLRAIL_RANKS` is `-1`", "leave it as it is"),
        (OURS | {"ALLRAIL_RANK": "4"}, "there are 4 ranks, counted from 0", "leave them"),
        (SLURM | {"SLURM_NTASKS": "0"}, "there are 0 ranks", "leave them"),
        (OURS | TORCHRUN, "rank 1 of 4, and `RANK` and `WORLD_SIZE` rank 5 of 8", "unset"),
    ],
)
def test_an_environment_that_makes_no_sense(environment, why, hint):
    with pytest.raises(InputError) as raised:
        place_of(environment)
    assert why in str(raised.value)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("store", "field"),
    [
        ({}, "ALLRAIL_STORE"),
        ({"ALLRAIL_STORE": "http://127.0.0.1:29400"}, "ALLRAIL_STORE_TOKEN"),
        ({"ALLRAIL_STORE_TOKEN": "0" * 32}, "ALLRAIL_STORE"),
        (
            {"ALLRAIL_STORE": "http://127.0.0.1:29400", "ALLRAIL_STORE_TOKEN": "me"},
            "ALLRAIL_STORE_TOKEN",
        ),
    ],
)
def test_mpi_needs_a_store_and_is_told_how_to_give_one(store, field):
    with pytest.raises(InputError) as raised:
        place_of(OPEN_MPI).store(store)
    assert raised.value.field == field
    assert "mpirun" in raised.value.hint
    assert "openssl rand" in raised.value.hint


def test_rank_0_serves_the_store_of_mpi():
    one, other = (place_of({"PMI_RANK": rank, "PMI_SIZE": "2"}) for rank in ("0", "1"))
    environment = {
        "ALLRAIL_STORE": f"http://127.0.0.1:{free_port()}",
        "ALLRAIL_STORE_TOKEN": "s" * 16,
    }
    asked = other.store(environment)
    one.store(environment).set("a", '"b"')
    assert asked.get("a") == '"b"'


def test_one_rank_needs_no_store():
    alone = place_of({"RANK": "0", "WORLD_SIZE": "1"})
    assert isinstance(alone.store({}), Local)


def test_the_table_of_launchers_is_that_of_the_guide():
    guide = Path(__file__).parents[2] / "docs" / "guides" / "communicator.md"
    text = guide.read_text()
    for launcher in LAUNCHERS:
        assert f"`{launcher.rank}`" in text, launcher
