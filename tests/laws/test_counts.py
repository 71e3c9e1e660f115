"""Where a text says how many of something there are, one of them is no plural."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import allrail
import allrail_reproduce
from allrail.base.units import show_count

ROOTS = [Path(package.__file__).parent for package in (allrail, allrail_reproduce)]
SEVERAL = {
    ("results/accuracy.py", "len(some)"): "fewer than five are not told",
    ("measure/calibrate/device/run.py", "len(found)"): "all kernels of the benchmark",
    ("measure/calibrate/read/nccl_part.py", "len(sweeps)"): "one alone has no such note",
    ("output/report/collectives_page.py", "len(ones)"): "said of several",
    ("output/report/training_page.py", "len(ones)"): "said of several",
    ("output/report/sweep_page.py", "len(good)"): "said of two or more",
    ("output/report/sweep_page.py", "len(table)"): "said of more than a page shows",
    ("output/report/sweep.py", "len(panels)"): "said where not all are shown",
    ("themis.py", "len(cells)"): "a table of the paper",
    ("measure/verify/trace.py", "len(timed['steps'])"): "said of more than are compared",
}
"""By file and count: why it is never one."""
PLURAL = re.compile(r" ((?:[a-z-]+ )?[a-z]{2,}[^s\W]s)\b")


def test_a_count_goes_with_its_noun():
    assert show_count(1, "layout") == "1 layout"
    assert show_count(0, "layout") == "0 layouts"
    assert show_count(1200, "layout") == "1,200 layouts"
    assert show_count(1, "entry", "entries") == "1 entry"
    assert show_count(2, "entry", "entries") == "2 entries"


def counted():
    """Every text outside of errors in which a length or a sum stands before a plural."""
    files = [(root, path) for root in ROOTS for path in sorted(root.rglob("*.py"))]
    for root, path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        raised = {
            id(one)
            for node in ast.walk(tree)
            if isinstance(node, ast.Raise)
            for one in ast.walk(node)
        }
        texts = (one for one in ast.walk(tree) if isinstance(one, ast.JoinedStr))
        for text in texts:
            for value, after in zip(text.values, text.values[1:], strict=False):
                if id(text) in raised or not isinstance(value, ast.FormattedValue):
                    continue
                said = ast.unparse(value.value)
                plural = isinstance(after, ast.Constant) and PLURAL.match(str(after.value))
                if plural and re.match(r"(len|sum)\(", said):
                    yield path.relative_to(root).as_posix(), said


def test_what_may_be_one_is_no_plural():
    found = set(counted())
    assert found == set(SEVERAL), sorted(found ^ set(SEVERAL))


@pytest.mark.parametrize("many", [1, 2])
def test_a_schedule_of_one_chunk_has_one(many, allrail_cli, tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text(
        "schema_version: 1\n"
        "fabric: {dimensions: [{kind: ring, size: 4, bandwidth: 1 GB/s, latency: 1 us}]}\n"
        "collective: {kind: all_reduce, size: 1 MiB}\n"
        f"schedule: {{chunks: {many}}}\n"
    )
    told = allrail_cli("simulate", str(file))
    assert told.status == 0, told.stderr
    assert (", 1 chunk\n" in told.stdout) is (many == 1)
    assert not re.search(r"(?<![\d.,])1 [a-z]+[a-rt-z]s\b(?<! us)", told.stdout + told.stderr)
