"""Fuzz the Python readers: whatever bytes a file holds, only `InputError` may come out.

    python fuzz/fuzz_readers.py --seconds 600            # every target in turn
    python fuzz/fuzz_readers.py --target system_txt      # one of them

With atheris installed it is guided by coverage. Without, inputs of the corpus are mutated, spliced
and salted with words that the readers know, and those that end in a new way (another message,
another field) join the corpus in `fuzz/corpus/TARGET`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from allrail.base.errors import InputError
from allrail.base.files import write_text
from allrail.base.manifest import NAME, Manifest
from allrail.formats.astra_sim import read_case
from allrail.measure.calibrate.fit import fit
from allrail.measure.calibrate.read import read_tables
from allrail.output.record_trace import trace_gzip
from allrail.output.report.saved import saved_page
from allrail.results.plans import Plan
from allrail.runtime import record
from allrail.runtime.report import report_of
from allrail.scenario import load_scenario
from allrail.search.sweeps.journal import Journal
from allrail.search.sweeps.study import load_study
from allrail.search.sweeps.table import frame
from allrail_reproduce.astra_sim import FOLDER

CORPUS = Path(__file__).parent / "corpus"
LARGEST = 4096
# More inputs than this are not kept: some messages quote what they read, and no two are alike.
KEPT = 64

WORDS = [
    *(b"Switch Ring FullyConnected MICRO DATA ALLREDUCE ALLGATHER ALLTOALL NONE themis".split()),
    *(b"baseline SCF FIFO LIFO localBWAware direct direct4 oneRing halvingDoubling".split()),
    *(b"0 -1 1.5 1e308 1e-320 NaN Infinity .inf .nan 99999999999999999999 true ~ 0x10".split()),
    *(b"[] {} [1, 2] {a: 1} & * ! !!python/object:os.system --- ... ? | > # % @ ` ' \"".split()),
    *(b"schema_version fabric dimensions collective schedule chunks network_model seed".split()),
    *(b"HYBRID_TRANSFORMER_FWD_IN_BCKWD DATA HYBRID_DLRM model_parallel_NPU_group:".split()),
    *(b"ep: pp: vpp: ga: checkpoints: ranks groups classes steps all_reduce send over to".split()),
    *(b"all_reduce_perf size time algbw busbw #wrong Rank Pid FAILED GBps axes sample".split()),
    *(b"repeat background after tensor even odd model_type hidden_size rope_scaling".split()),
    *(b"1 GiB", b"50 GB/s", b"700 ns", b"_", b":", b"\n", b"\r\n", b"\t", b"\x00", b"\xff"),
    b"\xef\xbb\xbf",
]


def _remove(folder: str, owner: int) -> None:
    """Not by a fork that ends earlier."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class Target:
    """One reader: takes a file's bytes, raises `InputError` or returns."""

    def __init__(self, name: str, suffix: str, read: Callable[[Path], object]) -> None:
        self.name = name
        self.read = read
        self.corpus = CORPUS / name
        folder = tempfile.mkdtemp(prefix="allrail-fuzz-")
        self._file = Path(folder) / f"input{suffix}"
        weakref.finalize(self, _remove, folder, os.getpid())

    def __call__(self, data: bytes) -> str:
        """How reading `data` ended; anything but `InputError` is let through."""
        self._file.write_bytes(data)
        try:
            self.read(self._file)
        except InputError as error:
            if not error.why or not error.hint:
                raise RuntimeError(f"an error without why or hint: {error}") from error
            return re.sub(r"`[^`]*`|'[^']*'|[0-9]+", "*", error.why)[:32]
        return "read"


def _case(**files: Path) -> object:
    """Reads an ASTRA-sim case with one file replaced, and the scenario that it makes."""
    names = {
        "network": FOLDER / "3d_switch.json",
        "system": FOLDER / "3d_switch_themis.txt",
        "workload": FOLDER / "all_reduce.txt",
    } | files
    case = read_case(names["network"], system=names["system"], workload=names["workload"])
    return load_scenario(case.scenario)


def _model(model: object) -> object:
    """Reads a scenario that trains this."""
    tree = {"schema_version": 1, "fabric": "tutorial-8x8x8", "workload": {"model": model}}
    return load_scenario(tree)


def _tables(path: Path) -> object:
    """Reads what somebody measured, and fits it."""
    return [fit(table.rows) for table in read_tables(path)]


def _beside(path: Path, name: str, data: bytes) -> Path:
    """A folder with one file of that name."""
    folder = path.parent / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_bytes(data)
    return folder


def _manifest(path: Path) -> object:
    """Reads what allrail has written into a folder, and writes there again."""
    folder = _beside(path, NAME, path.read_bytes())
    write_text(folder / "new.txt", "new")
    return Manifest(folder, option="--out").of("results")


