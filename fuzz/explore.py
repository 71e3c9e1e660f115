"""Run every law and every fuzzer with fresh seeds, in turn, for a time given.

    make explore SECONDS=600                 # or: python fuzz/explore.py --seconds 600
    make explore SEED=7                      # the seeds of an earlier run, turn by turn
    make explore ONLY='engine|kineto' SEEDS=10000

What is found by itself, so that a new law is explored once it stands in the tree:

- Rust: tests within `proptest!`, which draw from `PROPTEST_RNG_SEED`; and *laws over seeds*, the
  other tests of a file that reads `LAW_SEEDS`, which run the seeds `LAW_FIRST_SEED ..
  LAW_FIRST_SEED + LAW_SEEDS` (in `make test`: 0 and what the law pins).
- Python: tests with hypothesis.
- Fuzzers: the targets of `fuzz_readers.py`, and of `crates/formats/tests/it/fuzz`.

What fails is told with its seed and one command that repeats it, and is left out from then on. Ends
with status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# How long a fuzzer mutates in one turn, and what one turn of anything may take, in seconds.
SLICE = 10
PATIENCE = 1800
# What a turn may allocate: a reader that asks for more is wrong, and the machine is spared.
MEMORY = 8 << 30


@dataclass(frozen=True)
class Law:
    """Something to run with a seed."""

    name: str
    command: tuple[str, ...]
    """What runs; `SEED` in it is replaced."""
    repeat: str
    """What a reader types to run it again; `SEED` in it is replaced."""
    folder: Path = ROOT
    variables: dict[str, str] = field(default_factory=dict, hash=False)


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` closes: rustfmt indents what is between."""
    line = text.rfind("\n", 0, start) + 1
    indent = re.match(r" *", text[line:]).group()  # type: ignore[union-attr]
    end = text.find(f"\n{indent}}}", start)
    return len(text) if end < 0 else end


def laws_of(text: str) -> tuple[set[str], set[str]]:
    """The tests of a Rust file that proptest runs, and those that run over seeds."""
    tests = r"#\[test\]\s+(?:#\[[^\]]*\]\s+)*fn (\w+)"
    drawn: set[str] = set()
    for block in re.finditer(r"^ *proptest! \{$", text, flags=re.MULTILINE):
        drawn |= set(re.findall(tests, text[block.start() : _closing(text, block.end() - 1)]))
    seeded = set(re.findall(tests, text)) - drawn if "LAW_SEEDS" in text else set()
    return drawn, seeded


