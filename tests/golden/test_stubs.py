"""The stubs of the Rust core say what the core is, and the package is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import allrail
from allrail import _core

ROOT = Path(__file__).parents[2]


def test_stubs_match_the_core():
    outcome = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "allrail._core"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_the_package_is_typed():
    assert Path(allrail.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("name", allrail.__all__)
def test_public_names_exist(name):
    assert getattr(allrail, name) is not None
    assert name in dir(allrail)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="simulat"):
        allrail.simulat  # noqa: B018


def test_importing_costs_nothing():
    code = "import sys, allrail; print(any(name in sys.modules for name in ('pydantic', 'click')))"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert outcome.stdout.strip() == "False", outcome.stderr


def test_versions_agree():
    assert allrail.__version__ == _core.version()
