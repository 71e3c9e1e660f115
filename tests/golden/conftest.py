"""ASTRA-sim's own sample files, where they are at hand."""

from __future__ import annotations

from reference import REFERENCE, options_of, why_skipped

EXPECTED = "astra-sim/expected.json"


def pytest_generate_tests(metafunc) -> None:
    """One test a case of `expected.json` for `astra_case`; a skipped one if it is not here."""
    if "astra_case" not in metafunc.fixturenames:
        return
    import json

    import pytest

    if not (REFERENCE / EXPECTED).is_file():
        skip = pytest.mark.skip(reason=why_skipped(EXPECTED))
        metafunc.parametrize("astra_case", [pytest.param(None, marks=skip)])
        return
    tree = json.loads((REFERENCE / EXPECTED).read_text())
    cases = [
        {
            **case,
            "args": options_of(case),
            "folder": REFERENCE / "astra-sim",
        }
        for case in tree["cases"]
    ]
    metafunc.parametrize("astra_case", cases, ids=lambda case: case["name"])
