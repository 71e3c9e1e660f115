"""Freeze what commands compute, and compare with it after a change that must keep it.

    make freeze                     # or: python tests/frozen write
    make frozen                     # or: python tests/frozen compare

Frozen are the exit status and the JSON of every case: the examples, every preset under every
network model, the reference folder, and 200 drawn scenarios. What is of the host and what is prose
is not compared (`trees.py`), and keys may be renamed (`renamed.yaml`). `compare` exits with 1 if a
value differs. What is kept lies under `out/frozen`, and is of this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml

from frozen import compare, drawn, examples, kept, presets, references, run
from frozen.cases import ROOT, SIMULATE, Case
from frozen.trees import Renames

SHOWN_VALUES = 3
SHOWN_CASES = 20
NOT_HERE = "the reference folder is not here (ALLRAIL_REFERENCE): its cases are left out"


def main(typed: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a value differs."""
    parser = argparse.ArgumentParser(
        prog="python tests/frozen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=("write", "compare"))
    parser.add_argument("--file", type=Path, default=ROOT / "out" / "frozen" / "frozen.jsonl.gz")
    parser.add_argument("--only", metavar="REGEX", help="only cases whose name it is found in")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--all", action="store_true", help="print every difference")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest")
    given = parser.parse_args(typed)
    room = run.room()
    try:
        return (_write if given.verb == "write" else _compare)(given, room)
    except KeyboardInterrupt:
        sys.stderr.write(f"\ninterrupted; {given.file} is as it was\n")
        return 130
    finally:
        run.remove(room)


def _write(given: argparse.Namespace, room: Path) -> int:
    records = _run(_cases(given, room, drawing=True), given)
    head = {"commit": _commit(), "reference": references.folder() is not None}
    kept.write(given.file, head, records)
    size = given.file.stat().st_size / 1e6
    print(f"{len(records):,} cases in {given.file} ({size:.1f} MB), commit {head['commit']}")
    return 0


def _compare(given: argparse.Namespace, room: Path) -> int:
    if not given.file.is_file():
        sys.stderr.write(f"error: nothing is frozen in {given.file}\n")
        sys.stderr.write("hint: run `make freeze` on the commit whose results must stay\n")
        return 2
    head, before = kept.read(given.file)
    table = yaml.safe_load((ROOT / "tests" / "frozen" / "renamed.yaml").read_text())
    scenarios = Renames(table["scenarios"])
    cases, new = [], []
    for case in (*_cases(given, room, drawing=False), *_drawn(before)):
        record = before.get(case.name)
        if record is not None and (given.only is None or re.search(given.only, case.name)):
            made = Case(case.name, case.commands, record["made"], case.copied, case.foreign)
            cases.append(run.renamed(made, scenarios))
        elif record is None:
            new.append(case.name)
    if new:
        print(f"{len(new):,} cases are not frozen and not compared, such as {new[0]}")
    print(f"frozen at commit {head['commit']}")
    records = {record["case"]: record for record in _run(cases, given)}
    return _tell(before, records, Renames(table["results"]), given)


def _tell(
    before: dict[str, Any], records: dict[str, Any], renames: Renames, given: argparse.Namespace
) -> int:
    gone = [name for name in before if name not in records]
    if given.only is not None:
        gone = [name for name in gone if re.search(given.only, name)]
    if references.folder() is None:
        gone = [name for name in gone if not name.startswith("reference/")]
    found = {
        name: list(compare.differences(before[name], record, renames))
        for name, record in sorted(records.items())
    }
    differing = {name: some for name, some in found.items() if some}
    for some in list(differing.values())[: None if given.all else SHOWN_CASES]:
        print(f"\n{some[0].case}")
        shown = some if given.all else some[:SHOWN_VALUES]
        print("\n".join(f"  {one}" for one in shown))
        if len(shown) < len(some):
            print(f"  and {len(some) - len(shown):,} more")
    for name in gone:
        print(f"\n{name}\n  was frozen, and is no case now")
    values = sum(len(some) for some in differing.values())
    print(
        f"\n{len(differing):,} of {len(records):,} cases differ, in {values:,} values;"
        f" {len(gone):,} frozen cases are gone"
    )
    for group, count in Counter(name.split("/")[0] for name in differing).items():
        print(f"  {group}: {count:,} cases")
    return 1 if differing or gone else 0


def _cases(given: argparse.Namespace, room: Path, *, drawing: bool) -> Iterator[Case]:
    """Those asked for, those that take longest first."""
    found = [*examples.cases(), *presets.cases()]
    place = references.folder()
    if place is None:
        print(NOT_HERE)
    else:
        found += references.cases(place, room)
    if drawing and any(given.only is None or re.search(given.only, name) for name in drawn.NAMES):
        found += drawn.cases()
    yield from (case for case in found if given.only is None or re.search(given.only, case.name))


def _drawn(before: dict[str, Any]) -> Iterator[Case]:
    for name, record in before.items():
        if name.startswith("drawn/"):
            yield Case(name, (SIMULATE,), record["made"])


def _run(cases: Iterator[Case] | list[Case], given: argparse.Namespace) -> list[dict[str, Any]]:
    cases = list(cases)
    began, seconds, records = time.monotonic(), [], []
    for record in run.run_all(cases, workers=given.workers):
        seconds.append((record.pop("seconds"), record["case"]))
        records.append(record)
        _progress(len(records), len(cases), began)
    print(f"{len(records):,} cases, {sum(one for one, _ in seconds):.0f} CPU seconds")
    for one, name in sorted(seconds, reverse=True)[: given.slowest]:
        print(f"  {one:6.2f} s  {name}")
    return records


def _progress(done: int, total: int, began: float) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        took = time.monotonic() - began
        sys.stderr.write(f"\r\x1b[K{done:,} of {total:,} cases, {took:.0f} s{end}")
        sys.stderr.flush()


def _commit() -> str:
    """The commit of the tree, with `+` where it has changes; `unknown` outside git."""
    try:
        git = ("git", "-C", str(ROOT))
        at = subprocess.run((*git, "rev-parse", "--short", "HEAD"), capture_output=True, check=True)
        changes = subprocess.run(
            (*git, "status", "--porcelain", "--untracked-files=no"), capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return at.stdout.decode().strip() + ("+" if changes.stdout else "")


if __name__ == "__main__":
    sys.exit(main())
