"""Every test that stands in the tree is run.

A crate's Rust tests are one program, `crates/X/tests/it/main.rs`: linking is most of what a test
costs. A file that `main.rs` does not name would not be compiled, and nothing would say so.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CRATES = sorted(path.parent for path in ROOT.glob("crates/*/tests"))


def missing(modules: str, files: set[str]) -> set[str]:
    return files - set(re.findall(r"^mod (\w+);$", modules, flags=re.MULTILINE))


@pytest.mark.parametrize("crate", CRATES, ids=lambda crate: crate.name)
def test_a_crate_has_one_test_program_that_names_every_file(crate):
    assert not list(crate.glob("tests/*.rs")), "belongs into tests/it, and into its main.rs"
    tests = crate / "tests" / "it"
    files = {path.stem for path in tests.glob("*.rs")} - {"main"}
    files |= {path.parent.name for path in tests.glob("*/mod.rs")}
    assert files
    assert missing((tests / "main.rs").read_text(), files) == set()


def test_a_file_that_is_not_named_is_found():
    assert missing("mod bound;\nmod queues;\n", {"bound", "queues", "themis"}) == {"themis"}
    assert missing("// mod themis;\n", {"themis"}) == {"themis"}
