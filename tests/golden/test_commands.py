"""The commands of README, tour, guides and concepts run, and print what stands there.

`make docs-test` runs all. Here those that take long are left out: what starts several processes,
builds, or takes minutes; `make test-long` has the pages that are long as a whole.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("commands", ROOT / "docs" / "commands.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


commands = load()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what a clone has."""
    return commands.copy(tmp_path_factory.mktemp("clone") / "allrail")


def test_an_unpacked_archive_is_copied_as_a_clone_is():
    """It has no git, and what was built in it meanwhile is no part of it."""
    found = set(commands.unpacked())
    assert {"Makefile", ".gitignore", "docs/commands.py", "crates/core/Cargo.toml"} <= found
    assert not [name for name in found if name.startswith((".venv/", "target/", "out/"))]
    assert not [name for name in found if name.endswith(".so") or "__pycache__" in name]
    if (ROOT / ".git").exists() and shutil.which("git"):
        assert {name for name in commands.known() if (ROOT / name).is_file()} <= found


LONG = {"first-plan"}
"""Pages of which every command follows from one that takes long."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.long] if page.stem in LONG else [])
        for page in commands.pages()
    ],
)
def test_every_quick_command_runs_as_it_stands(page, tree):
    assert commands.run(page, quick=True, root=tree) == []


@pytest.mark.parametrize("page", commands.pages(), ids=lambda page: page.stem)
def test_no_command_stands_where_it_is_not_run(page):
    assert not re.search(r"^```(sh|bash|shell)$", page.read_text(), re.MULTILINE)


def test_commands_go_on_while_a_quote_or_a_backslash_is_open():
    page = """
`a/b.py`:

```python
print(1)
```

```console
$ python -c "
print(2)"
2
$ echo 1 \\
    2
1 2

$ cat x | grep y  # it's there
```
"""
    file, *rest = commands.parts(page)
    assert (file.path, file.text) == ("a/b.py", "print(1)\n")
    assert [(one.text, one.shown) for one in rest] == [
        ('python -c "\nprint(2)"', ["2"]),
        ("echo 1 \\\n    2", ["1 2"]),
        ("cat x | grep y  # it's there", []),
    ]
    with pytest.raises(ValueError, match="begins with"):
        list(commands.parts("```console\nallrail\n```\n"))


def test_what_is_left_out_is_three_dots():
    printed = ["a b", "c d", "e f", "g h"]
    for shown in (printed, ["a b", "..."], ["...", "e f", "g h"], ["a ...", "...", "g h"]):
        assert commands.differs(shown, printed) is None
    assert commands.differs(["a b", "e f", "..."], printed) == "e f"
    assert commands.differs(["...", "c d"], printed) == "(nothing more; printed was 'e f')"
    assert commands.differs(["x"], printed) == "x"


def test_a_command_that_fails_or_prints_something_else_is_told(tmp_path):
    page = ROOT / "docs" / "guides" / "no-such-page.md"

    class Page(type(page)):
        def read_text(self):
            return "```console\n$ cd /\n$ pwd\n/tmp\n$ false\n$ echo 3\n3\n$ exit 4\n$ pwd\n```\n"

    wrong = commands.run(Page(page), quick=True, root=tmp_path)
    assert [one.split("`")[1] for one in wrong] == ["pwd", "false", "exit 4", "pwd"]
