"""Tests find the reference in one way, which its variable moves, and say so where they skip."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reference
from reference import BESIDE, VARIABLE, needs

TESTS = Path(__file__).parents[1]
OWN_WAY = re.compile(
    r"""/ ["']shared["']|["']shared["'] /|shared/reference|(environ|getenv)\W.*ALLRAIL_REFERENCE"""
)
"""How a test would look for the folder by itself."""


def test_the_variable_names_the_folder_and_an_empty_one_does_not():
    assert reference.folder({VARIABLE: "/somewhere"}) == Path("/somewhere")
    assert reference.folder({VARIABLE: ""}) == reference.folder({}) == BESIDE


def test_no_test_looks_for_the_reference_by_itself():
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path not in (Path(__file__), TESTS / "reference.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if OWN_WAY.search(line)
    }
    assert found == set()


def test_where_it_is_missing_a_test_is_skipped_with_what_to_set(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=f"{tmp_path}: set {VARIABLE}"):
        reference.reference("nccl/index.csv")
    (tmp_path / "nccl").mkdir()
    assert reference.reference("nccl") == tmp_path / "nccl"
    mark = needs("no such folder").mark
    assert mark.args == (True,)
    assert VARIABLE in mark.kwargs["reason"]
