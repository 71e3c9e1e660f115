"""Cases of `examples/`: the commands that each README names, run in a copy of its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from frozen.cases import ROOT, Case

REAL = frozenset({"launch", "run"})
"""Commands that run processes: what they print are times of this machine."""


def cases() -> Iterator[Case]:
    """One case an example; of commands that run processes, none."""
    for folder in sorted((ROOT / "examples").iterdir()):
        readme = folder / "README.md"
        if not readme.is_file():
            continue
        lines = readme.read_text(encoding="utf-8").splitlines()
        typed = [shlex.split(line)[2:] for line in lines if line.startswith("$ allrail ")]
        commands = tuple(tuple(words) for words in typed if words[0] not in REAL)
        if commands:
            yield Case(f"examples/{folder.name}", commands, copied=tuple(sorted(folder.iterdir())))
