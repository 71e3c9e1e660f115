"""Compare the locked dependencies with advisory databases on disk: part of `make release-check`.

    python release/audit.py advisory-db advisory-database

A folder is a checkout of RustSec's advisory-db (`crates/NAME/RUSTSEC-*.md`), which Cargo.lock is
compared with, or of PyPA's advisory-database (`vulns/NAME/*.yaml`, in OSV's format), which the
requirements*.lock files are; or it holds such folders. Nothing is fetched. Exits with 1 if a locked
version is affected, or if either database is missing: then nothing is known, and it says so.

RustSec's notices that something is unmaintained or unsound, and a database whose newest advisory
is older than `MAX_AGE`, are warnings.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
MAX_AGE = timedelta(days=60)
"""Age of the newest advisory from which a database is no longer thought to be complete."""

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class AuditError(Exception):
    """Why nothing can be said of a lock: a database or a lock is missing, or cannot be read."""


@dataclass(frozen=True, order=True)
class Locked:
    """A version that a lock file pins."""

    name: str
    version: str
    file: str


@dataclass
class Audit:
    """What an audit has found.

    Attributes:
        affected: Locked versions with an advisory, a line each.
        notices: What is no vulnerability, a line each.
        said: What was compared with what, a line for each kind of lock.
    """

    affected: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


# -- the locks


def crates(root: Path = ROOT) -> list[Locked]:
    """Return the crates of others that Cargo.lock pins.

    Args:
        root: The folder with the lock.
    """
    tree = tomllib.loads((root / "Cargo.lock").read_text(encoding="utf-8"))
    found = [one for one in tree["package"] if "source" in one]
    return sorted({Locked(one["name"], one["version"], "Cargo.lock") for one in found})


def packages(root: Path = ROOT) -> list[Locked]:
    """Return the Python packages that the requirements*.lock files pin.

    Args:
        root: The folder with the locks.

    Raises:
        AuditError: There is none, or a line is no pinned version.
    """
    found = set()
    for lock in sorted(root.glob("requirements*.lock")):
        for line in lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            text = re.split(r"\s--hash|(?:^|\s)#", line, maxsplit=1)[0].strip()
            if not text or text.startswith("--"):
                continue
            requirement = Requirement(text)
            pins = [one for one in requirement.specifier if one.operator in {"==", "==="}]
            if len(pins) != 1:
                raise AuditError(f"{lock.name}: `{text}` pins no version")
            found.add(Locked(canonicalize_name(requirement.name), pins[0].version, lock.name))
    if not found:
        raise AuditError(f"there is no requirements*.lock in {root}")
    return sorted(found)


# -- RustSec


def _semver(text: str) -> tuple[Any, ...]:
    """A key that orders versions as Cargo does."""
    number, _, before = text.partition("+")[0].partition("-")
    parts = tuple(int(one) for one in number.split("."))
    parts += (0,) * (3 - len(parts))
    words = [(0, int(one), "") if one.isdecimal() else (1, 0, one) for one in before.split(".")]
    return (*parts, not before, words if before else [])


def is_met(requirement: str, version: str) -> bool:
    """Whether a version is one of those that a requirement of Cargo names.

    Args:
        requirement: Such as `>= 1.2.3, < 2` or `^0.3`.
        version: Such as `1.2.4`.
    """
    return all(_is_met(one.strip(), version) for one in requirement.split(","))


def _is_met(comparator: str, version: str) -> bool:
    if comparator == "*":
        return True
    found = re.fullmatch(
        r"(>=|<=|>|<|=|\^|~)?\s*v?(\d+(?:\.\d+){0,2}(?:[-+][\w.+-]+)?)", comparator
    )
    if found is None:
        raise AuditError(f"`{comparator}` is no requirement of Cargo")
    how, bound = found[1] or "^", found[2]
    least, mine = _semver(bound), _semver(version)
    given = len(bound.partition("+")[0].partition("-")[0].split("."))
    if how == ">=":
        return mine >= least
    if how == "<":
        return mine < least
    # The first version behind those that are meant.
    if how == "^":
        place = next((at for at in range(given) if least[at]), given - 1)
    elif how == "~":
        place = min(given, 2) - 1
    else:
        place = given - 1
    after = (*least[:place], least[place] + 1, *(0 for _ in range(2 - place)), False, [])
    if how in {"=", ">", "<="} and given == 3:
        same = mine == least
        return same if how == "=" else (mine > least if how == ">" else mine <= least)
    if how == ">":
        return mine >= after
    if how == "<=":
        return mine < after
    return least <= mine < after


def _by_name(locked: Iterable[Locked]) -> dict[str, list[Locked]]:
    """Group what is locked by the name of its package."""
    pinned: dict[str, list[Locked]] = {}
    for one in locked:
        pinned.setdefault(one.name, []).append(one)
    return pinned


def rustsec(database: Path, locked: Iterable[Locked], audit: Audit) -> None:
    """Compare crates with a checkout of RustSec's database.

    Args:
        database: The checkout.
        locked: The crates.
        audit: Takes what is found.
    """
    locked = list(locked)
    newest, count = date.min, 0
    pinned = _by_name(locked)
    for path in sorted(database.glob("crates/*/RUSTSEC-*.md")):
        text = path.read_text(encoding="utf-8")
        found = re.match(r"```toml\n(.*?)\n```\s*(?:#\s*([^\n]*))?", text, re.DOTALL)
        if found is None:
            raise AuditError(f"{path} does not begin with an advisory in TOML")
        tree = tomllib.loads(found[1])
        about, versions = tree["advisory"], tree.get("versions", {})
        count, newest = count + 1, max(newest, _date(about["date"]))
        if "withdrawn" in about:
            continue
        fine = [*versions.get("patched", []), *versions.get("unaffected", [])]
        for one in pinned.get(about["package"], []):
            if any(is_met(each, one.version) for each in fine):
                continue
            kind = about.get("informational")
            line = f"{one.name} {one.version} in {one.file}: {about['id']}"
            line += f", {kind}" if kind else ""
            line += f": {found[2].strip()}" if found[2] else ""
            (audit.notices if kind else audit.affected).append(line)
    _say(audit, f"{len(locked)} crates with {count} advisories of RustSec", newest)


# -- PyPA


def pypa(database: Path, locked: Iterable[Locked], audit: Audit) -> None:
    """Compare Python packages with a checkout of PyPA's database.

    Args:
        database: The checkout.
        locked: The packages.
        audit: Takes what is found.
    """
    locked = list(locked)
    newest, count = date.min, 0
    pinned = _by_name(locked)
    for path in sorted(database.glob("vulns/*/*.yaml")):
        text, count = path.read_text(encoding="utf-8"), count + 1
        if modified := re.search(r"^modified: *['\"]?(\d{4}-\d\d-\d\d)", text, re.MULTILINE):
            newest = max(newest, date.fromisoformat(modified[1]))
        if canonicalize_name(path.parent.name) not in pinned:
            continue
        tree = yaml.load(text, Loader=_YAML)  # a safe one
        if tree.get("withdrawn"):
            continue
        for affected in tree.get("affected", []):
            package = affected.get("package", {})
            if package.get("ecosystem") != "PyPI":
                continue
            for one in pinned.get(canonicalize_name(package["name"]), []):
                if _is_affected(one.version, affected):
                    aliases = [alias for alias in tree.get("aliases", []) if "CVE" in alias]
                    also = f" ({', '.join(aliases)})" if aliases else ""
                    audit.affected.append(
                        f"{one.name} {one.version} in {one.file}: {tree['id']}{also}"
                    )
    _say(audit, f"{len(locked)} Python packages with {count} advisories of PyPA", newest)


def _is_affected(version: str, affected: dict[str, Any]) -> bool:
    """Whether OSV's list of versions, or one of its ranges, has a version."""
    mine = Version(version)
    for listed in affected.get("versions", []):
        try:
            if Version(str(listed)) == mine:
                return True
        except InvalidVersion:
            continue  # too old a name of a version to be pinned
    return any(
        _is_in(mine, one["events"])
        for one in affected.get("ranges", [])
        if one["type"] == "ECOSYSTEM"
    )


