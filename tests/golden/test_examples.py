"""Every example prints what its `expected.txt` says.

The commands are those of its README. `ALLRAIL_UPDATE_EXAMPLES=1 pytest tests/golden` writes the
files again.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"10-train-with-jax": "jax", "16-train-with-keras": "keras"}
"""What an example needs that is an extra."""


def commands(readme: str) -> list[str]:
    """The lines of console blocks that start with a prompt."""
    return [line[2:] for line in readme.splitlines() if line.startswith("$ allrail ")]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()))
def test_prints_what_it_says(name, tmp_path, monkeypatch, allrail_cli):
    needed = NEEDS.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: `allrail[{needed}]`")
    # `python`, in what it starts, is this one.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    example = shutil.copytree(EXAMPLES / name, tmp_path / name)
    monkeypatch.chdir(example)
    printed = ""
    lines = commands((example / "README.md").read_text())
    assert lines
    for line in lines:
        outcome = allrail_cli(*shlex.split(line)[1:])
        assert outcome.status == 0, outcome.stderr
        printed += f"$ {line}\n{outcome.stdout}\n"
    expected = EXAMPLES / name / "expected.txt"
    if os.environ.get("ALLRAIL_UPDATE_EXAMPLES"):
        expected.write_text(printed)
    assert printed == expected.read_text()
