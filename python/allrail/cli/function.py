"""A command is a function of `allrail`.

    @click.command()
    @click.argument("fabrics", nargs=-1, type=options.Named())
    @options.as_json
    @function("cost")
    def command(priced: Priced) -> None:
        \"\"\"Print switches, cables and their price.\"\"\"
        output.table(...)

What is typed goes to `allrail.cost` under the names of its parameters; what that answers is printed
as data with `--json`, else by the decorated function. So an option that the function does not have
cannot be used; `tests/laws/test_commands.py` finds a parameter that no option has.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import allrail
from allrail.base.errors import AllrailWarning, InputError
from allrail.cli import folders, output

if TYPE_CHECKING:
    from allrail.results.answer import Answer

TERMINAL: Mapping[str, str] = {
    "json": "`to_json()` of the answer",
}
"""Options that no function has, each with what Python has instead."""
RENAMED: Mapping[str, str] = {"set": "sets"}
"""Options whose parameter is named otherwise: it takes several, and a mapping of them."""


def function(
    name: str,
    *,
    doing: str = "",
    counts: bool = True,
    folder: str = "",
    check: Callable[[Mapping[str, Any]], None] | None = None,
    explain: Callable[[InputError, Mapping[str, Any]], None] | None = None,
    more: Callable[[], dict[str, Any]] = dict,
    around: Callable[[], AbstractContextManager[None]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the callback of a command of a function of `allrail`.

    Args:
        name: Of the function, such as `cost` or `fabric.show`.
        doing: What its line of progress says; the function has no `progress` if empty.
        counts: Whether the line has the numbers of pieces.
        check: Looks at all options first.
        explain: Says of an error by which option it came.
        more: Arguments that are the command line's alone.
        around: What is so while the function runs.
        folder: Which option names a folder of results, if one does: what lies there is told.

    Returns:
        A decorator of the function that shows the answer: it takes the answer, and by name what
        else of the options it needs.
    """

    def decorate(show: Callable[..., None]) -> Callable[..., None]:
        _, *wanted = inspect.signature(show).parameters

        @wraps(show)
        def command(**typed: Any) -> None:
            if check is not None:
                check(typed)
            as_json = typed.pop("as_json", False)
            results: Path | None = typed.get(folder)
            replaced = results is not None and (results / "result.json").exists()
            with ExitStack() as stack:
                stack.enter_context(_warnings_shown())
                stack.enter_context(_named_as_typed(typed, explain))
                if around is not None:
                    stack.enter_context(around())
                added = more()
                if doing:
                    added["progress"] = stack.enter_context(output.Progress(doing, counts=counts))
                answer: Answer | Path | int | None = found(name)(**typed, **added)
            if answer is None:  # another process of the job answers
                return
            if isinstance(answer, int):  # the status of what it has started
                raise SystemExit(answer)
            if replaced:
                output.warn(f"`{results}` held the results of another run; they are replaced")
            if as_json and not isinstance(answer, Path):
                output.print_json(answer.to_dict())
            else:
                show(answer, **{one: typed[one] for one in wanted})
            if results is not None and (folder == "report" or not as_json):
                folders.tell(results, left_out=getattr(answer, "left_out", ()))
            if isinstance(answer, Path):
                return
            if (stopped := getattr(answer, "stopped", "")) and answer.exit_status:
                output.text(stopped, err=True)
            if answer.exit_status:
                sys.stdout.flush()
                raise SystemExit(answer.exit_status)

        command.function = name  # type: ignore[attr-defined]
        return command

    return decorate


def found(name: str) -> Callable[..., Any]:
    """Return a function of `allrail`.

    Args:
        name: Such as `cost` or `fabric.show`.
    """
    value: Any = allrail
    for part in name.split("."):
        value = getattr(value, part)
    return value  # type: ignore[no-any-return]


def parameter_of(option: str) -> str:
    """Return the parameter that an option is in Python.

    Args:
        option: As it is typed, such as `--global-batch`.
    """
    name = option.lstrip("-").replace("-", "_")
    name = RENAMED.get(name, name)
    return f"{name}_" if iskeyword(name) else name


def option_of(parameter: str) -> str:
    """Return how a parameter of the command that runs is typed; empty if it is none.

    Args:
        parameter: Its name in Python.
    """
    for one in click.get_current_context().command.params:
        if isinstance(one, click.Option) and one.name == parameter:
            return max(one.secondary_opts or one.opts, key=len)
    return ""


@contextmanager
def _warnings_shown() -> Iterator[None]:
    """Print warnings of functions as the command line's, as they come."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, AllrailWarning):
            output.warn(str(message))
        else:
            before(message, category, *where, **more)

    with warnings.catch_warnings():
        before = warnings.showwarning
        warnings.simplefilter("always", AllrailWarning)
        warnings.showwarning = show
        yield


@contextmanager
def _named_as_typed(
    typed: Mapping[str, Any], explain: Callable[[InputError, Mapping[str, Any]], None] | None
) -> Iterator[None]:
    """Have an error of a parameter name the option that was typed."""
    try:
        yield
    except InputError as error:
        if explain is not None:
            explain(error, typed)
        typed_as = option_of(error.field)
        if typed_as and not error.source and error.value is None:
            error.source, error.field = typed_as, ""
        raise
