"""`allrail launch`: a script as several ranks, on this host or on several."""

from __future__ import annotations

import click

from allrail.cli import options
from allrail.cli.function import function


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-n",
    "--ranks",
    type=click.IntRange(1, 4096),
    required=True,
    metavar="N",
    help="Number of ranks on this host",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 4096),
    default=1,
    metavar="N",
    help="Number of hosts, with the same number of ranks each",
)
@click.option("--node-rank", type=click.IntRange(0), metavar="I", help="Index of this host, from 0")
@click.option(
    "--rendezvous",
    metavar="HOST:PORT",
    help="HOST:PORT of node 0, the same on every host",
)
@click.option(
    "--token-file",
    type=options.Input(),
    metavar="FILE",
    help="File with the job's shared token; else ALLRAIL_STORE_TOKEN has it",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="CMD...")
@function("launch")
def command(status: int) -> None:
    """Run CMD as N processes on this host, which find each other by `allrail.Communicator`.

    Each line that a rank prints stands behind its number. When one fails, the others are ended, and
    its status is that of `allrail launch`. Ctrl-C ends all.

    Each rank has ALLRAIL_RANK, ALLRAIL_RANKS and ALLRAIL_LOCAL_RANK in its environment. On
    several hosts, run it on each, with `--nodes` and the same token on all; when a rank fails,
    those of its host are ended, and others see that it is lost. `allrail.Communicator` knows ranks
    of mpirun, srun and torchrun, too.

    \b
    Examples:
      allrail launch -n 4 python train.py --epochs 3
      allrail launch -n 8 --nodes 2 --node-rank 0 --rendezvous 10.0.0.1:29400 \\
        --token-file job.token python train.py
      allrail launch -n 2 -- python -c 'import allrail; print(allrail.Communicator().rank)'
    """  # noqa: D301, click wants the character
    raise SystemExit(status)
