"""Carry out the recipes of docs/extending as they stand, all together on one copy of the tree.

    python docs/recipes.py             # what `make recipes` does; minutes, most of them compiling
    python docs/recipes.py --only-apply DIR    # write the copy into DIR and stop

A block of code that follows a path in backquotes and a colon is that file, whole. A block of `diff`
is put into the file of its path: what stands with a blank or a minus is found once, and replaced by
what stands with a blank or a plus; `@@` begins another place. Then the crates are built and tested
once, and the commands of each block of `console` must print what stands below them.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CRATES = (
    "allrail-collective",
    "allrail-coordinate",
    "allrail-fabric",
    "allrail-formats",
    "allrail-schedule",
)
"""Where recipes put files: their tests run, and with them every law over the lists."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the path that stands before it, and what is in it."""

    language: str
    path: str | None
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page.

    Args:
        text: The page.
    """
    fence = re.compile(r"(?:`([^`\n]+)`:\n\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for found in fence.finditer(text):
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(found[2], found[1], found[3], line)


def recipes(root: Path = ROOT) -> list[Path]:
    """Return the pages that are carried out: those with a `diff`.

    Args:
        root: The repository.
    """
    pages = sorted((root / "docs" / "extending").glob("*.md"))
    return [
        page
        for page in pages
        if any(block.language == "diff" for block in blocks(page.read_text()))
    ]


def patched(text: str, diff: str) -> str:
    """Return a file's text with a recipe's lines in it.

    Args:
        text: The file.
        diff: Lines with a blank, a minus or a plus before them; `@@` between two places.

    Raises:
        ValueError: A place is not there, or not once.
    """
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines()
        old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
        new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
        if text.count(old) != 1:
            raise ValueError(f"it is there {text.count(old)} times:\n{old}")
        text = text.replace(old, new)
    return text


def copied(folder: Path) -> None:
    """Copy the tree: what git knows, and what it would.

    Args:
        folder: Where to.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def apply(folder: Path) -> list[Block]:
    """Write the files and the lines of all recipes into a copy.

    Args:
        folder: The copy.

    Returns:
        What is to be run.
    """
    commands, files, lines = [], 0, 0
    found = [(page, block) for page in recipes() for block in blocks(page.read_text())]
    for page, block in found:
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "console":
            commands.append(block)
        elif block.path is None:
            raise SystemExit(f"{where}: no path stands before it")
        elif block.language == "diff":
            path = folder / block.path
            try:
                path.write_text(patched(path.read_text(), block.text))
            except ValueError as error:
                raise SystemExit(f"{where}: in {block.path}, {error}") from None
            lines += 1
        else:
            path = folder / block.path
            if path.exists():
                raise SystemExit(f"{where}: {block.path} is there already")
            path.write_text(block.text)
            files += 1
    print(f"{files} files and the lines of {lines} lists are in {folder}", flush=True)
    return commands


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a command and return what it prints; stop if it fails.

    Args:
        command: What to run.
        folder: Where.
        environment: Beside this process's own.
    """
    done = subprocess.run(  # noqa: S603, what the pages say
        command,
        cwd=folder,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n`{shlex.join(command)}` failed")
    return done.stdout


def shown(commands: list[Block], folder: Path) -> None:
    """Run what the recipes show, and compare what is printed.

    Args:
        commands: Blocks of `console`.
        folder: The copy.
    """
    for block in commands:
        printed = ""
        for line in block.text.splitlines():
            if line.startswith("$ allrail "):
                command = [sys.executable, "-m", "allrail", *shlex.split(line)[2:]]
                cache = str(folder / ".cache")
                python = str(folder / "python")
                printed = run(command, folder, PYTHONPATH=python, ALLRAIL_CACHE=cache)
                print(f"{line}\n{printed.rstrip()}", flush=True)
            elif line not in printed:
                raise SystemExit(f"not printed:\n{line}")


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only-apply", type=Path, metavar="DIR", help="write the copy, and stop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="allrail-recipes-") as temporary:
        folder = options.only_apply or Path(temporary)
        copied(folder)
        commands = apply(folder)
        if options.only_apply:
            return
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target" / "recipes"))
        cargo = {"CARGO_TARGET_DIR": target}
        run(["cargo", "fmt", "--all", "--check"], folder)
        packages = [word for crate in CRATES for word in ("-p", crate)]
        print("building and testing; minutes", flush=True)
        told = run(["cargo", "test", "--locked", *packages], folder, **cargo)
        passed = sum(int(count) for count in re.findall(r"(\d+) passed", told))
        run(["cargo", "build", "--locked", "-p", "allrail-python"], folder, **cargo)
        shutil.copy2(
            Path(target) / "debug" / "lib_core.so", folder / "python/allrail/_core.abi3.so"
        )
        print(f"{passed} tests passed", flush=True)
        shown(commands, folder)
        print("all recipes were carried out as written")


if __name__ == "__main__":
    main()
