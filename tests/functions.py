"""The commands of the command line, and which of them are no function of `allrail` yet."""

from __future__ import annotations

import click

from allrail.cli import main

MISSING: set[str] = set()
"""Commands that are no function yet."""
ADDED = {"reproduce"}
"""Commands of other distributions."""


def walk(command, context, path=()):
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if path or name not in (main.HELP, *ADDED):
                inner = command.get_command(context, name)
                yield from walk(inner, click.Context(inner, context, name), (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(walk(main.cli, click.Context(main.cli)))
