"""Which module of `allrail` imports which, and what functions import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "allrail"
TYPES = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING"})
EXTRAS = frozenset(
    [
        "jax",
        "jinja2",
        "markupsafe",
        "matplotlib",
        "numpy",
        "optuna",
        "polars",
        "ray",
        "scipy",
        "tensorflow",
        "torch",
        "yaml",
    ]
)
"""Packages that are large, or need not be there: imported by the functions that use them."""
BY_NAME = frozenset({"", "autoload", "base.late", "cli.main", "torch.private"})
"""What imports by name: `allrail`'s own names, torch's entry point, the list of what is late, the
commands, and torch's private names."""


def modules(package: Path) -> dict[str, Path]:
    """Dotted name to file of every module of a package; of a folder, its `__init__.py`.

    Args:
        package: Its folder.
    """
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows(package: Path, *, types: bool = False) -> dict[str, set[str]]:
    """Each module to the modules that it imports.

    Args:
        package: Its folder.
        types: Whether imports for type checkers alone count, too.
    """
    known = modules(package)
    native = {f"{package.name}._core"}
    found = {}
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        of = name if path.name == "__init__.py" else name.rpartition(".")[0]
        needed = set()
        for target, names in _imports(tree, of, types=types):
            for one in [f"{target}.{each}" for each in names] or [target]:
                needed.add(_nearest(one, known.keys() | native))
        found[name] = {one for one in needed if one is not None and one != name}
    return found


def in_functions(package: Path) -> Iterator[tuple[str, str]]:
    """Each module that imports in a function, and what, but for `EXTRAS`.

    Args:
        package: Its folder.
    """
    for name, path in modules(package).items():
        of = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            targets = [target for target, _ in _imports(node, of, types=True)]
            targets += [ast.unparse(one) for one in ast.walk(node) if _is_by_name(one)]
            if name.partition(".")[2] not in BY_NAME:
                yield from ((name, one) for one in targets if one.partition(".")[0] not in EXTRAS)


def _is_by_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")


def room(module: str) -> str:
    """The first part of a module's name below the package; `__init__` is the package's own."""
    return f"{module}.__init__".split(".")[1]


def _nearest(name: str, known: set[str]) -> str | None:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def _imports(tree: ast.AST, of: str, *, types: bool) -> Iterator[tuple[str, list[str]]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = of.split(".")[: len(of.split(".")) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            yield target, [alias.name for alias in node.names]
        elif isinstance(node, ast.If) and ast.unparse(node.test) in TYPES and not types:
            for other in node.orelse:
                yield from _imports(ast.Module([other], []), of, types=types)
        else:
            yield from _imports(node, of, types=types)
