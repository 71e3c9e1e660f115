"""ASTRA-sim's own sample files, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def reference_folder() -> Path | None:
    """The folder with `astra-sim/expected.json`, from `ALLRAIL_REFERENCE` or beside the project."""
    named = os.environ.get("ALLRAIL_REFERENCE")
    folder = Path(named) if named else ROOT.parent / "shared" / "reference"
    return folder if (folder / "astra-sim" / "expected.json").is_file() else None


def pytest_generate_tests(metafunc) -> None:
    """One test a case of `expected.json` for `astra_case`; a skipped one if it is not here."""
    if "astra_case" not in metafunc.fixturenames:
        return
    import json

    import pytest

    folder = reference_folder()
    if folder is None:
        skip = pytest.mark.skip(reason="ASTRA-sim's sample files are not here; ALLRAIL_REFERENCE")
        metafunc.parametrize("astra_case", [pytest.param(None, marks=skip)])
        return
    tree = json.loads((folder / "astra-sim" / "expected.json").read_text())
    cases = [{**case, "folder": folder / "astra-sim"} for case in tree["cases"]]
    metafunc.parametrize("astra_case", cases, ids=lambda case: case["name"])
