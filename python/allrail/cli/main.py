"""The entry: the help page, unknown verbs, and what an error looks like.

Exit status: 0 done, 1 a check failed (`reproduce`), 2 a mistake in what was given, 130 interrupted,
141 whoever read the output has left.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import NoReturn

try:
    import click

    import allrail
    from allrail.base import stdin
    from allrail.base.errors import AllrailError, InputError
    from allrail.base.manifest import reading
    from allrail.cli import added, interrupt, mistyped, progress
    from allrail.cli.group import Group
    from allrail.cli.verbs import HELP, SECTIONS, VERBS
except KeyboardInterrupt:  # before there is a command
    raise SystemExit(130) from None

_PAGE = """\
allrail schedules the communication of distributed training: predicts it, and runs it.

Usage: allrail COMMAND [ARGUMENTS] [OPTIONS]

{verbs}
Examples:
  allrail simulate scenario.yaml --set schedule.policy=themis
  allrail compare scenario.yaml --policy baseline,themis,search --out out
  allrail fabric advise 3D-SW_SW_SW_homo

`allrail help COMMAND` explains a command. `allrail schema scenario` prints the
keys of a scenario. FILE may be `-`: stdin. The same commands in Python:
`import allrail; help(allrail)`.

Options:
  --version  print the version
  --help     print this page
"""


_OTHERS_PRINT = ("launch", "run")
"""Verbs whose terminal is that of the command that they run."""


class _Stopped(Exception):  # noqa: N818, it is no error
    """The work has ended early; click must not put its own words to it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Verbs(Group):
    """Imports a verb's file when it is asked for."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb."""
        try:
            with reading():
                outcome: object = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise _Stopped(130) from None
        except BrokenPipeError:
            raise _Stopped(141) from None
        return outcome

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that `args` starts with; from now on a line says that it works."""
        name, command, left = super().resolve_command(ctx, args)
        if name is not None and name not in _OTHERS_PRINT:
            several = left[:1] if isinstance(command, click.Group) else []
            typed = [name, *(word for word in several if not word.startswith("-"))]
            ctx.with_resource(progress.working(" ".join(typed)))
        return name, command, left

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the help page's order."""
        del ctx
        return [*VERBS, *added.names(), HELP]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one verb's command."""
        del ctx
        if cmd_name == HELP:
            return _help
        if cmd_name not in VERBS:
            return added.load(cmd_name)
        # A file cannot be called as a word of Python: `import` is in `import_`.
        file = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = import_module(f"allrail.cli.{file}").command
        return command

    def get_help(self, ctx: click.Context) -> str:
        """Return the page."""
        del ctx
        verbs = ""
        for title, section in SECTIONS.items():
            verbs += f"{title}:\n"
            verbs += "".join(f"  {verb.name:<10} {verb.about}\n" for verb in section) + "\n"
        if others := added.points():
            verbs += "From other packages:\n"
            verbs += "".join(f"  {name:<10} {added.about(name)}\n" for name in others) + "\n"
        return _PAGE.format(verbs=verbs.rstrip("\n") + "\n").rstrip("\n")


@click.command()
@click.argument("verbs", nargs=-1, metavar="[COMMAND]...")
def _help(*, verbs: tuple[str, ...]) -> None:
    """Print this page, or the help of a COMMAND, such as `allrail help plan`.

    Name both words of a command within a command: `allrail help fabric show`.
    """
    context: click.Context = click.Context(cli, info_name="allrail", **cli.context_settings)
    command: click.Command = cli
    for verb in verbs:
        if not isinstance(command, click.Group):
            raise InputError(
                "it has no commands of its own",
                source="allrail help",
                value=verb,
                hint=f"`allrail help {command.name}`",
            )
        name, found, _ = command.resolve_command(context, [verb])
        if found is None:
            raise InputError("there is no such command", source="allrail help", value=verb)
        command, context = found, click.Context(found, info_name=name, parent=context)
    click.echo(command.get_help(context))


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001
    del param
    if value:
        click.echo(f"allrail {allrail.__version__}")
        ctx.exit()


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Plan and simulate collectives on networks of several dimensions."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        args: What was typed after `allrail`; `sys.argv` if None.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them takes 20 ms
    gc.set_threshold(100_000)  # imports make no garbage: 20 ms of looking for it
    if sys.stdout is None:  # its descriptor is closed, so that a file might take its place
        _fail(str(_unwritable("it is closed")))
    try:
        with interrupt.ended_by_ctrl_c():
            status = cli.main(args=args, prog_name="allrail", standalone_mode=False)
    except AllrailError as error:
        _fail(stdin.told(str(error)))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        status = 0
    except click.ClickException as error:
        _fail(mistyped.message_of(error))
    except OSError as error:  # of what is printed; of a file, beside those that verbs expect
        if error.filename is None:
            _discard_output()
            _fail(str(_unwritable(error.strerror or str(error))))
        why = f"it cannot be used: {error.strerror or error}"
        hint = "check that it is there, that you may use it and that there is room"
        _fail(str(InputError(why, hint=hint, source=str(error.filename))))
    except (_Stopped, click.Abort, KeyboardInterrupt) as stop:
        status = stop.status if isinstance(stop, _Stopped) else 130
        if status == 130:
            print("interrupted", file=sys.stderr)  # noqa: T201
            if args is None:
                interrupt.end()
        else:  # Python flushes stdout once more at exit: give it somewhere to go
            _discard_output()
    if args is None:  # what is left takes no time
        gc.freeze()  # looking through all that was made, before it goes anyway: a fifth of a run
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status if isinstance(status, int) else 0)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unwritable(why: str) -> InputError:
    return InputError(f"it cannot be written: {why}", source="standard output")


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)
