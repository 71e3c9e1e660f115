"""Run every command of README, tour, guides and concepts as it stands, in a copy of the tree.

    python docs/commands.py                # what `make docs-test` does: all pages, all commands
    python docs/commands.py --quick        # without those that take long; what `make test` does
    python docs/commands.py README.md      # one page

A block of `console` holds commands, each after a `$` (lines follow while a quote or a backslash is
open), and below a command what it prints: word for word, `...` for what is left out, at the end of
a line or for lines; notes (`# ...`) may be left out. Where nothing is shown, anything may be
printed. A block of code that follows a path in backquotes and a colon is that file. All commands of
a page run in one shell, one after the other, from the root of a fresh copy.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]

LONG = {
    "make": "it builds, or takes minutes",
    "allrail reproduce": "it takes minutes",
    "torchrun": "it starts four processes with torch",
    "allrail run": "it starts four processes with torch",
    "ALLRAIL_DISABLE=1": "it starts four processes with torch",
    "allrail plan --model llama3_8b --fabric dgx-h100 --npus 64 --global": "it takes a minute",
    "allrail require --model llama3_8b --fabric dgx-h100": "it takes a minute",
    "allrail launch": "it starts four processes",
    "allrail calibrate device": "it measures this machine, with torch",
    "allrail simulate step.yaml --set workload.compute.device=mine.json": "of what is measured",
    "mpirun": "it starts four processes",
}
"""Commands that `--quick` leaves out, by how they begin, and why."""
NEVER = {
    "make test": "it runs this test",
    "make reproduce": "the better part of an hour",
    "make published": "it needs a folder with the sources' numbers",
    "pip install": "it changes this environment, from an index",
    "uv tool install": "it needs a wheel; `make release-check` installs one",
    "KERAS_BACKEND=": "it trains what the reader has written, with Keras",
    "all_reduce_perf": "it needs GPUs and nccl-tests",
    "NCCL_ALGO=": "as above",
    "ray start": "a test of sweeps starts a cluster, and stops it",
    "allrail sweep study.yaml --ray": "as above",
}
"""Commands that only a person runs."""
STATUSES = {"allrail reproduce": (0, 1)}
"""What a command may exit with, by how it begins: `reproduce` says 1 where a row is out."""


@dataclass
class Command:
    """A command, what it is shown to print, and where it stands."""

    text: str
    line: int
    shown: list[str] = field(default_factory=list)

    def begins(self, words: dict[str, str]) -> str | None:
        """Why this command is among those that `words` begin."""
        return next((why for word, why in words.items() if self.text.startswith(word)), None)

    def statuses(self) -> tuple[int, ...]:
        """What it may exit with."""
        if self.shown and self.shown[0].startswith("error:"):
            return (2,)
        known = (codes for word, codes in STATUSES.items() if self.text.startswith(word))
        return next(known, (0,))


@dataclass
class File:
    """A file that a page writes out."""

    path: str
    text: str


def parts(page: str) -> Iterator[Command | File]:
    """Yield the commands and files of a page, in order.

    Args:
        page: Its text.

    Raises:
        ValueError: A block of `console` that does not begin with a command.
    """
    fence = re.compile(r"(?:`([^`\n]+)`:\n\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for found in fence.finditer(page):
        path, language, text = found.groups()
        line = page.count("\n", 0, found.start(3)) + 1
        if language == "console":
            yield from _commands(text, line)
        elif path:
            yield File(path, text)


def _commands(block: str, line: int) -> Iterator[Command]:
    command: Command | None = None
    for number, text in enumerate(block.splitlines(), start=line):
        if command is not None and _open(command.text):
            command.text += "\n" + text
        elif text.startswith("$ "):
            if command is not None:
                yield _trimmed(command)
            command = Command(text[2:], number)
        elif command is None:
            raise ValueError(f"line {number}: a block of `console` begins with `$ `")
        else:
            command.shown.append(text)
    if command is not None:
        yield _trimmed(command)


def _trimmed(command: Command) -> Command:
    while command.shown and not command.shown[-1]:
        command.shown.pop()
    return command


def _open(text: str) -> bool:
    """Whether a quote or a backslash is open at the end."""
    if text.endswith("\\"):
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def differs(shown: list[str], printed: list[str]) -> str | None:
    """Return the first shown line that was not printed where it should be; None if all were.

    Args:
        shown: What a page shows; `...` stands for anything, at the end of a line or for lines.
        printed: What was printed.
    """
    at, elided = 0, False
    for line in shown:
        if line == "...":
            elided = True
            continue
        rest = printed[at:] if elided else printed[at : at + 1]
        whole = not line.endswith("...")
        start = line if whole else line.removesuffix("...").rstrip()
        fits = (
            i for i, one in enumerate(rest) if (one == line if whole else one.startswith(start))
        )
        found = next(fits, None)
        if found is None:
            return line
        at, elided = at + found + 1, False
    left = not elided and any(printed[at:])
    return f"(nothing more; printed was {printed[at]!r})" if left else None


def run(page: Path, *, quick: bool, root: Path) -> list[str]:
    """Run a page's commands and return what is wrong with them.

    Args:
        page: The page, in the repository.
        quick: Leave out what takes long.
        root: A fresh copy of the tree; its shell starts there.
    """
    script, run_here = [], []
    for part in parts(page.read_text()):
        if isinstance(part, File):
            script.append(f"mkdir -p {shlex.quote(str(Path(part.path).parent))}")
            script.append(f"cat > {shlex.quote(part.path)} <<'@@@'\n{part.text}@@@")
            continue
        why = part.begins(NEVER) or (part.begins(LONG) if quick else None)
        words = shlex.split(part.text, comments=True)
        program = next((word for word in words if "=" not in word), None)
        if why is None and program == "mpirun" and shutil.which(program) is None:
            why = "it is not installed"
        if why is not None:
            if not quick:
                print(f"   left out: {part.text.splitlines()[0]} ({why})")
            continue
        run_here.append(part)
        script.append(f"echo '@@@ begin'\n{part.text}\necho '@@@ end' $?")
    if not run_here:
        return []
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    started = time.monotonic()
    # `-u`, `-e` and the like are not set: a reader's shell has none of them.
    done = subprocess.run(  # noqa: S603, the commands are the pages'
        ["/bin/bash", "-c", "\n".join(script)],
        cwd=root,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(f"{page.relative_to(ROOT)}: {len(run_here)} commands, {time.monotonic() - started:.1f} s")
    return list(_judged(page, run_here, done.stdout))


def _judged(page: Path, commands: list[Command], printed: str) -> Iterator[str]:
    marked = re.compile(r"^@@@ begin\n(.*?)^@@@ end (\d+)$", re.MULTILINE | re.DOTALL)
    outputs = marked.findall(printed)
    where = page.relative_to(ROOT)
    for command, (output, status) in zip(commands, outputs, strict=False):
        name = f"{where}:{command.line}: `{command.text}`"
        if int(status) not in command.statuses():
            yield f"{name}: exit status {status}\n{output[-2000:]}"
        elif command.shown:
            lines = [line.rstrip() for line in output.rstrip("\n").split("\n")]
            # A page need not show the notes.
            lines = [one for one in lines if not one.startswith("# ") or one in command.shown]
            wrong = differs(command.shown, lines)
            if wrong is not None:
                yield f"{name}: this is not what it prints: {wrong}\n{output[-2000:]}"
    for command in commands[len(outputs) :]:
        yield f"{where}:{command.line}: `{command.text}`: its shell had ended, or printed no end"


def known() -> list[str]:
    """Return the files that git knows, and those that it would."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True)  # noqa: S603
    return [name for name in done.stdout.decode().split("\0") if name]


