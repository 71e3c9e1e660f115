"""A group of verbs that names the near miss of one it does not know."""

from __future__ import annotations

from typing import Any

import click

from allrail.base.errors import InputError, did_you_mean


class Group(click.Group):
    """Click's group with our message for an unknown verb."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that `args` starts with."""
        if args and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            raise InputError(
                "there is no such command",
                hint=_meant(args[0], known) or self._inner(ctx, args[0], known),
                source=ctx.command_path,
                value=args[0],
            )
        return super().resolve_command(ctx, args)

    def _inner(self, ctx: click.Context, typed: str, known: list[str]) -> str:
        """Return where a command within another one is, else all commands."""
        for name in known:
            try:
                group = self.get_command(ctx, name)
            except InputError:  # a command of another package that cannot be used
                continue
            if isinstance(group, click.Group) and typed in group.commands:
                return f"did you mean `{ctx.command_path} {name} {typed}`?"
        return f"the commands are: {', '.join(f'`{name}`' for name in known)}"

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a mistake in its options is said to be one of that verb."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            verb = self.get_command(ctx, ctx.invoked_subcommand or "")
            if error.ctx is None and verb is not None:
                error.ctx = click.Context(
                    verb,
                    info_name=ctx.invoked_subcommand,
                    parent=ctx,
                    help_option_names=ctx.help_option_names,
                )
            raise


def _meant(typed: str, known: list[str]) -> str:
    """What an unknown verb stands for."""
    if typed.casefold() == "version":
        return "`allrail --version`"
    begun = [name for name in known if name.startswith(typed.casefold())]
    if len(begun) == 1:
        return f"did you mean `{begun[0]}`?"
    near = did_you_mean(typed, known)
    return near if near.startswith("did you mean") else ""
