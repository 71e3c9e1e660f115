"""The recipes of docs/extending fit the tree as it is; `make recipes` builds and runs them."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recipes():
    spec = importlib.util.spec_from_file_location("recipes", ROOT / "docs" / "recipes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_file_is_new_and_every_line_finds_its_place(recipes):
    pages = recipes.recipes()
    listed = (ROOT / "docs" / "extending" / "README.md").read_text()
    assert [page.name for page in pages if f"({page.name})" not in listed] == []
    found = [block for page in pages for block in recipes.blocks(page.read_text())]
    languages = [block.language for block in found]
    assert languages.count("rust") == languages.count("diff") == 7
    assert languages.count("console") == 7
    for block in found:
        if block.language == "diff":
            text = (ROOT / block.path).read_text()
            assert recipes.patched(text, block.text) != text
        elif block.language != "console":
            assert not (ROOT / block.path).exists()


def test_a_patch_names_each_place_once(recipes):
    text = "mod a;\nmod c;\n\nALL = [a, c];\n"
    diff = " mod a;\n+mod b;\n mod c;\n@@\n-ALL = [a, c];\n+ALL = [a, b, c];\n"
    assert recipes.patched(text, diff) == "mod a;\nmod b;\nmod c;\n\nALL = [a, b, c];\n"
    with pytest.raises(ValueError, match="0 times"):
        recipes.patched(text, " mod d;\n+mod e;\n")
    with pytest.raises(ValueError, match="2 times"):
        recipes.patched(text + text, " mod a;\n+mod b;\n")


def test_a_block_knows_the_path_before_it(recipes):
    page = "`a/b.rs`:\n\n```rust\nfn b() {}\n```\n\ntext\n\n```console\n$ allrail\n```\n"
    assert [(one.language, one.path) for one in recipes.blocks(page)] == [
        ("rust", "a/b.rs"),
        ("console", None),
    ]


def test_a_command_of_your_own_is_installed_and_runs(recipes, tmp_path):
    """As the page has it; `pip install` builds the wheel by the same hook, and unpacks it."""
    page = ROOT / "docs" / "extending" / "command.md"
    found = list(recipes.blocks(page.read_text()))
    project, site = tmp_path / "allrail-budget", tmp_path / "site"
    project.mkdir()
    for block in found:
        if block.path is not None:
            (tmp_path / block.path).write_text(block.text)
    build = "from flit_core.buildapi import build_wheel; build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=project, check=True)
    [wheel] = project.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def allrail(*words):
        script = "from allrail.cli.main import main; main()"
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
        return subprocess.run(
            [sys.executable, "-c", script, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )

    [shown] = [block.text.splitlines() for block in found if block.language == "console"]
    install, command, *printed = shown
    assert install == "$ pip install ./allrail-budget"
    done = allrail(*shlex.split(command.removeprefix("$ allrail ")))
    assert (done.returncode, done.stdout.splitlines()) == (0, printed), done.stderr
    slow = allrail("budget", "examples/01-simulate-themis/scenario.yaml", "--us", "9e3")
    assert slow.returncode == 1
    assert "  budget     exit with 1 if a scenario" in allrail("--help").stdout
    absent = allrail("budget", "no-such.yaml", "--us", "1")
    assert absent.returncode == 2
    assert absent.stderr.startswith("error: no-such.yaml: ")
    assert "did you mean `--us`?" in allrail("budget", "--uss", "1").stderr
