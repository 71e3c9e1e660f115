"""ASTRA-sim's random cases through allrail's own commands, and how many agree.

    python tests/golden/astra_random.py FOLDER [SET ...]

runs every case of `FOLDER/SET/CASE` as `allrail simulate --astra-sim` does, in this process, and
prints one line a set. Of `case.json` only `aware` and, of loops, `cs`, `ks` and `passes` are read
before the case has run; `astra_sim_ns` is what it is compared with. A refusal is a miss.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: its name, ASTRA-sim's time and ours in ns, or why it was refused."""

    name: str
    expected: float
    found: float | None
    refused: str = ""

    @property
    def off(self) -> float:
        """Relative, signed; infinite where it was refused."""
        return float("inf") if self.found is None else self.found / self.expected - 1

    @property
    def agrees(self) -> bool:
        """Whether it is within the tolerance."""
        return abs(self.off) <= TOLERANCE


def command(case: Path) -> list[str]:
    """The arguments that a user would give `allrail` for a case."""
    told = json.loads((case / "case.json").read_text())
    files = {name: case / name for name in ("network.yml", "network.json")}
    network = next(path for path in files.values() if path.is_file())
    has_trace = (case / "w.0.et").is_file()
    system = case / ("system.json" if has_trace else "system.txt")
    found = ["simulate", "--astra-sim", "--network", str(network), "--system", str(system)]
    found += ["--workload", str(case / ("w" if has_trace else "workload.txt"))]
    groups = case / "comm_group.json"
    if groups.is_file():
        found += ["--comm-group", str(groups)]
    if told["aware"]:
        found += ["--network-model", "links"]
    for key, option in (("cs", "comm-scale"), ("ks", "compute-scale"), ("passes", "num-passes")):
        if key in told:
            found += [f"--{option}", str(told[key])]
    return found


def run(case: Path) -> Outcome:
    """Run one case as a user would."""
    from allrail.cli import main as cli

    expected = float(json.loads((case / "case.json").read_text())["astra_sim_ns"])
    name = f"{case.parent.name}/{case.name}"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(command(case))
        except SystemExit as ended:
            if ended.code:
                lines = [line for line in err.getvalue().splitlines() if line.startswith("error")]
                return Outcome(name, expected, None, (lines or ["?"])[0][:200])
    header, row = out.getvalue().splitlines()[:2]
    return Outcome(name, expected, float(row.split()[header.split().index("TotalTime(us)")]) * 1e3)


def cases(folder: Path, sets: list[str] | None = None) -> list[Path]:
    """Every case of the named sets, or of all."""
    return sorted(
        case.parent
        for case in folder.glob("*/*/case.json")
        if not sets or case.parent.parent.name in sets
    )


def main(folder: str, *sets: str) -> None:
    """Run them and print one line a set."""
    with ProcessPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, cases(Path(folder), list(sets)), chunksize=4))
    by_set: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_set.setdefault(outcome.name.split("/")[0], []).append(outcome)
    sys.stdout.write("\n".join(report(by_set)) + "\n")


def report(by_set: dict[str, list[Outcome]]) -> list[str]:
    """One line a set, the sum, and one line for every case that is off."""
    lines = [f"{'set':24} agree   off  refused"]
    for name, found in by_set.items():
        agree = sum(one.agrees for one in found)
        refused = sum(one.found is None for one in found)
        lines.append(f"{name:24} {agree:5} {len(found) - agree - refused:5} {refused:8}")
    all_of_them = [one for found in by_set.values() for one in found]
    agree = sum(one.agrees for one in all_of_them)
    share = agree / len(all_of_them)
    lines.append(f"{agree} of {len(all_of_them)} within {TOLERANCE:.1%}: {share:.1%}")
    for one in all_of_them:
        if not one.agrees:
            off = f"{one.off:+.2%} ({one.found or 0:.0f} for {one.expected:.0f} ns)"
            lines.append(f"  {one.name}: {one.refused or off}")
    return lines


if __name__ == "__main__":
    main(*sys.argv[1:])
