"""Commands that other packages add, by the entry point `allrail.commands`.

    [project.entry-points."allrail.commands"]
    mine = "my_package.command:command"        # a command of click

A command of allrail's own goes before one of the same name. Help shows the summary of the package
and imports none.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import click

from allrail.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "allrail.commands"


@cache
def commands() -> dict[str, EntryPoint]:
    """Return the commands that installed packages add, by name in alphabetical order."""
    from importlib.metadata import entry_points

    from allrail.cli.verbs import VERBS

    found = {one.name: one for one in entry_points(group=GROUP) if one.name not in VERBS}
    return dict(sorted(found.items()))


def about(name: str) -> str:
    """Return one line for the help page: what the package says of itself.

    Args:
        name: Of the command.
    """
    package = commands()[name].dist
    return "" if package is None else str(package.metadata["Summary"] or package.name)


def load(name: str) -> click.Command | None:
    """Return an added command, or None where no package has one of that name.

    Args:
        name: Of the command.

    Raises:
        InputError: Its package cannot be imported, or what it names is no command.
    """
    found = commands().get(name)
    if found is None:
        return None
    package = "" if found.dist is None else found.dist.name
    try:
        command = found.load()
    except Exception as error:
        raise InputError(
            f"its package `{package}` cannot be imported: {type(error).__name__}: {error}",
            hint=f"install a version of `{package}` that goes with this allrail, or remove it",
            source=f"allrail {name}",
        ) from error
    if not isinstance(command, click.Command):
        raise InputError(
            f"`{found.value}` of the package `{package}` is no command of click",
            hint="its entry point has to name one",
            source=f"allrail {name}",
        )
    return command