def _journal(path: Path) -> object:
    """Goes on with a sweep of which two points are known, and makes its table."""
    study = load_study(
        {
            "schema_version": 1,
            "scenario": {
                "schema_version": 1,
                "fabric": "tutorial-8x8x8",
                "collective": {"kind": "all_reduce", "size": "1 GB"},
            },
            "axes": {"seed": [1, 2, 3]},
        }
    )
    with tempfile.TemporaryDirectory() as made, Journal(Path(made), study) as journal:
        head = journal.path.read_bytes()
    with Journal(_beside(path, "sweep.jsonl", head + path.read_bytes()), study) as journal:
        return frame(study, journal.outcomes)


def _record(path: Path) -> object:
    """Reads what a rank has recorded, and shows it."""
    folder = _beside(path, "rank0-m-restart0.json.gz", gzip.compress(path.read_bytes()))
    with record.whole(folder):
        return [
            (str(report_of(one)), json.dumps(report_of(one).to_json()), trace_gzip([one]))
            for one in record.read(folder)
        ]


TARGETS = {
    target.name: target
    for target in (
        Target("network_json", ".json", lambda path: _case(network=path)),
        Target("network_yml", ".yml", lambda path: _case(network=path)),
        Target("system_txt", ".txt", lambda path: _case(system=path)),
        Target("system_json", ".json", lambda path: _case(system=path)),
        Target("workload", ".txt", lambda path: _case(workload=path)),
        Target("scenario", ".yaml", load_scenario),
        Target("plan", ".json", Plan.load),
        Target("layers_txt", ".txt", lambda path: _model({"astra_sim": str(path)})),
        Target("model_yaml", ".yaml", lambda path: _model(str(path))),
        Target("config_json", ".json", lambda path: _model(str(path))),
        Target("study", ".yaml", load_study),
        Target("tables", ".txt", _tables),
        Target("manifest", ".json", _manifest),
        Target("journal", ".jsonl", _journal),
        Target("record", ".json", _record),
        Target("saved", ".json", saved_page),
    )
}


def mutate(data: bytes, other: bytes, draws: random.Random) -> bytes:
    """A few random edits of `data`."""
    text = bytearray(data)
    for _ in range(draws.choice((1, 1, 2, 3, 8))):
        at = draws.randrange(len(text) + 1)
        end = min(len(text), at + draws.choice((0, 1, 2, 8, 64)))
        kind = draws.randrange(6)
        if kind == 0:
            text[at:end] = draws.choice(WORDS)
        elif kind == 1:
            text[at:end] = bytes(draws.randrange(256) for _ in range(draws.randrange(4)))
        elif kind == 2:
            del text[at:end]
        elif kind == 3:
            text[at:at] = text[at:end] * draws.choice((1, 2, 100))
        elif kind == 4 and other:
            start = draws.randrange(len(other))
            text[at:end] = other[start : start + draws.randrange(64)]
        else:
            words = list(re.finditer(rb"[\w.]+", bytes(text)))
            if words:
                word = draws.choice(words)
                text[word.start() : word.end()] = draws.choice(WORDS)
    return bytes(text[:LARGEST])


def run(target: Target, *, seconds: float, seed: int) -> int:
    """Mutate the corpus for a while; returns how many inputs were read."""
    draws = random.Random(seed)
    pool = [path.read_bytes() for path in sorted(target.corpus.glob("*"))] or [b""]
    known = {target(data) for data in pool}
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutate(draws.choice(pool), draws.choice(pool), draws)
        try:
            ended = target(data)
        except BaseException:
            name = f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
            crash = Path(__file__).parent / "artifacts" / name
            crash.parent.mkdir(exist_ok=True)
            crash.write_bytes(data)
            again = f".venv/bin/python fuzz/fuzz_readers.py --target {target.name} --input {crash}"
            print(f"repeat: {again}", file=sys.stderr)
            raise
        count += 1
        if ended not in known:
            known.add(ended)
            pool.append(data)
            if len(pool) > KEPT:
                continue
            target.corpus.mkdir(parents=True, exist_ok=True)
            (target.corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    print(f"{target.name}: {count} inputs, {len(known)} different ends")
    return count


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="one target, guided by coverage")
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("--input", type=Path, help="reads this file alone")
    options = parser.parse_args()
    if options.list:
        print("\n".join(TARGETS))
        return
    targets = [TARGETS[name] for name in options.target or TARGETS]
    if options.atheris:
        import atheris  # type: ignore[import-not-found]

        (target,) = targets
        atheris.instrument_all()
        limit = f"-max_total_time={int(options.seconds)}"
        atheris.Setup([sys.argv[0], str(target.corpus), limit], lambda data: target(data) and None)
        atheris.Fuzz()
        return
    if options.input is not None:
        for target in targets:
            print(f"{target.name}: {target(options.input.read_bytes())}")
        return
    for target in targets:
        run(target, seconds=options.seconds / len(targets), seed=options.seed)


if __name__ == "__main__":
    main()
