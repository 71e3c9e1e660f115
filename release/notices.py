"""Licences of the Rust crates inside the wheel: judge them, and write their notices.

    python release/notices.py            # write THIRD-PARTY-NOTICES.txt: `make notices`
    python release/notices.py --check    # exit with 1 if it is not what Cargo.lock asks for

Every crate that is linked into the extension on Linux must have a licence of `ALLOWED`; of several
that it offers, the first of that list is taken. The notices are the texts in the crates' own
packages, as Cargo has unpacked them. The file is in the wheel's metadata and in the source
distribution.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTICES = ROOT / "THIRD-PARTY-NOTICES.txt"
PACKAGE = "allrail-python"
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")

ALLOWED = (
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-3-Clause",
    "BSD-2-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unicode-3.0",
)
"""SPDX names, the preferred first. Each lets a binary be given to others with its text."""

# How files are called that have the text of one licence, or of all.
_OF_ONE = {"Apache-2.0": "APACHE", "MIT": "MIT", "ISC": "ISC", "Zlib": "ZLIB", "0BSD": "0BSD"}
_FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)


class LicenceError(Exception):
    """A crate has no licence that is allowed, or no text of it."""


@dataclass(frozen=True, order=True)
class Crate:
    """A crate of someone else.

    Attributes:
        name: Its name.
        version: Its version.
        licence: The SPDX expression of its manifest.
        folder: Where Cargo has unpacked it.
    """

    name: str
    version: str
    licence: str
    folder: Path


def _cargo(*arguments: str, root: Path) -> str:
    command = ["cargo", *arguments, "--locked"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LicenceError(f"`{' '.join(command)}`: {done.stderr.strip()[-600:]}")
    return done.stdout


def linked(root: Path = ROOT, package: str = PACKAGE) -> list[Crate]:
    """Return the crates of others that are linked into a package, by name.

    Neither what only builds them nor macros that run in the compiler are in it.

    Args:
        root: The workspace.
        package: The package that is built.

    Raises:
        LicenceError: Cargo refuses, or a manifest names no licence.
    """
    targets = [word for target in TARGETS for word in ("--target", target)]
    edges = ("--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    tree = _cargo("tree", "--package", package, *edges, *targets, root=root)
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    metadata = json.loads(_cargo("metadata", "--format-version", "1", root=root))
    crates = []
    for one in metadata["packages"]:
        name, version = one["name"], one["version"]
        if one["source"] is None or (name, f"v{version}") not in names:
            continue
        if not one["license"]:
            raise LicenceError(f"{name} {version}: its manifest names no licence")
        folder = Path(one["manifest_path"]).parent
        crates.append(Crate(name, version, one["license"], folder))
    return sorted(crates)


def choose(expression: str) -> tuple[str, ...]:
    """Return the licences under which a crate is taken.

    Args:
        expression: In SPDX's language, or with the `/` of old manifests.

    Raises:
        LicenceError: None of what it offers is allowed, or it cannot be read.
    """
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def peek() -> str:
        return words[at] if at < len(words) else ""

    def take() -> str:
        nonlocal at
        at += 1
        return words[at - 1] if at <= len(words) else ""

    # Each alternative is what must be kept together; None where something in it is not allowed.
    def one() -> list[tuple[str, ...]]:
        name = take()
        if name == "(":
            inner = either()
            if take() != ")":
                raise LicenceError(f"`{expression}` cannot be read")
            return inner
        if not name or name in {"OR", "AND", "WITH", ")"}:
            raise LicenceError(f"`{expression}` cannot be read")
        if peek() == "WITH":
            name = f"{name} {take()} {take()}"
        return [(name,)] if name in ALLOWED else []

    def both() -> list[tuple[str, ...]]:
        found = one()
        while peek() == "AND":
            take()
            found = [left + right for right in one() for left in found]
        return found

    def either() -> list[tuple[str, ...]]:
        found = both()
        while peek() == "OR":
            take()
            found += both()
        return found

    found = either()
    if peek():
        raise LicenceError(f"`{expression}` cannot be read")
    if not found:
        raise LicenceError(f"`{expression}` is not allowed: {', '.join(ALLOWED)} are")
    return min(found, key=lambda names: [ALLOWED.index(name) for name in names])


def texts(crate: Crate, names: tuple[str, ...]) -> list[str]:
    """Return the texts that go with a crate under some licences.

    Args:
        crate: The crate.
        names: Under which it is taken.

    Raises:
        LicenceError: Its package has none.
    """
    files = sorted(one for one in crate.folder.iterdir() if _FILE.fullmatch(one.name))
    files = [one for one in files if one.is_file()]
    marks = {mark for name in names if (mark := _OF_ONE.get(name.split()[0]))}
    others = set(_OF_ONE.values()) | {"UNLICENSE"}

    def is_for(file: Path, marks: set[str]) -> bool:
        name = file.name.upper()
        return any(mark in name for mark in marks)

    wanted = [one for one in files if is_for(one, marks) or not is_for(one, others)]
    # Old packages have one text where their manifest offers several.
    found = [_tidy(one.read_text(encoding="utf-8", errors="replace")) for one in wanted or files]
    if not found and "Apache-2.0" in names:
        found = [_tidy((ROOT / "LICENSE").read_text(encoding="utf-8"))]  # the same for everyone
    if not found:
        raise LicenceError(
            f"{crate.name} {crate.version}: its package has no text of {' and '.join(names)}"
        )
    return found


def _tidy(text: str) -> str:
    """The same text, whatever ends its lines."""
    return "\n".join(line.rstrip() for line in text.strip("\ufeff\n\r ").splitlines())


def notices(crates: list[Crate]) -> str:
    """Return the whole file: a list of crates, then each text with the crates that it is for.

    Args:
        crates: What is linked.

    Raises:
        LicenceError: A licence is not allowed, or has no text.
    """
    lines, wrong = [], []
    # By their words: how a text is broken into lines makes no other licence of it.
    found: dict[str, tuple[str, list[str]]] = {}

    def add(text: str, about: str) -> None:
        users = found.setdefault(" ".join(text.split()), (text, []))[1]
        if about not in users:
            users.append(about)

    for crate in crates:
        about = f"{crate.name} {crate.version}"
        try:
            names = choose(crate.licence)
            for text in texts(crate, names):
                add(text, about)
        except LicenceError as error:
            wrong.append(f"{about}: {error}")
            continue
        lines.append(f"{about}: {' AND '.join(names)} (offered: {crate.licence})")
    if wrong:
        raise LicenceError("\n".join(wrong))
    lines.append("Rust standard library: Apache-2.0 (offered: Apache-2.0 OR MIT)")
    add(_tidy((ROOT / "LICENSE").read_text(encoding="utf-8")), "Rust standard library")
    head = (
        "allrail's extension module holds the following software of others. Each is under the\n"
        "licence that stands behind it; the texts follow.\n"
    )
    bodies = [f"{'-' * 80}\nFor {', '.join(users)}:\n\n{text}\n" for text, users in found.values()]
    return "\n".join([head, "\n".join(lines) + "\n", *bodies])


def main() -> int:
    """Write the file, or compare it; 1 if a licence is not allowed or it is not up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args()
    try:
        text = notices(linked())
    except LicenceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not asked.check:
        NOTICES.write_text(text, encoding="utf-8")
    elif not NOTICES.is_file() or NOTICES.read_text(encoding="utf-8") != text:
        print(f"error: {NOTICES.name} is not what Cargo.lock asks for", file=sys.stderr)
        print("hint: `make notices` writes it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
