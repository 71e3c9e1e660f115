"""The stubs of the Rust core say what the core is, and the package is typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import allrail
from allrail import _core

ROOT = Path(__file__).parents[2]


def test_stubs_match_the_core(tmp_path):
    """In a package of their own: beside ours, mypy would read it and all that it imports."""
    alone = tmp_path / "allrail"
    alone.mkdir()
    (alone / "__init__.py").touch()
    core = Path(_core.__file__)
    for file in (core, Path(allrail.__file__).with_name("_core.pyi")):
        (alone / file.name).symlink_to(file)
    outcome = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "allrail._core"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "MYPYPATH": str(tmp_path)},
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "no issues found in 1 module" in outcome.stdout


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


def test_a_build_without_the_runtime_knows_its_names():
    source = ROOT / "crates" / "python" / "src"
    names = re.findall(r'^    "(\w+)",$', (source / "without_runtime.rs").read_text(), re.MULTILINE)
    registers = "".join(
        (source / f"{name}.rs").read_text() for name in ("runtime", "job", "memory")
    )
    added = re.findall(r"add_class::<(\w+)>|wrap_pyfunction!\((\w+),|\.add\(\"(\w+)\"", registers)
    assert names == sorted(filter(None, (name for found in added for name in found)))
