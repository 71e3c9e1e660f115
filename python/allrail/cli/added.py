"""Commands that other packages add, by the entry point `allrail.commands`.

    [project.entry-points."allrail.commands"]
    mine = "my_package.command:command"        # a `click.Command`

The help page lists each with the summary of its package and imports none. A package that cannot be
used affects its own command alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint

import click

from allrail.base.errors import InputError
from allrail.base.foreign import printable
from allrail.base.installed import installer
from allrail.cli.verbs import OWN, SEPARATE

GROUP = "allrail.commands"
MAX_ABOUT_CHARS = 66
"""A line of the help page has 80 columns; a name takes 12 of them and its indent 2."""


@cache
def points() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of installed packages, by name in alphabetical order.

    Several of one name come from several packages.
    """
    found: dict[str, list[EntryPoint]] = {}
    for point in _points():
        found.setdefault(point.name, []).append(point)
    return {name: tuple(found[name]) for name in sorted(found)}


def names() -> list[str]:
    """Return the commands that packages add, without those whose name allrail has itself."""
    return [name for name in points() if name not in OWN]


def about(name: str) -> str:
    """Return one line for the help page: the summary of the package, or why there is no command.

    Args:
        name: Name of an entry point.
    """
    found = points()[name]
    if name in OWN:
        return _cut(f"not available: allrail has it, as does {_packages(found)}")
    if len(found) > 1:
        return _cut(f"not available: {_packages(found)} each add it")
    package = found[0].dist
    said = package is not None and "Summary" in package.metadata
    summary = package.metadata["Summary"] if package is not None and said else _packages(found)
    return _cut(summary.strip().partition("\n")[0])


def load(name: str) -> click.Command | None:
    """Return an added command, or None where no package adds one of that name.

    Args:
        name: Name of the command.

    Raises:
        InputError: Its package is not installed, or cannot be imported, or what it names is no
            command, or several packages add it.
    """
    found = points().get(name, ())
    source = f"allrail {name}"
    if not found:
        if name in SEPARATE:
            raise InputError(
                f"the package `{SEPARATE[name]}`, which adds this command, is not installed",
                hint=f"in a clone of allrail: `{installer()} install ./{name}`",
                source=source,
            )
        return None
    package = _packages(found)
    if len(found) > 1:
        raise InputError(
            f"several packages add it: {package}",
            hint=f"remove all but one, for example `{installer()} uninstall {_package(found[1])}`",
            source=source,
        )
    remove = f"`{installer()} uninstall {_package(found[0])}`"
    try:
        command = found[0].load()
    except (Exception, SystemExit) as error:
        why = str(error).strip().partition("\n")[0]
        raise InputError(
            f"package {package} cannot be imported: {type(error).__name__}: {why}",
            hint=f"install a version of it for this allrail, or remove it: {remove}",
            source=source,
        ) from error
    if not isinstance(command, click.Command):
        raise InputError(
            f"`{found[0].value}` of package {package} is not a `click.Command`,"
            f" but of type `{type(command).__name__}`",
            hint=f"correct its entry point in `{GROUP}`, or remove it: {remove}",
            source=source,
        )
    return command


def _points() -> Iterator[EntryPoint]:
    seen = set()
    for package in metadata.distributions():
        try:
            declared = package.read_text("entry_points.txt")
            if declared is None or GROUP not in declared:
                continue
            name = re.sub(r"[-_.]+", "-", str(package.name)).lower()
            found = package.entry_points.select(group=GROUP)
        except (TypeError, ValueError):  # its metadata is damaged: no text, or no entry points
            continue
        if name not in seen:  # as imports do, the first on the path is taken
            seen.add(name)
            yield from found


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else str(point.dist.name)


def _packages(found: tuple[EntryPoint, ...]) -> str:
    return " and ".join(f"`{_package(one)}`" for one in found)


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= MAX_ABOUT_CHARS else f"{text[: MAX_ABOUT_CHARS - 3]}..."
