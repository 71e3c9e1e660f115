"""torch's own tests of a backend, `distributed_test` of its wheel, over gloo and over allrail.

    python benches/torch_suite.py --ranks 3 4

Prints how many tests pass, and which fail. Most of the suite is for GPUs and skips itself. torch
runs it for the backends that it knows; so allrail is given under the name of gloo, and of the
tests that fail one asks for that name.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# A module of tests that pytest can collect; torch's classes are taken from where torch has them.
_MODULE = """
import multiprocessing
import torch
import torch.distributed.distributed_c10d as c10d
if {alias}:
    import allrail.torch.backend
    make = c10d._new_process_group_helper
    def as_allrail(*given, **named):
        swap = lambda one: c10d.Backend("allrail") if str(one) == "gloo" else one
        return make(*map(swap, given), **{{key: swap(one) for key, one in named.items()}})
    c10d._new_process_group_helper = as_allrail
from torch.testing._internal.distributed import distributed_test
class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)
"""
_FOLDERS = ("barrier", "test_dir", "init_dir")


class Outcome(NamedTuple):
    """What the tests of one backend have come to.

    Attributes:
        passed: Names of those that pass.
        failed: Names of those that do not.
        log: All that was printed.
    """

    passed: set[str]
    failed: set[str]
    log: str


def run_suite(backend: str, *, ranks: int, only: str = "", timeout: float = 60.0) -> Outcome:
    """Run the suite.

    Args:
        backend: `gloo` or `allrail`.
        ranks: How many processes each test has.
        only: Of the tests, those that this expression of pytest's `-k` takes.
        timeout: Seconds that a test may take.

    Raises:
        RuntimeError: There are no tests: torch's wheel has none, or `expecttest` is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="torch-suite") as folder:
        for name in _FOLDERS:
            (Path(folder) / name).mkdir()
        module = Path(folder) / "test_suite.py"
        module.write_text(_MODULE.format(alias=backend == "allrail"), encoding="utf-8")
        known = os.environ | {
            "BACKEND": "gloo",
            "WORLD_SIZE": str(ranks),
            "TEMP_DIR": folder,
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(int(timeout)),
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
        command += ["--rootdir", folder, str(module), *(["-k", only] if only else [])]
        ran = subprocess.run(
            command, env=known, cwd=folder, capture_output=True, text=True, check=False
        )
    log = ran.stdout + ran.stderr
    found = {name: status for status, name in _names(log)}
    if not found:
        raise RuntimeError(f"no test has run:\n{log[-2000:]}")
    passed = {name for name, status in found.items() if status == "PASSED"}
    failed = {name for name, status in found.items() if status in {"FAILED", "ERROR"}}
    return Outcome(passed, failed, log)


def _names(log: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^(PASSED|FAILED|ERROR) \S*?(test_\w+)(?: |$)", log, re.MULTILINE):
        yield match[1], match[2]


def main() -> int:
    """Print the table; 1 if a test fails over allrail that is not known to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 4], help="processes of a test")
    parser.add_argument("--backends", nargs="+", default=["gloo", "allrail"])
    parser.add_argument("--only", default="", help="tests, as of pytest's -k")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of a test")
    chosen = parser.parse_args()
    print(f"{'backend':<10}{'ranks':>6}{'pass':>6}{'of':>6}  fail")
    unknown: set[str] = set()
    for ranks in chosen.ranks:
        for backend in chosen.backends:
            outcome = run_suite(backend, ranks=ranks, only=chosen.only, timeout=chosen.timeout)
            count = len(outcome.passed | outcome.failed)
            names = ", ".join(sorted(outcome.failed)) or "none"
            print(f"{backend:<10}{ranks:>6}{len(outcome.passed):>6}{count:>6}  {names}", flush=True)
            if backend == "allrail":
                unknown |= outcome.failed - KNOWN.keys()
    for name, why in KNOWN.items():
        print(f"known: {name}: {why}")
    return int(bool(unknown))


KNOWN = {
    "test_get_backend": "asks for the name `gloo`",
    "test_sparse_all_reduce_sum": "sparse tensors are not supported by allrail",
}
"""Tests that fail over allrail, and why."""

if __name__ == "__main__":
    sys.exit(main())
