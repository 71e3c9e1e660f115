"""Reference inputs that tests read: posted tables, field cases, ASTRA-sim's samples.

They are no part of the repository. `ALLRAIL_REFERENCE` names their folder; without it they are
looked for in `../shared/reference`. A test that needs a file of it skips where it is missing, and
the reason says what to set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "ALLRAIL_REFERENCE"
BESIDE = Path(__file__).parents[2] / "shared" / "reference"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder, whether or not it is there."""
    return Path(environ.get(VARIABLE) or BESIDE)


REFERENCE = folder()


def options_of(case: Mapping[str, Any]) -> list[str]:
    """The options of one of ASTRA-sim's sample cases, by their names of today."""
    return ["--network-model" if word == "--world" else word for word in case["args"]]


def why_skipped(name: str) -> str:
    """The reason of a test that skips without a file or folder of the reference."""
    return f"no {name} in {folder()}: set {VARIABLE} to the folder of the reference"


def needs(name: str) -> pytest.MarkDecorator:
    """A mark: the test is skipped where the reference has no such file or folder."""
    return pytest.mark.skipif(not (REFERENCE / name).exists(), reason=why_skipped(name))


def reference(name: str) -> Path:
    """A file or folder of the reference; skips the test that asks where it is missing."""
    path = folder() / name
    if not path.exists():
        pytest.skip(why_skipped(name))
    return path
