"""What every test may use: the command line in this process, and a cache of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headings import bare

# The same cases on every run: a red run can be run again. `make explore` takes fresh ones, on a
# machine that is busy with others.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("repeatable")

# The store of torch asks for the name of whoever connects, in the thread that serves all. A name
# server that does not answer, which nobody here needs, may hold a test up for a second, not ten.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

ROOT = Path(__file__).parent.parent

SCENARIO = """\
schema_version: 1
fabric: tutorial-8x8x8
collective: {kind: all_reduce, size: 1 GiB}
schedule: {policy: themis, order: smallest_first, chunks: 64}
network_model: dims
seed: 0
"""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ALLRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder with `scenario.yaml` in it, made the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


@pytest.fixture
def allrail_cli(capsys, monkeypatch) -> Iterator[Callable[..., Outcome]]:
    """Runs `allrail ARGS...` in this process; what `--plugin` registers is forgotten after it.

    Every table that a command prints is held against the rule of headings (`headings.py`).
    """
    from allrail.cli import output
    from allrail.cli.main import main
    from allrail.simulation import plugins

    units: list[str] = []
    plain = output.table

    def table(header, rows):
        units.extend(bare(header))
        plain(header, rows)

    monkeypatch.setattr(output, "table", table)

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(args)
        told = capsys.readouterr()
        status = stop.value.code
        return Outcome(status if isinstance(status, int) else 0, told.out, told.err)

    yield run
    for name in plugins.registered():
        plugins.forget(name)
    assert units == [], "headings that are a unit alone: say what the column is of"
