"""What fuzzing found, read again: every reader ends in a value or in an error with a hint."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TARGETS = runpy.run_path(str(Path(__file__).parents[2] / "fuzz" / "fuzz_readers.py"))["TARGETS"]


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_ends_as_it_should(name):
    target = TARGETS[name]
    ends = [target(path.read_bytes()) for path in sorted(target.corpus.iterdir())]
    assert "read" in ends
    assert len(set(ends)) > 1
