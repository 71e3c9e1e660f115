"""`allrail launch`: a script as several ranks on this host."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-n",
    "--ranks",
    type=click.IntRange(1, 4096),
    required=True,
    metavar="N",
    help="How many ranks.",
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="CMD...")
@click.pass_context
def command(context: click.Context, *, ranks: int, words: tuple[str, ...]) -> None:
    """Run CMD as N processes on this host, which find each other by `allrail.Communicator`.

    Each line that a rank prints stands behind its number. When one fails, the others are ended, and
    its status is that of `allrail launch`. Ctrl-C ends all.

    Each rank has ALLRAIL_RANK, ALLRAIL_RANKS and ALLRAIL_LOCAL_RANK in its environment. For several
    hosts there are mpirun, srun and torchrun, whose ranks `allrail.Communicator` knows, too.
    Scripts with `allrail.torch` are started with torchrun.

    \b
    Examples:
      allrail launch -n 4 python train.py --epochs 3
      allrail launch -n 2 -- python -c 'import allrail; print(allrail.Communicator().rank)'
    """  # noqa: D301, click wants the character
    from allrail.runtime.launch import launch

    context.exit(launch(words, ranks=ranks))