def _binaries() -> Iterator[tuple[str, str, Path, str]]:
    """Compiles the Rust tests; gives package, target, folder and program of each."""
    quiet = ("--quiet", "--message-format=json")
    told = subprocess.run(
        ("cargo", "test", "--workspace", "--tests", "--no-run", "--locked", *quiet),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    for line in told.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["executable"]:
            folder = Path(message["manifest_path"]).parent
            target = message["target"]
            flag = "--lib" if "lib" in target["kind"] else f"--test {target['name']}"
            yield f"allrail-{folder.name}", flag, folder, message["executable"]


def rust_laws(seeds: int | None) -> Iterator[Law]:
    """The laws in the test programs of all crates."""
    for package, flag, folder, program in _binaries():
        base = folder / ("src" if flag == "--lib" else "tests/it")
        drawn: set[str] = set()
        seeded: set[str] = set()
        for path in base.rglob("*.rs"):
            place = path.relative_to(base).with_suffix("").parts
            place = place[:-1] if place[-1] in {"mod", "lib", "main"} else place
            found = laws_of(path.read_text(encoding="utf-8"))
            for known, names in zip((drawn, seeded), found, strict=True):
                known |= {"::".join((*place, name)) for name in names}
        listed = subprocess.run([program, "--list"], stdout=subprocess.PIPE, check=True, text=True)
        for test in re.findall(r"^(.*): test$", listed.stdout, flags=re.MULTILINE):
            # Unit tests stand in a module `tests` of their file.
            written = test.replace("::tests::", "::")
            run = f"cargo test -p {package} {flag} -- --exact {test}"
            command = (program, "--exact", test)
            if written in drawn:
                variables = {"PROPTEST_RNG_SEED": "SEED"}
            elif written in seeded:
                variables = {"LAW_FIRST_SEED": "SEED"}
                if seeds is not None:
                    variables["LAW_SEEDS"] = str(seeds)
            else:
                continue
            repeat = " ".join([*(f"{key}={value}" for key, value in variables.items()), run])
            yield Law(f"{package} {test}", command, repeat, folder, variables)
        if "fuzz::mutated_inputs: test" in listed.stdout:
            targets = (folder / "tests/it/fuzz/targets.rs").read_text(encoding="utf-8")
            for target in re.findall(r'Target \{ name: "(\w+)"', targets):
                command = (program, "--exact", "fuzz::mutated_inputs", "--ignored", "--nocapture")
                variables = {"FUZZ_TARGET": target, "FUZZ_SECONDS": str(SLICE), "FUZZ_SEED": "SEED"}
                repeat = f"FUZZ_TARGET={target} FUZZ_SEED=SEED cargo test -p {package} {flag} -- "
                repeat += "--exact fuzz::mutated_inputs --ignored"
                yield Law(f"{package} fuzz {target}", command, repeat, folder, variables)


def python_laws() -> Iterator[Law]:
    """Tests with hypothesis, and the fuzzers of the Python readers."""
    pytest = (sys.executable, "-m", "pytest", "-q", "--no-header")
    listed = subprocess.run(
        [*pytest, "--collect-only", "-m", "hypothesis"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    tests = [line for line in listed.stdout.splitlines() if "::" in line and " " not in line]
    for test in tests:
        flags = ("--hypothesis-profile=explore", "--hypothesis-seed=SEED")
        repeat = f".venv/bin/python -m pytest {' '.join(flags)} {shlex.quote(test)}"
        yield Law(test, (*pytest, *flags, test), repeat)
    fuzzer = "fuzz/fuzz_readers.py"
    listed = subprocess.run(
        [sys.executable, fuzzer, "--list"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
    )
    for target in listed.stdout.split():
        arguments = (fuzzer, "--target", target, "--seed", "SEED", "--seconds", str(SLICE))
        repeat = f".venv/bin/python {' '.join(arguments)}"
        yield Law(f"fuzz {target}", (sys.executable, *arguments), repeat)


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.nice(5)


def turn(law: Law, seed: int) -> str:
    """Runs a law once; gives what it said if it failed."""

    def seeded(text: str) -> str:
        return (
            text.replace("SEED", str(seed)) if text in {"SEED", "--hypothesis-seed=SEED"} else text
        )

    variables = {key: seeded(value) for key, value in law.variables.items()}
    try:
        ended = subprocess.run(
            [seeded(word) for word in law.command],
            cwd=law.folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            preexec_fn=_limit,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        return f"{said[-4000:]!r}\nit took more than {PATIENCE} s"
    if ended.returncode == 0 and re.search(r"\b0 passed|no tests ran", ended.stdout):
        return f"{ended.stdout}\nit ran no test"
    return "" if ended.returncode == 0 else ended.stdout[-8000:] or f"status {ended.returncode}"


def explore(laws: list[Law], *, seconds: float, seed: int, step: int, jobs: int) -> int:
    """Runs the laws round robin until the time is over; gives how many failed."""
    end = time.monotonic() + seconds
    left, failed, turns, number = list(laws), 0, 0, 0
    running: dict[Future[str], tuple[Law, int]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        while running or (left and time.monotonic() < end):
            while left and len(running) < jobs and time.monotonic() < end:
                law = left.pop(0)
                # Laws over seeds take `step` of them; no two rounds overlap.
                of_round = seed + number // len(laws) * step
                running[pool.submit(turn, law, of_round)] = (law, of_round)
                number += 1
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                law, used = running.pop(done)
                turns += 1
                if said := done.result():
                    failed += 1
                    print(f"\nFAILED {law.name} with seed {used}\n{said}")
                    # A fuzzer knows the input, and has said it.
                    if "repeat: " not in said:
                        print("repeat: " + re.sub(r"\bSEED\b", str(used), law.repeat))
                    sys.stdout.flush()
                else:
                    left.append(law)
    print(f"{turns} turns of {len(laws)} laws and fuzzers, first seed {seed}")
    if turns < len(laws):
        print(f"the time was over before {len(laws) - turns} had a turn")
    print(f"{turns - failed} passed, {failed} failed")
    return failed


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--seed", type=int, help="of the first round; drawn from the clock if absent"
    )
    parser.add_argument("--seeds", type=int, help="how many a law over seeds takes in a turn")
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args()
    found = [*rust_laws(options.seeds), *python_laws()]
    laws = [law for law in found if re.search(options.only, law.name)]
    if options.list or not laws:
        print("\n".join(law.name for law in laws or found))
        sys.exit(0 if laws else f"error: no law is called `{options.only}`")
    seed = options.seed if options.seed is not None else int(time.time()) % 10**9 * 1000
    print(f"{len(laws)} laws and fuzzers, {options.seconds:g} s, SEED={seed}", flush=True)
    step = options.seeds or 200
    failed = explore(laws, seconds=options.seconds, seed=seed, step=step, jobs=options.jobs)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
