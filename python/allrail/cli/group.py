"""A group of verbs that names the near miss of one it does not know."""

from __future__ import annotations

import click

from allrail.errors import InputError, did_you_mean


class Group(click.Group):
    """Click's group with our message for an unknown verb."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that `args` starts with."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            raise InputError(
                "there is no such verb",
                hint=did_you_mean(args[0], known, others="the verbs are"),
                source=ctx.command_path,
                value=args[0],
            )
        return super().resolve_command(ctx, args)
