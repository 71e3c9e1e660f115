"""One launcher a host: how those of a job find each other, and who of them serves the store.

The first host's launcher serves it, at an address that all are told, to whoever has a token that
all are given: nobody can draw one for several hosts. It serves until the others have said that
their ranks have ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from allrail.base import stdin
from allrail.base.errors import InputError, TrainingError
from allrail.runtime.environment import SHORTEST_TOKEN, TOKEN
from allrail.runtime.store import Client, NotSetError, Server, host_and_port

_LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class Hosts:
    """The hosts of a job, as one of their launchers sees them.

    Attributes:
        count: How many there are.
        mine: Which one this is, from 0.
        address: Where the first one serves the store, such as `http://10.0.0.1:29400`.
        token: Who may use it.
    """

    count: int
    mine: int
    address: str
    token: str

    def serve(self) -> Server | None:
        """Begin to serve the store, where that is this host's part.

        Raises:
            InputError: It cannot listen there.
        """
        if self.mine != 0:
            return None
        host, port = host_and_port(self.address)
        return Server(self.token, host, port)

    def end(self, status: int) -> None:
        """This host's ranks have ended: tell the first host, or wait there for the others.

        What has failed is over at once: ranks of other hosts see that theirs are lost.
        """
        client = Client(self.address, self.token, patience=5.0 if self.mine else 300.0)
        try:
            if self.mine != 0:
                client.set(f"launch/{self.mine}", str(status))
            elif status == 0:
                for host in range(1, self.count):
                    client.get(f"launch/{host}")
        except (InputError, NotSetError, TrainingError):
            pass  # their ranks have ended, or nobody serves any more


def hosts_of(
    nodes: int,
    node_rank: int | None,
    rendezvous: str | None,
    token_file: Path | None,
) -> Hosts | None:
    """Return the hosts that options speak of; None for this one alone.

    Args:
        nodes: How many hosts.
        node_rank: Which one this is.
        rendezvous: Where the first one is reached: `HOST:PORT`.
        token_file: A file with the token; if None, `ALLRAIL_STORE_TOKEN` has it.

    Raises:
        InputError: Options do not fit each other, or there is no token.
    """
    given = {
        "--node-rank": node_rank,
        "--rendezvous": rendezvous,
        "--token-file": token_file,
    }
    if nodes == 1:
        for option, value in given.items():
            if value is not None and value != 0:
                raise InputError(
                    "it is for jobs on several hosts, and there is one",
                    field=option,
                    value=str(value),
                    hint="give `--nodes` too, or leave it out",
                )
        return None
    if node_rank is None or not node_rank < nodes:
        raise InputError(
            "it is not given" if node_rank is None else f"there are {nodes} hosts, from 0 on",
            field="--node-rank",
            value=None if node_rank is None else str(node_rank),
            hint="each host has its own, from 0 on; the first serves the store",
        )
    if rendezvous is None:
        raise InputError(
            "it is not given",
            field="--rendezvous",
            hint="an address of the host with `--node-rank 0`, and a port that is free there:"
            " `--rendezvous 10.0.0.1:29400`, the same on all hosts",
        )
    address = f"http://{rendezvous}"
    try:
        host_and_port(address)
    except InputError:
        raise InputError(
            "it is no address with a port",
            field="--rendezvous",
            value=rendezvous,
            hint="such as `10.0.0.1:29400`, or `[fd00::1]:29400`",
        ) from None
    return Hosts(nodes, node_rank, address, _token(token_file))


def _token(file: Path | None) -> str:
    field, token = TOKEN, os.environ.get(TOKEN, "")
    if file is not None:
        field = "--token-file"
        try:
            if file == stdin.STDIN:
                token = stdin.read(_LONGEST_TOKEN).decode("ascii", "replace").strip()
            else:
                with file.open(encoding="ascii", errors="replace") as text:
                    token = text.read(_LONGEST_TOKEN).strip()
        except OSError as error:
            raise InputError(
                f"it cannot be read: {error.strerror or error}",
                field=field,
                value=str(file),
                hint="`openssl rand -hex 16 > job.token && chmod 600 job.token`, the same file on"
                " every host",
            ) from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        why = f"it is no text of {SHORTEST_TOKEN} characters or more" if token else "it is missing"
        raise InputError(
            why,
            field=field,
            hint="hosts of one job share a token, without which anybody on the network could join:"
            " `--token-file job.token`, made by `openssl rand -hex 16`, or `ALLRAIL_STORE_TOKEN`",
        )
    return token
