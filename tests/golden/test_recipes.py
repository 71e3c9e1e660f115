"""The recipes of docs/extending fit the tree as it is; `make recipes` builds and runs them."""

from __future__ import annotations

import importlib.util
import sys
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
