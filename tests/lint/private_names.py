"""Private names of other packages that a package of ours uses, outside of the one file for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ALLOWED = {"sys._getframe"}
"""Of the standard library, documented by it."""
_BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}


def is_private(name: object) -> bool:
    """Whether a name begins with one underscore.

    Args:
        name: A name.
    """
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def own(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module gives to something of its own.

    Args:
        tree: The module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) in ("self", "cls")
        ):
            yield node.attr


def foreign(package: Path, home: str) -> list[str]:
    """Return each use of a private name that the package does not define.

    Args:
        package: Its folder.
        home: The file in it that may use them.
    """
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))
    }
    known = {name for path, tree in trees.items() if path.name != home for name in own(tree)}
    return [
        f"{path.relative_to(package)}:{line}: `{name}`"
        for path, tree in trees.items()
        if path != package / home
        for line, name, last in _uses(tree)
        if last not in known and name not in ALLOWED
    ]


def _uses(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.lineno, ast.unparse(node), node.attr
        elif isinstance(node, ast.Import):
            for one in node.names:
                for part in filter(is_private, one.name.split(".")):
                    yield node.lineno, one.name, part
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("allrail"):
            for one in node.names:
                for part in filter(is_private, [*(node.module or "").split("."), one.name]):
                    yield node.lineno, f"{node.module}.{one.name}", part
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in _BY_NAME:
            name = getattr(node.args[1], "value", None) if len(node.args) > 1 else None
            if is_private(name):
                yield node.lineno, ast.unparse(node), str(name)
