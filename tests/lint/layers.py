"""Which room of the Python package stands above which, and which crates have no cycle.

`make structure` prints this; `make lint` rejects a cycle, an arrow that runs up, and a room that is
not listed, and a function that imports what is not large. Every import counts, those for type
checkers too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lint import graph, python_imports, rust_modules

LAYERS = (
    "_core",
    "base",
    "autoload",
    "scenario",
    "results",
    "formats",
    "simulation",
    "search",
    "runtime",
    "torch",
    "keras",
    "measure",
    "targets",
    "output",
    "__init__",
    "cli",
    "__main__",
)
"""From the ground up: a room imports from rooms to its left alone."""
MAX_ROOMS = 12
"""Folders; files beside them are what others import or start by name, and the extension."""


def problems(root: Path) -> Iterator[str]:
    """Say what is wrong, a line each.

    Args:
        root: Of the repository.
    """
    package = root / "python" / "allrail"
    modules = python_imports.arrows(package, types=True)
    rooms = {python_imports.room(name) for name in modules}
    yield from (
        f"`{room}` is not in `LAYERS` of tests/lint/layers.py" for room in rooms.difference(LAYERS)
    )
    folders = [room for room in sorted(rooms) if (package / room).is_dir()]
    if len(folders) > MAX_ROOMS:
        yield f"{len(folders)} rooms, {MAX_ROOMS} at most: {' '.join(folders)}"
    yield from (f"{one} imports {other}, which is above it" for one, other in upward(modules))
    yield from _cycles("Python", modules)
    yield from (
        f"{one} imports {other} in a function: put that at the top of the file"
        for one, other in python_imports.in_functions(package)
    )
    for source in sorted(root.glob("crates/*/src")):
        yield from _cycles(f"crates/{source.parent.name}", rust_modules.arrows(source))


def upward(modules: graph.Arrows) -> list[tuple[str, str]]:
    """Imports of a room from a room above it.

    Args:
        modules: Each module to those that it imports.
    """
    height = {room: place for place, room in enumerate(LAYERS)}
    return sorted(
        (one, other)
        for one, needed in modules.items()
        for other in needed
        if height.get(python_imports.room(other), 0) > height.get(python_imports.room(one), 0)
    )


def _cycles(where: str, arrows: graph.Arrows) -> Iterator[str]:
    for group in graph.cycles(arrows):
        yield f"{where}: a cycle of {len(group)} modules: {' '.join(group)}"
