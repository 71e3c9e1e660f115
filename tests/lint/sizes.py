"""The longest files and functions of the Python packages."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 80


def files(paths: Iterable[Path]) -> list[tuple[int, Path]]:
    """Return files with more lines than they should have, the longest first.

    Args:
        paths: Python files.
    """
    counted = ((len(path.read_text(encoding="utf-8").splitlines()), path) for path in paths)
    return sorted((one for one in counted if one[0] > MAX_FILE_LINES), reverse=True)


def functions(paths: Iterable[Path]) -> list[tuple[int, Path, str]]:
    """Return functions with more lines than they should have, docstring and all.

    Args:
        paths: Python files.
    """
    found = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > MAX_FUNCTION_LINES:
                    found.append((count, path, node.name))
    return sorted(found, reverse=True)
