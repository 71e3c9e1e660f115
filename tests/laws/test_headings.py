"""No column of a printed table is headed by a unit alone: what the unit is of is said.

What commands print in the suite is held against it too (`allrail_cli` in `conftest.py`); here are
all headings that stand in the sources of the command line.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from headings import bare

ROOT = Path(__file__).parents[2]
CLI = [
    *sorted((ROOT / "python" / "allrail" / "cli").rglob("*.py")),
    ROOT / "reproduce" / "allrail_reproduce" / "command.py",
]
PRINTS = ("table", "Stream", "rows", "aligned", "folded")
KEPT = ("header", "headers", "rates", "columns", "heading", "headings")


def literals(node):
    """Texts of the lists and tuples in an expression."""
    for one in ast.walk(node):
        if isinstance(one, ast.List | ast.Tuple):
            for each in one.elts:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value


def headings(tree):
    """Texts of what is handed to a printing function as header, or kept under such a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in PRINTS:
                yield from literals(node.args[0])
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id in KEPT for one in targets):
                yield from literals(node.value)


@pytest.mark.parametrize("path", CLI, ids=lambda path: path.stem)
def test_no_heading_of_a_command_is_a_unit_alone(path):
    assert bare(list(headings(ast.parse(path.read_text(encoding="utf-8"))))) == []


def test_headings_are_found():
    found = [name for path in CLI for name in headings(ast.parse(path.read_text(encoding="utf-8")))]
    # Of tables that are written in each of the ways that commands have.
    assert {"fitted_off_%", "%_of_expected", "predicted_off_%", "npu_Gb/s", "memory_GB"} <= {*found}
    assert len(found) > 100


@pytest.mark.parametrize("name", ["%", "us", "GB", "Gb/s", "GiB/s", "ms", "TFLOP/s", "off", " (%)"])
def test_units_alone_are_seen(name):
    assert bare([name, f"sent_{name}"]) == [name]


@pytest.mark.parametrize(
    "name", ["bytes", "spread_%", "%_of_expected", "size", "times", "links", "s_per_step", "busy_%"]
)
def test_names_with_units_are_none(name):
    assert bare([name]) == []