def unpacked() -> list[str]:
    """Return the files that are not left out by .gitignore, where there is no git."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    anchored = [line.strip("/") for line in lines if line.startswith("/")]
    anywhere = [".git", *(line.strip("/") for line in lines if not line.startswith("/"))]

    def is_kept(path: Path) -> bool:
        at = path.relative_to(ROOT).as_posix()
        return not (
            any(fnmatch(at, one) for one in anchored)
            or any(fnmatch(path.name, one) for one in anywhere)
        )

    found: list[str] = []
    folders = [ROOT]
    while folders:
        for path in filter(is_kept, folders.pop().iterdir()):
            if path.is_dir() and not path.is_symlink():
                folders.append(path)
            elif path.is_file():
                found.append(path.relative_to(ROOT).as_posix())
    return sorted(found)


def copy(to: Path) -> Path:
    """Copy what a clone has into a folder, with the environment of this one.

    Args:
        to: The folder, which is made.
    """
    for name in known() if (ROOT / ".git").exists() and shutil.which("git") else unpacked():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    (to / ".venv").symlink_to(sys.prefix)
    # What is built is not built again.
    if (ROOT / "target").is_dir():
        (to / "target").symlink_to(ROOT / "target")
    return to


def pages() -> list[Path]:
    """Return the pages whose commands are run."""
    folders = (ROOT / "docs" / "guides", ROOT / "docs" / "concepts")
    written = [page for folder in folders for page in sorted(folder.glob("*.md"))]
    first = [ROOT / "README.md", ROOT / "docs" / "tour.md", ROOT / "docs" / "results.md"]
    return [*first, *written]


def main() -> int:
    """Run what was asked for; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("pages", nargs="*", type=Path, help="all if left out")
    parser.add_argument("--quick", action="store_true", help="without what takes long")
    asked = parser.parse_args()
    wrong = []
    for page in [path.resolve() for path in asked.pages] or pages():
        with tempfile.TemporaryDirectory(prefix="allrail-docs-") as folder:
            wrong += run(page, quick=asked.quick, root=copy(Path(folder) / "allrail"))
    for one in wrong:
        print(f"\n{one}")
    print(f"\n{len(wrong)} commands are wrong" if wrong else "every command runs as it stands")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
