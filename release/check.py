"""Check what would be released, line by line: `make release-check`.

    python release/check.py                    # build, then check; minutes, most of them compiling
    python release/check.py --dist out/dist    # check what is there
    python release/check.py --advisories DIR   # with the advisory databases in a folder

The source distribution and the wheel of both packages are looked at, and the wheels are installed
into a fresh environment outside of the tree, with no Rust to be found: there README and the tour
run. Prints `ok`, `warning` or `failed` for each; exits with 1 if anything failed. What takes how
long is told, not judged.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.parser import Parser
from functools import cached_property
from pathlib import Path

from audit import AuditError, audit
from build import ROOT, Built, build, there
from notices import NOTICES, LicenceError, linked, notices

EXTRAS = ("torch", "ray", "tune")
"""What users are told to install; the others are for developers."""
LICENCES = ("LICENSE", NOTICES.name)
"""Files that go with the wheel: our licence, and those of what is inside."""


class Failed(Exception):  # noqa: N818 - it is what is printed
    """Why a line of the list failed."""


class Doubt(Exception):  # noqa: N818
    """Why a line of the list is only a warning."""


def demand(holds: object, why: str) -> None:
    """Fail the line unless something holds."""
    if not holds:
        raise Failed(why)


@dataclass(frozen=True)
class Release:
    """What would be released.

    Attributes:
        built: The files of allrail.
        reproduce: The files of allrail-reproduce.
        folder: A folder outside of the tree to try it in.
        advisories: Folders with the databases that its dependencies are compared with.
    """

    built: Built
    reproduce: Built
    folder: Path
    advisories: tuple[Path, ...] = ()

    @cached_property
    def version(self) -> str:
        """What `Cargo.toml` says."""
        tree = tomllib.loads((ROOT / "Cargo.toml").read_text())
        return str(tree["workspace"]["package"]["version"])

    @property
    def packages(self) -> dict[str, Built]:
        """The files of both packages, by the name that their files begin with."""
        return {"allrail": self.built, "allrail_reproduce": self.reproduce}

    @cached_property
    def packed(self) -> frozenset[str]:
        """The files of allrail's source distribution, without its folder."""
        return packed(self.built.sdist)

    @cached_property
    def installed(self) -> frozenset[str]:
        """The files of allrail's wheel."""
        return installed(self.built.wheel)

    def about(self, name: str, package: str = "allrail") -> str:
        """The text of a file of a wheel's metadata."""
        with zipfile.ZipFile(self.packages[package].wheel) as archive:
            return archive.read(f"{package}-{self.version}.dist-info/{name}").decode()

    @property
    def python(self) -> Path:
        """The fresh environment's interpreter."""
        return self.folder / "venv" / "bin" / "python"

    def run(self, *command: str | Path) -> str:
        """Run a command in the folder, as a user without Rust, and return what it prints."""
        path = os.pathsep.join([str(self.python.parent), "/usr/bin", "/bin"])
        known = {
            key: os.environ[key] for key in ("HOME", "LANG", "SSL_CERT_FILE") if key in os.environ
        }
        pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        done = subprocess.run(
            [str(one) for one in command],
            cwd=self.folder,
            env={**known, **pip, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        demand(done.returncode == 0, f"{command[-1]}: {done.stdout[-800:].strip()}")
        return done.stdout


def packed(sdist: Path) -> frozenset[str]:
    """Return the files of a source distribution, without its folder."""
    with tarfile.open(sdist) as archive:
        return frozenset(name.partition("/")[2] for name in archive.getnames())


def installed(wheel: Path) -> frozenset[str]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def tracked(under: str) -> set[str]:
    """Return the files of a folder that git knows."""
    command = ["git", "ls-files", "-z", under]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(filter(None, done.stdout.split("\0")))


def versions_agree(release: Release) -> str:
    """Cargo.toml, the files' names, their metadata, and which allrail allrail-reproduce needs."""
    for package, built in release.packages.items():
        for name in (built.sdist.name, built.wheel.name):
            begins = f"{package}-{release.version}"
            demand(name.startswith(begins), f"{name} is not {release.version}")
        about = Parser().parsestr(release.about("METADATA", package))
        said = about["Version"]
        demand(said == release.version, f"the metadata of {package} says {said}")
    needs = about.get_all("Requires-Dist") or []
    demand(needs == [f"allrail=={release.version}"], f"{package} needs {', '.join(needs)}")
    return release.version


def changelog_names_the_version(release: Release) -> str:
    """CHANGELOG has a heading for it."""
    heading = rf"^## \[?{re.escape(release.version)}\]?( |$)"
    found = re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    demand(found, f"there is no `## {release.version}`: what is unreleased becomes it")
    return ""


def tree_is_clean(_release: Release) -> str:
    """Nothing is changed that is not committed."""
    command = ["git", "status", "--porcelain"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    if changed := done.stdout.splitlines():
        raise Doubt(f"{len(changed)} files are not as committed, {changed[0][3:]} first")
    return ""


def sdist_has_what_it_needs(release: Release) -> str:
    """All of the package and of the crates' sources, locks, licence; the wheel comes from it."""
    crates = {one for one in tracked("crates") if "/src/" in one or one.endswith("Cargo.toml")}
    needed = tracked("python/allrail") | crates
    needed |= {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "PKG-INFO", *LICENCES}
    missing = sorted(needed - release.packed)
    demand(not missing, f"{len(missing)} are missing, {', '.join(missing[:3])}")
    return f"{len(release.packed)} files, {release.built.sdist.stat().st_size / 1e6:.1f} MB"


def sdist_has_nothing_else(release: Release) -> str:
    """No tests, nothing built, nothing that git does not know."""
    known = tracked(".") | {"PKG-INFO"}
    strange = sorted(one for one in release.packed if one and one not in known and Path(one).suffix)
    built = [one for one in release.packed if one.endswith((".so", ".pyc"))]
    tests = [one for one in release.packed if "tests" in Path(one).parts]
    demand(not (found := strange + built + tests), f"{len(found)}: {', '.join(found[:3])}")
    return ""


def wheel_is_abi3_and_manylinux(release: Release) -> str:
    """Its tag; maturin has compared it with the symbols that are used."""
    tag = release.built.wheel.stem.removeprefix(f"allrail-{release.version}-")
    python, abi, platforms = tag.split("-")
    demand((python, abi) == ("cp311", "abi3"), tag)
    demand(all(one.startswith("manylinux") for one in platforms.split(".")), tag)
    return f"{tag}, {release.built.wheel.stat().st_size / 1e6:.1f} MB"


def wheel_has_the_package(release: Release) -> str:
    """The core and every file of the package: presets, templates, stubs, `py.typed`."""
    needed = {one.removeprefix("python/") for one in tracked("python/allrail")}
    licences = f"allrail-{release.version}.dist-info/licenses"
    needed |= {"allrail/_core.abi3.so", *(f"{licences}/{one}" for one in LICENCES)}
    missing = sorted(needed - release.installed)
    demand(not missing, f"{len(missing)} are missing, {', '.join(missing[:3])}")
    more = (one for one in release.installed - needed if not one.startswith("allrail-"))
    demand(
        not (strange := sorted(more)), f"{len(strange)} more than that, {', '.join(strange[:3])}"
    )
    presets = sum("/presets/" in one for one in needed)
    return f"{len(needed)} files, {presets} presets"


def reproduce_has_its_package(release: Release) -> str:
    """Every file of `reproduce/` in the source distribution, of its package in the wheel."""
    own = {one.removeprefix("reproduce/") for one in tracked("reproduce")}
    package = {one for one in own if one.startswith("allrail_reproduce/")}
    folder = f"allrail_reproduce-{release.version}.dist-info"
    about = {f"{folder}/{one}" for one in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    for needed, found in (
        (own | {"PKG-INFO"}, packed(release.reproduce.sdist)),
        (package | about | {f"{folder}/licenses/LICENSE"}, installed(release.reproduce.wheel)),
    ):
        missing, more = sorted(needed - found), sorted(found - needed)
        demand(not missing, f"{len(missing)} are missing, {', '.join(missing[:3])}")
        demand(not more, f"{len(more)} more than that, {', '.join(more[:3])}")
    return f"{len(package)} files, {release.reproduce.wheel.stat().st_size / 1e6:.1f} MB"


def licences_are_allowed_and_noticed(release: Release) -> str:
    """Every crate in the wheel has a licence that we may use, and its text is in the wheel."""
    try:
        crates = linked()
        wanted = notices(crates)
    except LicenceError as error:
        raise Failed(str(error)) from error
    found = release.about(f"licenses/{NOTICES.name}")
    demand(found == wanted, f"{NOTICES.name} is not what Cargo.lock asks for: `make notices`")
    return f"{len(crates)} crates"


def locks_are_audited(release: Release) -> str:
    """No locked version has an advisory, as far as the databases know."""
    try:
        found = audit(release.advisories)
    except AuditError as error:
        raise Failed(str(error)) from error
    demand(not found.affected, "; ".join(found.affected))
    said = "; ".join(found.said)
    if found.notices:
        raise Doubt(f"{said}; {'; '.join(found.notices)}")
    return said


def metadata_is_right(release: Release) -> str:
    """What an index would refuse or show badly, as twine sees it; extras and entry points."""
    command = [sys.executable, "-m", "twine", "check", "--strict"]
    files = [file for one in release.packages.values() for file in (one.sdist, one.wheel)]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    demand(done.returncode == 0, (done.stdout + done.stderr)[-600:].strip())
    extras = Parser().parsestr(release.about("METADATA")).get_all("Provides-Extra") or []
    demand(not (missing := set(EXTRAS) - set(extras)), f"there is no extra {missing}")
    points = release.about("entry_points.txt")
    demand("allrail.cli.main:main" in points, "there is no command")
    demand(points.count("allrail.autoload:register") == 2, "torch finds no backend")
    points = release.about("entry_points.txt", "allrail_reproduce")
    demand("allrail_reproduce.command:command" in points, "allrail finds no command in the other")
    return ""


def installs_without_rust(release: Release) -> str:
    """Into a fresh environment; beside the source distribution the wheel is taken."""
    venv.create(release.python.parents[1], with_pip=True)
    path = os.pathsep.join(["/usr/bin", "/bin"])
    demand(shutil.which("cargo", path=path) is None, f"there is a `cargo` on {path}")
    pip = (release.python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    dist, taken = release.built.wheel.parent.resolve(), release.folder / "taken"
    beside = ("--no-index", "--no-deps", "--find-links", dist, "--dest", taken)
    release.run(*pip, "download", *beside, "allrail")
    names = [one.name for one in taken.iterdir()]
    demand(names == [release.built.wheel.name], f"pip takes {names}")
    release.run(*pip, "install", release.built.wheel.resolve())
    home = release.run(release.python, "-c", "import allrail; print(allrail.__file__)").strip()
    demand(Path(home).is_relative_to(release.folder), f"it is imported from {home}")
    return release.run(release.python, "--version").strip()


def extras_resolve(release: Release) -> str:
    """What each brings can be installed beside it; nothing is."""
    wheel = f"allrail[{','.join(EXTRAS)}] @ {release.built.wheel.resolve().as_uri()}"
    pip = (release.python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    release.run(*pip, "install", "--dry-run", "--only-binary", ":all:", wheel)
    return ", ".join(EXTRAS)


def command_answers(release: Release) -> str:
    """`allrail --version` and `--help`, and how long the second takes."""
    command = release.python.parent / "allrail"
    said = release.run(command, "--version").strip()
    demand(said == f"allrail {release.version}", f"it says {said}")
    times = []
    for _ in range(5):
        began = time.perf_counter()
        release.run(command, "--help")
        times.append(time.perf_counter() - began)
    return f"--help in {min(times):.2f} s, of 5 (asked: 0.2)"


def imports_without_torch(release: Release) -> str:
    """The package imports, torch is not there, and `allrail.torch` says that it needs it."""
    script = "\n".join(
        (
            "import importlib.util, allrail",
            "assert importlib.util.find_spec('torch') is None",
            "[getattr(allrail, name) for name in allrail.__all__]",
            "try:",
            "    import allrail.torch",
            "except ModuleNotFoundError as error:",
            "    assert error.name == 'torch', error",
            "else:",
            "    raise AssertionError('it imports')",
        )
    )
    release.run(release.python, "-c", script)
    return ""


def reproduce_is_added(release: Release) -> str:
    """`allrail reproduce` says what to install; with its wheel beside allrail's it runs."""
    command = release.python.parent / "allrail"
    try:
        release.run(command, "reproduce")
    except Failed as refused:
        demand("is not installed" in str(refused), str(refused))
    else:
        raise Failed("the command is there without its package")
    demand("  reproduce  " not in release.run(command, "--help"), "--help lists it without")
    pip = (release.python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    release.run(*pip, "install", "--no-deps", "--no-index", release.reproduce.wheel.resolve())
    demand("  reproduce  " in release.run(command, "--help"), "--help does not list it")
    release.run(command, "reproduce", "memory", "--help")
    return release.reproduce.wheel.name


def tour_runs(release: Release) -> str:
    """Every quick command of README and the tour, in a copy of the tree, with the wheel."""
    pages = (ROOT / "README.md", ROOT / "docs" / "tour.md")
    said = release.run(release.python, ROOT / "docs" / "commands.py", "--quick", *pages)
    return "; ".join(line.partition(": ")[2] for line in said.splitlines()[: len(pages)])


CHECKS: tuple[Callable[[Release], str], ...] = (
    versions_agree,
    changelog_names_the_version,
    tree_is_clean,
    sdist_has_what_it_needs,
    sdist_has_nothing_else,
    wheel_is_abi3_and_manylinux,
    wheel_has_the_package,
    reproduce_has_its_package,
    licences_are_allowed_and_noticed,
    locks_are_audited,
    metadata_is_right,
    installs_without_rust,
    extras_resolve,
    command_answers,
    imports_without_torch,
    reproduce_is_added,
    tour_runs,
)


def lines(
    release: Release, checks: tuple[Callable[[Release], str], ...]
) -> Iterator[tuple[str, str]]:
    """Yield how each check went, and its line.

    Args:
        release: What is checked.
        checks: In this order; each says what it has seen.
    """
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            verdict, said = "ok", check(release)
        except Doubt as doubt:
            verdict, said = "warning", str(doubt)
        except (Failed, OSError, subprocess.SubprocessError, KeyError) as error:
            verdict, said = "failed", str(error) or type(error).__name__
        yield verdict, f"{verdict:8} {name}{': ' if said else ''}{said}"


def main() -> int:
    """Build unless there is something, check, print; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--dist", type=Path, help="what is there; built into out/dist if left out")
    parser.add_argument(
        "--advisories", type=Path, action="append", default=[], help="a folder with databases"
    )
    asked = parser.parse_args()
    if asked.dist is None:
        built, reproduce = build(ROOT / "out" / "dist")
    else:
        built, reproduce = there(asked.dist)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="allrail-release-") as folder:
        release = Release(built, reproduce, Path(folder), tuple(asked.advisories))
        for verdict, line in lines(release, CHECKS):
            print(line, flush=True)
            failed += verdict == "failed"
    names = ", ".join(one.name for each in (built, reproduce) for one in (each.sdist, each.wheel))
    print(f"{failed} failed" if failed else f"ready: {names}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