def _is_in(mine: Version, events: list[dict[str, Any]]) -> bool:
    within = False
    for [(kind, text)] in sorted(
        (list(event.items()) for event in events), key=lambda one: _order(one[0])
    ):
        at = Version("0.dev0") if str(text) == "0" else Version(str(text))
        if kind == "introduced" and at <= mine:
            within = True
        elif (kind == "fixed" and at <= mine) or (kind == "last_affected" and at < mine):
            within = False
    return within


def _order(event: tuple[str, Any]) -> tuple[Version, bool]:
    kind, text = event
    # What is introduced at a version that fixes something else comes behind that.
    return (Version("0.dev0") if str(text) == "0" else Version(str(text))), kind == "introduced"


# -- both


def _date(said: Any) -> date:
    return said if isinstance(said, date) else date.fromisoformat(str(said))


def _say(audit: Audit, compared: str, newest: date) -> None:
    if compared.split(" with ")[1].startswith("0 "):
        raise AuditError(f"the database is empty: {compared}")
    audit.said.append(f"{compared}, the newest of {newest}")
    if date.today() - newest > MAX_AGE:
        audit.notices.append(f"a database is old: {compared}, the newest of {newest}")


def databases(folders: Iterable[Path], pattern: str) -> Iterator[Path]:
    """Yield the checkouts with files of a pattern, among some folders and in them.

    Args:
        folders: Where to look.
        pattern: Such as `crates/*/RUSTSEC-*.md`.
    """
    for folder in folders:
        if not folder.is_dir():
            raise AuditError(f"{folder} is no folder")
        for one in [folder, *sorted(each for each in folder.iterdir() if each.is_dir())]:
            if next(one.glob(pattern), None) is not None:
                yield one
                break


def audit(folders: Iterable[Path], root: Path = ROOT) -> Audit:
    """Compare all locks with the databases in some folders.

    Args:
        folders: Checkouts of the databases, or folders that hold them.
        root: The folder with the locks.

    Raises:
        AuditError: A database is missing or cannot be read: a lock was not audited.
    """
    folders, found = list(folders), Audit()
    kinds = (
        ("RustSec's advisory-db", "crates/*/RUSTSEC-*.md", rustsec, crates),
        ("PyPA's advisory-database", "vulns/*/*.yaml", pypa, packages),
    )
    for name, pattern, compare, locked in kinds:
        database = next(databases(folders, pattern), None)
        if database is None:
            raise AuditError(
                f"not audited: there is no checkout of {name} in"
                f" {', '.join(map(str, folders)) or 'any folder'}; `make release-check"
                ' ADVISORIES="DIR ..."` names them'
            )
        try:
            compare(database, locked(root), found)
        except (ValueError, KeyError, TypeError, OSError, yaml.YAMLError) as error:
            raise AuditError(f"not audited: {database}: {type(error).__name__}: {error}") from error
    return found


def main() -> int:
    """Audit and print; 1 if anything is affected or nothing is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folders", type=Path, nargs="*", help="checkouts of the two databases")
    try:
        found = audit(parser.parse_args().folders)
    except AuditError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in found.said:
        print(f"compared {line}")
    for line in found.notices:
        print(f"warning: {line}")
    for line in found.affected:
        print(f"affected: {line}")
    return 1 if found.affected else 0


if __name__ == "__main__":
    sys.exit(main())
