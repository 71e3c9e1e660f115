"""Cases of the reference folder: files that users of other tools have, and ASTRA-sim's.

What a file is for is told by what it is, not by its folder, so that a new one is a case at once.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import yaml

import reference
from frozen.cases import ROOT, Case

JOBS = ("collective", "workload", "traffic")


def folder() -> Path | None:
    """The reference as all tests find it; None if it is not there."""
    found = reference.folder()
    return found.resolve() if found.is_dir() else None


def cases(place: Path, room: Path) -> Iterator[Case]:
    """All of them.

    Args:
        place: The folder.
        room: An empty folder, for what is unpacked.
    """
    for one in sorted((place / "field").glob("*/")):
        yield from _field(one)
    for table in sorted((place / "nccl").glob("*.txt")):
        yield Case(f"reference/nccl/{table.stem}", _of_table(table.name), copied=(table,))
    for number, graph in enumerate(sorted((place / "graphs").glob("**/*.json"))):
        yield _graph(graph, number)
    yield from _astra_sim(place / "astra-sim")
    yield from _random(place / "astra-sim" / "random.tar.gz", room)


def _of_table(name: str) -> tuple[tuple[str, ...], ...]:
    return (
        ("calibrate", "network", name, "-o", "measured.yaml"),
        ("expect", "--measured", name),
    )


def _field(one: Path) -> Iterator[Case]:
    files = tuple(path for path in sorted(one.iterdir()) if path.name != "README")
    tables = [path.name for path in files if path.suffix == ".txt"]
    for path in files:
        commands: tuple[tuple[str, ...], ...] = ()
        if path.suffix == ".yaml" and _is_scenario(path):
            models = ((), ("--set", "network_model=dims"), ("--set", "schedule.algorithms=auto"))
            commands = tuple(("simulate", path.name, *more) for more in models)
        elif path.suffix in {".txt", ".json"}:
            read = (
                ("import", path.name, "-o", "out", "--name", "read"),
                ("simulate", "out/read.yaml"),
            )
            commands = (*(_of_table(path.name) if path.suffix == ".txt" else ()), *read)
        if commands:
            yield Case(f"reference/field/{one.name}/{path.stem}", commands, {}, files, foreign=True)
    if len(tables) > 1:
        command = ("calibrate", "network", *tables, "-o", "measured.yaml")
        yield Case(f"reference/field/{one.name}/together", (command,), copied=files)


def _is_scenario(path: Path) -> bool:
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    return isinstance(tree, dict) and any(job in tree for job in JOBS)


def _graph(graph: Path, place: int) -> Case:
    kinds = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
    collective = {"kind": kinds[place % len(kinds)], "size": "1 MiB"}
    fabric = {"topology": "graph", "file": graph.name}
    tree = {"schema_version": 1, "fabric": fabric, "collective": collective}
    text = yaml.safe_dump({**tree, "schedule": {"chunks": 2}}, sort_keys=False)
    models = ("dims", ("links", "flows", "packets")[place % 3])
    commands = tuple(
        ("simulate", "scenario.yaml", "--set", f"network_model={one}") for one in models
    )
    return Case(f"reference/graphs/{graph.stem}", commands, {"scenario.yaml": text}, (graph,))


def _astra_sim(samples: Path) -> Iterator[Case]:
    expected = samples / "expected.json"
    if not expected.is_file():
        return
    for one in json.loads(expected.read_text(encoding="utf-8"))["cases"]:
        files = {kind: samples / one[kind] for kind in ("network", "system", "workload")}
        options = [word for kind, path in files.items() for word in (f"--{kind}", path.name)]
        command = ("simulate", "--astra-sim", *options, *reference.options_of(one))
        yield Case(
            f"reference/astra-sim/{one['name'].replace('/', ' ')}",
            (command,),
            copied=tuple(files.values()),
        )


def _random(archive: Path, room: Path) -> Iterator[Case]:
    """The random cases, by the commands that their own test runs."""
    if not archive.is_file():
        return
    path = ROOT / "tests" / "golden" / "astra_random.py"
    spec = importlib.util.spec_from_file_location("astra_random", path)
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    sys.modules["astra_random"] = runner
    spec.loader.exec_module(runner)
    with tarfile.open(archive) as packed:
        packed.extractall(room, filter="data")
    for case in runner.cases(room):
        words = tuple(word.removeprefix(f"{case}/") for word in runner.command(case))
        yield Case(
            f"reference/astra-sim-random/{case.parent.name}/{case.name}",
            (words,),
            copied=tuple(sorted(case.iterdir())),
        )
